//! Which metrics tell a fast kernel from a slow one, by real profiles?
//!
//! Profiles of many kernels of many tasks lie in one tidy table ([`table`]); a set of metrics is chosen from it offline,
//! without a GPU and without a network.

pub mod columns;
pub mod table;

pub use table::{Profiled, Table, TableError};
