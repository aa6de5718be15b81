//! Words: what is said to a model, and what its reply means.
//!
//! Nothing here starts a process, opens a connection or knows of actors.

mod prompt;
mod verdict;

pub use prompt::{Prompt, Speaker, Turn};
pub use verdict::{Fix, Optimization, Suggestions, Unreadable, Verdict};
