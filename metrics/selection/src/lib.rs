//! Which metrics tell a fast kernel from a slow one, by real profiles?
//!
//! Profiles of many kernels of many tasks lie in one tidy table ([`table`]); a set of metrics is chosen from it offline,
//! without a GPU and without a network.

pub mod collinear;
pub mod columns;
pub mod evidence;
pub mod name;
pub mod rule;
pub mod score;
pub mod set;
pub mod table;
pub mod unit;

pub use evidence::Evidence;
pub use rule::{Choice, Rule, Wish, choose};
pub use table::{Profiled, Table, TableError};
