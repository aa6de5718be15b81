//! The port to the machine: where candidates are built, checked, timed and profiled.
//!
//! A workshop is asked for a step at a time, and boxed, so that nobody who uses one chooses a backend by `if`.

pub(crate) mod absent;
pub(crate) mod compiled;
pub(crate) mod elsewhere;
pub(crate) mod emulated;
pub(crate) mod job;
pub(crate) mod recorded;
pub(crate) mod search;
pub(crate) mod simulated;
pub(crate) mod tuner;

use crate::{
    result::{
        candidate::{Built, Candidate, Verified},
        certificate::Certificate,
        evaluation::{Evaluation, Timed},
        failure::{Fault, Outcome},
        label::Label,
        survey::Survey,
    },
    stage,
    task::{Case, Task, signature::Signature, space::Bindings, suite::Suite},
};
use metrics::{Machine, Profile, Speedup, Statistic, Timing};
use serde::{Deserialize, Serialize};
use std::pin::Pin;

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
    /// Pairs of processes that the samples are spread over; as many as the backend thinks right where it is `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Whether what it finds only ranks the configurations of a search: then they are compared briefly too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub glance: bool,
}

impl TimingPlan {
    /// The fewest samples that a person may ask for: one does not tell how far off it may be.
    pub const FEWEST: u32 = 2;

    /// A plan of so many warm-ups and samples, of which the median stands for all.
    #[must_use]
    pub const fn median_of(warmup: u32, repetitions: u32) -> Self {
        Self { warmup, repetitions, statistic: Statistic::Median, processes: None, glance: false }
    }
}

/// The reference, built, checked against itself and timed, before any candidate is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// The reference's own times, by timed case.
    pub timings: Vec<(String, Timing)>,
    /// The compiler and its flags, as a command line.
    pub build: String,
    /// The reference's speedup over itself in another process: 1, but for what differs between processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_itself: Option<Speedup>,
    /// The name of the baseline that stands in the reference's place: these times are its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// The reference run in other ways, timed beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// What is known against the task: what would pass for its output and is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
    /// What a problem's module is constructed with, called with, and gives back.
    #[serde(default, skip_serializing_if = "Signature::is_empty")]
    pub signature: Signature,
}

impl Baseline {
    /// The reference's times and how it was built, and nothing else.
    #[must_use]
    pub fn new(timings: Vec<(String, Timing)>, build: String) -> Self {
        let (variants, labels, signature) = (vec![], vec![], Signature::default());
        Self { timings, build, over_itself: None, against: None, variants, labels, signature }
    }

    /// What speedups are over: "the reference", or the name of a baseline.
    #[must_use]
    pub fn over(&self) -> &str {
        self.against.as_deref().unwrap_or("the reference")
    }

    /// By what part the reference may differ from itself in another process: how far its interval over itself reaches from 1.
    /// [`Speedup::of_itself`] says what an interval is wider by for it.
    #[must_use]
    pub fn self_difference(&self) -> f64 {
        let Some(Speedup { interval, .. }) = self.over_itself else { return 0.0 };
        (interval.high - 1.0).max(1.0 / interval.low - 1.0).max(0.0)
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
    /// A candidate's speedup over this, from its speedup over the reference.
    #[must_use]
    pub fn against(&self, candidate: &Speedup) -> Option<Speedup> {
        self.speedup.map(|own| candidate.beside(&own))
    }
}

/// The bytes that each of some shapes takes, or why it does not fit.
pub type Fits = Vec<Result<u64, String>>;

/// A step that is under way.
pub type Step<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A step that blocks, on a thread of its own, in whose stages it is recorded.
pub(crate) fn blocking<'a, T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Step<'a, Result<T, Fault>> {
    Box::pin(async move {
        let recorder = stage::recorder();
        let done = tokio::task::spawn_blocking(move || stage::on_behalf_of(recorder, work)).await;
        done.map_err(|e| Fault::Machine(format!("the workshop's thread broke: {e}")))?
    })
}

/// A candidate that was built again from its text alone, to be certified: a ticket for what its workshop holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rebuilt {
    /// Which candidate.
    pub candidate: Candidate,
    /// What its workshop calls the build.
    pub ticket: u64,
}

/// Where candidates are built, checked, timed and profiled.
///
/// Every step's outer error is a [`Fault`]: the machine's doing. Deadlines are the workshop's own.
pub trait Workshop: Send + Sync + 'static {
    /// The machine that candidates run on.
    fn machine(&self) -> &Machine;

    /// The shapes that fit this machine's limits, of those proposed, each with the bytes it takes; the others with the
    /// reason why not.
    fn fits<'a>(&'a self, task: &'a Task, cases: &'a [Case]) -> Step<'a, Result<Fits, Fault>>;

    /// This workshop, where it is on other hosts and whole steps are asked of it; `None` where steps are taken one by one.
    fn elsewhere(&self) -> Option<&elsewhere::Elsewhere> {
        None
    }

    /// Starts in the background what a task will need, where that takes long; what goes wrong is said where it is asked for.
    fn open_ahead(&self, task: &Task) {
        let _ = task;
    }

    /// Builds, checks and times the reference.
    fn prepare<'a>(
        &'a self,
        task: &'a Task,
        suite: &'a Suite,
        plan: &'a TimingPlan,
    ) -> Step<'a, Result<Baseline, Fault>>;

    /// Compiles. Needs no lease.
    fn build<'a>(&'a self, task: &'a Task, candidate: &'a Candidate) -> Step<'a, Outcome<Built>>;

    /// Compares with the reference on every case of the suite.
    fn check<'a>(&'a self, task: &'a Task, built: Built, suite: &'a Suite) -> Step<'a, Outcome<Verified>>;

    /// Runs a candidate that is right under the sanitizers that are here; what they find is its failure. Nothing is looked for
    /// where there is none.
    fn sanitize<'a>(&'a self, task: &'a Task, verified: &'a Verified) -> Step<'a, Outcome<()>> {
        let _ = (task, verified);
        Box::pin(std::future::ready(Ok(Ok(()))))
    }

    /// Times reference and candidate, interleaved. What the timed calls put out is checked too, so this can fail.
    /// `self_difference` is by what part the reference may differ from itself ([`Baseline::self_difference`]).
    fn time<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
        plan: &'a TimingPlan,
        self_difference: f64,
    ) -> Step<'a, Outcome<Timed>>;

    /// What there is to be said of a candidate that is right: its times, or where that is all that is known here, its
    /// instructions.
    fn measure<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
        plan: &'a TimingPlan,
        self_difference: f64,
    ) -> Step<'a, Result<Evaluation, Fault>> {
        Box::pin(async move {
            let timed = self.time(task, verified, suite, plan, self_difference).await?;
            Ok(timed.map_or_else(Evaluation::Failed, Evaluation::Passed))
        })
    }

    /// Looks at a configuration of a search: compares it briefly on every case, and times it for a ranking. What a brief look
    /// finds wrong is checked in full before it counts; what is ranked first is examined in full by whoever searches.
    fn glance<'a>(
        &'a self,
        task: &'a Task,
        built: Built,
        suite: &'a Suite,
        plan: &'a TimingPlan,
        self_difference: f64,
    ) -> Step<'a, Result<Evaluation, Fault>> {
        Box::pin(async move {
            let verified = match self.check(task, built, suite).await? {
                Ok(verified) => verified,
                Err(failure) => return Ok(Evaluation::Failed(failure)),
            };
            self.measure(task, &verified, suite, plan, self_difference).await
        })
    }

    /// Profiles one timed case.
    fn profile<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
    ) -> Step<'a, Result<Profile, Fault>>;

    /// Reads everything that a profiler here reads of each launch of one timed case; in words why there is nothing to be had.
    fn survey<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
    ) -> Step<'a, Result<Result<Survey, String>, Fault>> {
        let _ = (task, verified, suite);
        let why = "no profiler of this workshop reads everything: only kernels in CUDA are surveyed";
        Box::pin(std::future::ready(Ok(Err(why.to_owned()))))
    }

    /// What a script prints where its parameters have these values: the primitives of a generated operator. Needs no lease.
    fn print<'a>(&'a self, script: &'a str, bindings: &'a Bindings) -> Step<'a, Outcome<String>> {
        let _ = (script, bindings);
        let why = "this workshop runs no scripts: only kernels in C and C++ take primitives that a script prints";
        Box::pin(std::future::ready(Err(Fault::Absent(why.to_owned()))))
    }

    /// Builds a candidate from its text alone, by the stock toolchain, in an empty folder. Needs no lease.
    fn rebuild<'a>(&'a self, task: &'a Task, candidate: &'a Candidate) -> Step<'a, Result<Rebuilt, Fault>>;

    /// Checks and times what was built again, on the task's own cases and its final ones.
    fn certify<'a>(
        &'a self,
        task: &'a Task,
        rebuilt: Rebuilt,
        plan: &'a TimingPlan,
    ) -> Step<'a, Result<Certificate, Fault>>;

    /// Everything that an evaluation does: builds, checks and times.
    fn evaluate<'a>(
        &'a self,
        task: &'a Task,
        candidate: &'a Candidate,
        suite: &'a Suite,
        plan: &'a TimingPlan,
    ) -> Step<'a, Result<Evaluation, Fault>> {
        Box::pin(async move {
            let built = match self.build(task, candidate).await? {
                Ok(built) => built,
                Err(failure) => return Ok(Evaluation::Failed(failure)),
            };
            let verified = match self.check(task, built, suite).await? {
                Ok(verified) => verified,
                Err(failure) => return Ok(Evaluation::Failed(failure)),
            };
            self.measure(task, &verified, suite, plan, 0.0).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::Interval;

    #[test]
    fn a_reference_reaches_from_itself_as_far_as_the_further_end_of_its_interval_whether_it_holds_1_or_not() {
        let over_itself = |low, high| Some(Speedup { ratio: 1.0, interval: Interval { low, high } });
        let of = |over_itself| Baseline { over_itself, ..Baseline::new(vec![], String::new()) }.self_difference();
        assert!((of(over_itself(0.72, 1.69)) - 0.69).abs() < 1e-9);
        assert!((of(over_itself(0.8, 0.9)) - 0.25).abs() < 1e-9);
        assert!(of(None).abs() < 1e-12);
    }
}
