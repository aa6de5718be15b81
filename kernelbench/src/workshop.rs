//! Where candidates are built and run: a machine, or a simulation of one.

pub(crate) mod absent;
pub(crate) mod recorded;
pub(crate) mod simulated;

use crate::{
    result::{
        candidate::{Built, Candidate, Verified},
        certificate::Certificate,
        evaluation::Timed,
        failure::{Fault, Outcome},
        survey::Survey,
    },
    task::{Task, suite::Suite},
};
use metrics::{Interval, Machine, Profile, Speedup, Statistic, Timing};
use serde::{Deserialize, Serialize};

/// How a timing is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TimingPlan {
    /// Calls of each before the first sample.
    pub warmup: u32,
    /// Samples of each.
    pub repetitions: u32,
    /// What stands for the samples.
    pub statistic: Statistic,
}

/// The reference, built, checked against itself and timed, before any candidate is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// The reference's own times, by timed case.
    pub timings: Vec<(String, Timing)>,
    /// The compiler and its flags, as a command line.
    pub build: String,
    /// The reference run in other ways, timed beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// What is known against the task: what would pass for its output and is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

impl Baseline {
    /// The reference's times and how it was built, and nothing else.
    #[must_use]
    pub fn new(timings: Vec<(String, Timing)>, build: String) -> Self {
        Self { timings, build, variants: vec![], labels: vec![] }
    }
}

/// The reference run in another way, such as compiled by torch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// What it is called.
    pub name: String,
    /// Its times; `None` where it does not work.
    pub timing: Option<Timing>,
    /// Over the reference, taken in pairs.
    pub speedup: Option<Speedup>,
    /// Why it has no times; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Variant {
    /// A candidate's speedup over this, from its speedup over the reference: both ends of both intervals at their worst, for
    /// the two were not taken in pairs.
    #[must_use]
    pub fn against(&self, candidate: &Speedup) -> Option<Speedup> {
        let own = self.speedup?;
        let (low, high) = (candidate.interval.low / own.interval.high, candidate.interval.high / own.interval.low);
        Some(Speedup { ratio: candidate.ratio / own.ratio, interval: Interval { low, high } })
    }
}

/// Where candidates are built, checked, timed and profiled.
///
/// Every method's outer error is a [`Fault`]: the machine's doing. Deadlines are the workshop's own.
pub trait Workshop: Send + Sync + 'static {
    /// A candidate that was built anew, from its text alone, to be certified; or the failure to, which its certificate says.
    type Rebuilt: Send + 'static;

    /// The machine that candidates run on.
    fn machine(&self) -> &Machine;

    /// The shapes that fit this machine's limits, of those proposed, each with the bytes it takes; the others with the
    /// reason why not.
    fn fits(&self, task: &Task, cases: &[crate::task::Case]) -> Vec<Result<u64, String>>;

    /// Builds, checks and times the reference.
    fn prepare(
        &self,
        task: &Task,
        suite: &Suite,
        plan: &TimingPlan,
    ) -> impl Future<Output = Result<Baseline, Fault>> + Send;

    /// Compiles. Needs no lease.
    fn build(&self, task: &Task, candidate: &Candidate) -> impl Future<Output = Outcome<Built>> + Send;

    /// Compares with the reference on every case of the suite.
    fn check(&self, task: &Task, built: Built, suite: &Suite) -> impl Future<Output = Outcome<Verified>> + Send;

    /// Times reference and candidate, interleaved. What the timed calls put out is checked too, so this can fail.
    fn time(
        &self,
        task: &Task,
        verified: &Verified,
        suite: &Suite,
        plan: &TimingPlan,
    ) -> impl Future<Output = Outcome<Timed>> + Send;

    /// Profiles one timed case.
    fn profile(
        &self,
        task: &Task,
        verified: &Verified,
        suite: &Suite,
    ) -> impl Future<Output = Result<Profile, Fault>> + Send;

    /// Reads everything that a profiler here reads of each launch of one timed case; in words why there is nothing to be had.
    fn survey(
        &self,
        task: &Task,
        verified: &Verified,
        suite: &Suite,
    ) -> impl Future<Output = Result<Result<Survey, String>, Fault>> + Send {
        let _ = (task, verified, suite);
        async { Ok(Err("no profiler of this workshop reads everything: only kernels in CUDA are surveyed".to_owned())) }
    }

    /// Builds a candidate from its text alone, by the stock toolchain, in an empty folder. Needs no lease.
    fn rebuild(&self, task: &Task, candidate: &Candidate) -> impl Future<Output = Result<Self::Rebuilt, Fault>> + Send;

    /// Checks and times what was built anew, on the task's own cases and its final ones.
    fn certify(
        &self,
        task: &Task,
        rebuilt: Self::Rebuilt,
        plan: &TimingPlan,
    ) -> impl Future<Output = Result<Certificate, Fault>> + Send;
}
