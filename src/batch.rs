//! How are many tasks worked on at once?
//!
//! A batch is many planners over shared edges: one model, one record, and for each GPU one crew whose device is leased to
//! one task at a time. A task that waits for its turn is a name and a hash.

pub mod choosing;
pub mod extension;
pub mod limits;
pub mod numbers;
pub mod places;
pub mod running;
pub mod sample;
pub mod standing;
pub mod suite;
pub mod watching;
