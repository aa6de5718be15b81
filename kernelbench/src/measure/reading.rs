//! A timed request, as two clocks saw it.

use serde::{Deserialize, Serialize};

/// One request by both clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// By ours, outside the process.
    pub outside_ns: f64,
    /// By the one in the process: of a candidate not to be believed.
    pub inside_ns: f64,
}

impl Reading {
    /// By how much ours is ahead of the one inside, in nanoseconds.
    #[must_use]
    pub fn gap_ns(&self) -> f64 {
        self.outside_ns - self.inside_ns
    }
}
