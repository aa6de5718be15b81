//! Evaluations: what came of a candidate.

use crate::result::{failure::Failure, label::Label};
use metrics::{Speedup, Statistic, Timing};
use serde::{Deserialize, Serialize};

/// What came of a candidate. A time exists only where the answer was right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evaluation {
    /// It failed.
    Failed(Failure),
    /// It was right on every case, and this fast.
    Passed(Timed),
}

impl Evaluation {
    /// The times of a candidate that passed.
    #[must_use]
    pub fn passed(&self) -> Option<&Timed> {
        match self {
            Self::Passed(timed) => Some(timed),
            Self::Failed(_) => None,
        }
    }
}

/// Times of a verified candidate beside its reference's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Each timed case.
    pub cases: Vec<CaseTiming>,
    /// Over all timed cases: the geometric mean of their ratios.
    pub speedup: Speedup,
    /// Which statistic the ratios are of.
    pub statistic: Statistic,
    /// What a reader is to know of the build, the check and the timing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
}

/// One case, timed: sample `i` of both was taken on the same inputs, one after the other, in random order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseTiming {
    /// The case's name.
    pub case: String,
    /// The reference's times.
    pub reference: Timing,
    /// The candidate's times.
    pub candidate: Timing,
    /// The ratio of the two.
    pub speedup: Speedup,
    /// The least time in which the best bandwidth measured here moves the inputs and outputs once, in nanoseconds.
    pub floor_ns: Option<f64>,
}

impl CaseTiming {
    /// The candidate's share of the roofline: the floor over its time, near 1 where memory is all that bounds it. `None`
    /// where no floor is known.
    #[must_use]
    pub fn roofline_share(&self, statistic: Statistic) -> Option<f64> {
        let time = self.candidate.typical_ns(statistic);
        self.floor_ns.filter(|_| time > 0.0).map(|floor| floor / time)
    }
}
