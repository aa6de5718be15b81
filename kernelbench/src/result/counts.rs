//! Counts of instructions: what an emulator says of a candidate in the place of times.
//!
//! A type of its own, from which no time, no rate and no speedup follows, and which no certificate holds.

use crate::task::processor::Processor;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Instructions that an emulated processor executed for a call of a right candidate, and for one of its reference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// The processor that was emulated.
    pub processor: Processor,
    /// Each timed case.
    pub cases: Vec<CaseCounts>,
}

/// The counts of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseCounts {
    /// The case's name.
    pub case: String,
    /// Instructions of one call of the reference.
    pub reference: u64,
    /// Instructions of one call of the candidate.
    pub candidate: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let case = |case: &CaseCounts| {
            let CaseCounts { case: name, reference, candidate } = case;
            let share = case.share().map(|share| format!(", {share:.3} of the reference's {reference}"));
            format!("{candidate} instructions a call on {name}{}", share.unwrap_or_default())
        };
        let cases: Vec<String> = self.cases.iter().map(case).collect();
        write!(f, "{} (emulated, not timed)", cases.join("; "))
    }
}

impl CaseCounts {
    /// The candidate's instructions as a part of the reference's; `None` where the reference has none.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.reference > 0).then(|| self.candidate as f64 / self.reference as f64)
    }
}
