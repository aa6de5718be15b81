//! A workshop with no compiler and no clock: what a candidate does stands in its text.
//!
//! A line with `simulate:` says it, in any comment: `us=50` (its time), `build-error`, `wrong`, `hang`, `crash`, `racy`
//! (right, but for a sanitizer), `refused` (fails only when certified), `fault` (the machine fails), `build_ms=20` and `run_ms=20` (really waits, by tokio's
//! clock), a counter's name with what a profiler reads under it (`dram__bytes.sum=4096`). A candidate without such a line takes 40 to 130 µs, by its hash; the reference takes 100 µs. The same text
//! always comes to the same numbers.

pub(crate) mod directive;
pub(crate) mod survey;

use crate::{
    hash::Hash,
    lease::Gate,
    result::{
        candidate::{Built, Candidate, Verified},
        certificate::{Certificate, Checked, Verdict},
        evaluation::{CaseTiming, Timed},
        failure::{Failure, Fault, Outcome},
        survey::Survey,
    },
    stage::{self, Stage},
    task::{
        ArgumentKind, Case, Source, Task, Transfer,
        signature::{ModuleValue, Signature},
        space::Bindings,
        suite::Suite,
    },
    workshop::{Baseline, Fits, Rebuilt, Step, TimingPlan, Workshop},
};
use directive::{Directive, Told, mismatch};
use metrics::{Arch, Fact, Kernel, Machine, MachineKind, Profile, Reading, Rung, Speedup, Timing};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

/// The reference's time.
const REFERENCE_US: f64 = 100.0;
/// How far a sample lies from the candidate's time at most, as a share of it.
const NOISE: f64 = 0.02;
/// The largest case that fits, in bytes.
const MEMORY: u64 = 1 << 30;
/// How many are checked side by side at most.
const BESIDE: usize = 4;
const BUILD: &str = "simulated: nothing is compiled";

/// A simulated machine.
#[derive(Debug)]
pub struct Simulated {
    machine: Machine,
    gate: Gate,
    building: Busy,
    checking: Busy,
    running: Busy,
    disturbed: AtomicUsize,
}

impl Default for Simulated {
    fn default() -> Self {
        Self {
            machine: machine(),
            gate: Gate::new(None, BESIDE),
            building: Busy::default(),
            checking: Busy::default(),
            running: Busy::default(),
            disturbed: AtomicUsize::new(0),
        }
    }
}

impl Simulated {
    /// A simulated machine that has done nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, which says that it has this architecture.
    #[must_use]
    pub fn on(arch: Arch) -> Self {
        Self { machine: Machine { arch, ..machine() }, ..Self::default() }
    }

    /// How many candidates were built at the same time, at most.
    #[must_use]
    pub fn most_building(&self) -> usize {
        self.building.most.load(SeqCst)
    }

    /// How many candidates were checked at the same time, at most.
    #[must_use]
    pub fn most_checking(&self) -> usize {
        self.checking.most.load(SeqCst)
    }

    /// How often one was checked while another was timed, profiled or certified: never where the lease is kept.
    #[must_use]
    pub fn disturbed(&self) -> usize {
        self.disturbed.load(SeqCst)
    }

    /// How many candidates were timed, profiled or certified at the same time, at most: 1 where the lease is kept.
    #[must_use]
    pub fn most_running(&self) -> usize {
        self.running.most.load(SeqCst)
    }

    /// How many builds were asked for.
    #[must_use]
    pub fn builds(&self) -> usize {
        self.building.ever.load(SeqCst)
    }
}

impl Workshop for Simulated {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn fits<'a>(&'a self, task: &'a Task, cases: &'a [Case]) -> Step<'a, Result<Fits, Fault>> {
        let fit = |case| match task.context().map_or(Ok(0), |context| context.bytes(case)) {
            Ok(bytes) if bytes <= MEMORY => Ok(bytes),
            Ok(bytes) => Err(format!("it takes {bytes} bytes, more than the {MEMORY} that a simulation lends")),
            Err(error) => Err(error.to_string()),
        };
        Box::pin(std::future::ready(Ok(cases.iter().map(fit).collect())))
    }

    fn prepare<'a>(
        &'a self,
        task: &'a Task,
        suite: &'a Suite,
        plan: &'a TimingPlan,
    ) -> Step<'a, Result<Baseline, Fault>> {
        let timing = |case: &String| (case.clone(), samples(REFERENCE_US, plan, &[&task.name, case, "baseline"]));
        // Of a problem more is known once its reference was opened.
        let input = ModuleValue { name: "x".into(), tensor: None, value: "simulated".into() };
        let inputs = task.problem().map(|_| input).into_iter().collect();
        let signature = Signature { inputs, ..Signature::default() };
        let timings = suite.timed.iter().map(timing).collect();
        let baseline = Baseline { signature, ..Baseline::new(timings, BUILD.into()) };
        Box::pin(async move {
            self.run_alone(Stage::Time, Duration::ZERO).await;
            Ok(baseline)
        })
    }

    fn build<'a>(&'a self, _: &'a Task, candidate: &'a Candidate) -> Step<'a, Outcome<Built>> {
        Box::pin(self.built(candidate))
    }

    fn check<'a>(&'a self, task: &'a Task, built: Built, suite: &'a Suite) -> Step<'a, Outcome<Verified>> {
        Box::pin(self.checked(task, built, suite))
    }

    fn sanitize<'a>(&'a self, _: &'a Task, verified: &'a Verified) -> Step<'a, Outcome<()>> {
        Box::pin(std::future::ready(Ok(Directive::of(verified.candidate()).race().map_or(Ok(()), Err))))
    }

    fn time<'a>(
        &'a self,
        _: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
        plan: &'a TimingPlan,
        _: f64,
    ) -> Step<'a, Outcome<Timed>> {
        Box::pin(async move {
            let directive = Directive::of(verified.candidate());
            self.run_alone(Stage::Time, directive.run).await;
            if directive.told == Some(Told::Disturbed) {
                return Err(Fault::Disturbed("the simulated machine was told to be busy".into()));
            }
            timed(verified.candidate(), suite, plan, "loop").map(Ok)
        })
    }

    fn profile<'a>(
        &'a self,
        _: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
    ) -> Step<'a, Result<Profile, Fault>> {
        Box::pin(async move {
            let directive = Directive::of(verified.candidate());
            self.run_alone(Stage::Replay, directive.run).await;
            Ok(profile(suite.timed.first().map_or("", String::as_str), &directive))
        })
    }

    fn survey<'a>(
        &'a self,
        _: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
    ) -> Step<'a, Result<Result<Survey, String>, Fault>> {
        Box::pin(async move {
            let directive = Directive::of(verified.candidate());
            self.run_alone(Stage::Replay, directive.run).await;
            let case = suite.timed.first().map_or("", String::as_str);
            Ok(survey::survey(case, &verified.candidate().id(), directive.us))
        })
    }

    /// A script stands for what it prints, with values where it has placeholders.
    fn print<'a>(&'a self, script: &'a str, bindings: &'a Bindings) -> Step<'a, Outcome<String>> {
        Box::pin(std::future::ready(Ok(Ok(Candidate::new(script).bound(bindings.clone()).text()))))
    }

    fn rebuild<'a>(&'a self, _: &'a Task, candidate: &'a Candidate) -> Step<'a, Result<Rebuilt, Fault>> {
        Box::pin(async move {
            self.building.during(Directive::of(candidate).build).await;
            Ok(Rebuilt { candidate: candidate.clone(), ticket: 0 })
        })
    }

    fn certify<'a>(
        &'a self,
        task: &'a Task,
        rebuilt: Rebuilt,
        plan: &'a TimingPlan,
    ) -> Step<'a, Result<Certificate, Fault>> {
        Box::pin(async move { self.certified(task, rebuilt.candidate, plan).await })
    }
}

impl Simulated {
    /// Is checked for this long.
    async fn run_beside(&self, time: Duration) {
        let _lease = self.gate.shared(0).await;
        let _stage = stage::begin(Stage::Check);
        self.disturbed.fetch_add(self.running.now.load(SeqCst), SeqCst);
        self.checking.during(time).await;
    }

    /// Is timed for this long.
    async fn run_alone(&self, stage: Stage, time: Duration) {
        let _lease = self.gate.exclusive().await;
        let _stage = stage::begin(stage);
        self.disturbed.fetch_add(self.checking.now.load(SeqCst), SeqCst);
        self.running.during(time).await;
    }

    async fn built(&self, candidate: &Candidate) -> Outcome<Built> {
        let directive = Directive::of(candidate);
        let building = stage::begin(Stage::Build);
        self.building.during(directive.build).await;
        drop(building);
        Ok(match directive.told {
            Some(Told::BuildError) => Err(Failure::Build { log: "kernel.cpp:1:1: error: told to fail".into() }),
            _ => Ok(Built { candidate: candidate.clone(), artifact: std::path::PathBuf::new() }),
        })
    }

    async fn checked(&self, task: &Task, built: Built, suite: &Suite) -> Outcome<Verified> {
        let directive = Directive::of(&built.candidate);
        self.run_beside(directive.run).await;
        if directive.told == Some(Told::Fault) {
            return Err(Fault::Machine("the simulated machine was told to fail".into()));
        }
        let case = suite.cases.first().map_or("", |case| &case.name);
        Ok(directive.failure(case, first_output(task)).map_or(Ok(Verified { built }), Err))
    }

    async fn certified(&self, task: &Task, candidate: Candidate, plan: &TimingPlan) -> Result<Certificate, Fault> {
        let candidate = &candidate;
        let directive = Directive::of(candidate);
        self.run_alone(Stage::Time, directive.run).await;
        let suite = Suite::of_task(task);
        let last = task.final_cases.last().or(task.cases.last()).map_or("", |case| &case.name);
        let failure = match directive.told {
            Some(Told::Refused) => Some(mismatch(last.to_owned(), first_output(task))),
            Some(Told::BuildError) => Some(Failure::Build { log: "told to fail".into() }),
            Some(Told::Racy) => directive.race(),
            _ => directive.failure(last, first_output(task)),
        };
        let verdict = match failure {
            Some(failure) => Verdict::Refused(failure),
            None => Verdict::Certified(timed(candidate, &suite, plan, "certificate")?),
        };
        let checked = Checked {
            what: "the candidate itself".into(),
            done: false,
            how: "this is a simulation: nothing was built, run or measured".into(),
            check: None,
        };
        let (candidate, machine) = (candidate.id(), self.machine.name.clone());
        Ok(Certificate { candidate, verdict, checked: vec![checked], build: BUILD.into(), machine })
    }
}

/// How many are at it, were at it at most, and were ever.
#[derive(Debug, Default)]
struct Busy {
    now: AtomicUsize,
    most: AtomicUsize,
    ever: AtomicUsize,
}

impl Busy {
    /// Is busy for this long, and gives others their turn in any case; a caller that gives up is counted out.
    async fn during(&self, time: Duration) {
        struct Leaving<'a>(&'a AtomicUsize);
        impl Drop for Leaving<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, SeqCst);
            }
        }
        self.ever.fetch_add(1, SeqCst);
        self.most.fetch_max(self.now.fetch_add(1, SeqCst) + 1, SeqCst);
        let _leaving = Leaving(&self.now);
        if time.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(time).await;
        }
    }
}

/// Samples around a time, the same for the same words.
fn samples(us: f64, plan: &TimingPlan, words: &[&str]) -> Timing {
    let seed = Hash::of(words.join("\n").as_bytes());
    let seed = u64::from_str_radix(seed.as_str().get(..16).unwrap_or("0"), 16).unwrap_or(0);
    let mut rng = StdRng::seed_from_u64(seed);
    Timing::of((0..plan.repetitions.max(1)).map(|_| us * 1000.0 * (1.0 + NOISE * rng.random_range(-1.0..1.0))))
}

fn timed(candidate: &Candidate, suite: &Suite, plan: &TimingPlan, purpose: &str) -> Result<Timed, Fault> {
    let (id, us) = (candidate.id(), Directive::of(candidate).us);
    let none = || Fault::Machine("the suite times no case".into());
    let case = |name: &String| {
        let reference = samples(REFERENCE_US, plan, &[id.as_str(), name, purpose, "reference"]);
        let candidate = samples(us, plan, &[id.as_str(), name, purpose, "candidate"]);
        let speedup = Speedup::over(&[(&reference, &candidate)], plan.statistic).ok_or_else(none)?;
        Ok(CaseTiming { case: name.clone(), reference, candidate, speedup, floor_ns: None, uncounted: 0.0 })
    };
    let cases = suite.timed.iter().map(case).collect::<Result<Vec<_>, Fault>>()?;
    let pairs: Vec<_> = cases.iter().map(|case| (&case.reference, &case.candidate)).collect();
    let speedup = Speedup::over(&pairs, plan.statistic).ok_or_else(none)?;
    Ok(Timed {
        cases,
        speedup,
        statistic: plan.statistic,
        labels: vec![],
        widened_by: Some(0.0),
        object: None,
        against: None,
    })
}

fn first_output(task: &Task) -> &str {
    let Source::Context(context) = &task.source else { return "output" };
    let is_output =
        |kind: &ArgumentKind| matches!(kind, ArgumentKind::Array { transfer, .. } if *transfer != Transfer::In);
    context.arguments.iter().find(|argument| is_output(&argument.kind)).map_or("", |argument| &argument.name)
}

fn machine() -> Machine {
    let fact = |name: &str, value: &str| Fact { name: name.into(), value: value.into() };
    Machine {
        kind: MachineKind::Simulated,
        name: "simulated machine".into(),
        arch: Arch::Cpu("simulated".into()),
        facts: vec![fact("cores", "1"), fact("vector extensions", "none: nothing is run here")],
        bandwidths: vec![],
        peak_flops: None,
    }
}

/// What was made up from the time, and as if a GPU's profiler had read it what the text says of counters.
fn profile(case: &str, directive: &Directive) -> Profile {
    let us = directive.us;
    let read = |(name, value): &(String, f64)| Reading::new(name, Some(*value), "", "as its text says");
    let readings: Vec<Reading> = directive.counters.iter().map(read).collect();
    let (counted, launches) = (!readings.is_empty(), Some(1));
    let kernel = Kernel { name: "simulated".into(), launches, share: Some(1.0), readings };
    Profile {
        rung: if counted { Rung::Ncu } else { Rung::TimingOnly },
        case: case.to_owned(),
        readings: vec![
            Reading::new("time", Some(us * 1000.0), "ns", "of one call, as its text says"),
            Reading::new("instructions per element", Some(us / 10.0), "", "made up from the time"),
            Reading::new("L1 misses", None, "", "not simulated"),
        ],
        kernels: if counted { vec![kernel] } else { vec![] },
        notes: vec!["simulated: no reading was measured".into()],
    }
}
