//! The program: its commands, its configuration, where a run is kept, and what the terminal shows of it.
//!
//! It knows nothing of how a kernel is judged. Start reading at [`cli`].

pub mod config;
pub mod diff;
pub mod quantity;
pub mod report;
pub mod show;
pub mod store;
