//! Where candidates are built and run: a machine, or a simulation of one.

use crate::{
    candidate::{Built, Candidate, Verified},
    certificate::Certificate,
    evaluation::Timed,
    failure::{Fault, Outcome},
    suite::Suite,
    task::Task,
};
use metrics::{Machine, Profile, Statistic, Timing};
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
}

/// Where candidates are built, checked, timed and profiled.
///
/// Every method's outer error is a [`Fault`]: the machine's doing. Deadlines are the workshop's own.
pub trait Workshop: Send + Sync + 'static {
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

    /// Rebuilds, checks and times a candidate anew, on the task's own cases and its final ones.
    fn certify(
        &self,
        task: &Task,
        candidate: &Candidate,
        plan: &TimingPlan,
    ) -> impl Future<Output = Result<Certificate, Fault>> + Send;
}
