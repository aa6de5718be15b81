//! The layers of a sandbox, and how each came out on this machine.

use serde::{Deserialize, Serialize};

/// How one layer of the confinement came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// What it is.
    pub name: String,
    /// Whether it holds.
    pub in_force: bool,
    /// What it does, or why it does not hold.
    pub why: String,
}

impl Layer {
    /// A layer that does this where it holds.
    pub(crate) fn of(name: &str, does: &str, applied: Result<(), String>) -> Self {
        let in_force = applied.is_ok();
        Self { name: name.to_owned(), in_force, why: applied.err().unwrap_or_else(|| does.to_owned()) }
    }
}
