//! What does one evaluation cost, stage by stage, in a running program?
//!
//! `cargo bench -p warpsmith-kernelbench --bench evaluate_cost -- PYTHON DEVICE PROBLEM.py CANDIDATE.py...` opens the problem
//! and evaluates every candidate in turn: a line of JSON for the problem, one for each evaluation with what came of it and
//! the seconds of each stage, and at the end one with the median, the least and the most of each stage. Each is a new
//! candidate, also where a file is evaluated several times. Variables: `TIMES` (of each candidate, 1), `TRIALS` (5),
//! `REPETITIONS` (20), `WARMUP` (2), `PROFILE` (also profiled), `AHEAD=0` (no process waits under the profiler), `PAUSE_S`
//! (between evaluations, as a model's answer takes), `SAME_USER`; `RUST_LOG=warpsmith_kernelbench=trace` tells of every
//! request and of what a process under the profiler did when.
#![expect(clippy::print_stdout, reason = "a program")]

use metrics::{Profile, Statistic, Timing};
use serde_json::{Map, Value, json};
use std::{error::Error, path::Path, time::Duration, time::Instant};
use warpsmith_kernelbench::{
    Candidate, Failure, Fault, Outcome, Suite, Task, Timed, TimingPlan, Workshop, load, native,
    torch::{Options, Torch},
};

/// The stages of an evaluation, in order, and all of them together.
const STAGES: [&str; 5] = ["build", "check", "time", "profile", "together"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if arguments.first().is_some_and(|first| first == "child") {
        native::child_main();
    }
    let [python, device, problem, candidates @ ..] = arguments.as_slice() else {
        return Err("expected PYTHON DEVICE PROBLEM.py CANDIDATE.py...".into());
    };
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_env_filter(filter).init();
    let profiles = std::env::var_os("PROFILE").is_some();
    let mut options = Options::new(python.into(), device, std::env::current_exe()?, vec!["child".into()]);
    options.trials = setting("TRIALS", 5)?;
    options.own_user = std::env::var_os("SAME_USER").is_none();
    options.profile_ahead = profiles && setting("AHEAD", 1)? > 0;
    let (warmup, repetitions) = (setting("WARMUP", 2)?, setting("REPETITIONS", 20)?);
    let plan = TimingPlan { warmup, repetitions, statistic: Statistic::Median };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let start = Instant::now();
    let workshop = Torch::new(options)?;
    let task = load::task(Path::new(problem))?;
    let bench = Bench { workshop, suite: Suite::of_task(&task), task, plan, profiles };
    runtime.block_on(bench.open(start))?;
    let mut seconds = vec![];
    for (at, path) in (0..setting("TIMES", 1)?).flat_map(|_| candidates).enumerate() {
        std::thread::sleep(Duration::from_secs(setting("PAUSE_S", 0)?.into()));
        let source = std::fs::read_to_string(path)?;
        let candidate = Candidate::new(format!("{source}\n# evaluation {at} of {}\n", std::process::id()));
        let mut clock = Clock::new();
        let outcome = runtime.block_on(bench.evaluate(&candidate, &mut clock));
        seconds.push(clock.end());
        println!("{}", bench.said(path, &candidate, &outcome, &seconds[at]));
        bench.workshop.let_go(&candidate.id());
    }
    println!("{}", json!({"stages": summary(&seconds), "evaluations": seconds.len()}));
    Ok(())
}

fn setting(name: &str, otherwise: u32) -> Result<u32, Box<dyn Error>> {
    std::env::var(name).map_or(Ok(otherwise), |text| text.parse().map_err(|e| format!("{name}: {e}").into()))
}

struct Bench {
    workshop: Torch,
    task: Task,
    suite: Suite,
    plan: TimingPlan,
    profiles: bool,
}

/// What came of a candidate that passed.
type Passed = (Timed, Option<Profile>);

impl Bench {
    async fn open(&self, start: Instant) -> Result<(), Fault> {
        let up = start.elapsed();
        let baseline = self.workshop.prepare(&self.task, &self.suite, &self.plan).await?;
        let ready = start.elapsed();
        let reference = baseline.timings.first().map(|(_, timing)| times(timing));
        let workshop = &self.workshop;
        let said = json!({
            "problem": self.task.name, "machine": workshop.machine(), "facts": workshop.facts(), "labels": baseline.labels,
            "confinement": workshop.confinement(&self.task)?, "reference": reference, "build": baseline.build,
            "seconds": {"start": up.as_secs_f64(), "prepare": ready.saturating_sub(up).as_secs_f64()},
        });
        println!("{said}");
        Ok(())
    }

    async fn evaluate(&self, candidate: &Candidate, clock: &mut Clock) -> Outcome<Passed> {
        let built = self.workshop.build(&self.task, candidate).await?;
        clock.note("build");
        let verified = match built {
            Ok(built) => self.workshop.check(&self.task, built, &self.suite).await?,
            Err(failure) => return Ok(Err(failure)),
        };
        clock.note("check");
        let verified = match verified {
            Ok(verified) => verified,
            Err(failure) => return Ok(Err(failure)),
        };
        let timed = self.workshop.time(&self.task, &verified, &self.suite, &self.plan).await?;
        clock.note("time");
        let timed = match timed {
            Ok(timed) => timed,
            Err(failure) => return Ok(Err(failure)),
        };
        if !self.profiles {
            return Ok(Ok((timed, None)));
        }
        let profile = self.workshop.profile(&self.task, &verified, &self.suite).await?;
        clock.note("profile");
        Ok(Ok((timed, Some(profile))))
    }

    fn said(
        &self,
        path: &str,
        candidate: &Candidate,
        outcome: &Outcome<Passed>,
        seconds: &Map<String, Value>,
    ) -> Value {
        let what = match outcome {
            Ok(Ok((timed, profile))) => self.passed(candidate, timed, profile.as_ref()),
            Ok(Err(failure)) => failed(failure),
            Err(fault) => json!({"fault": fault.to_string()}),
        };
        json!({"candidate": path, "outcome": what, "seconds": seconds})
    }

    fn passed(&self, candidate: &Candidate, timed: &Timed, profile: Option<&Profile>) -> Value {
        let (case, id) = (timed.cases.first(), candidate.id());
        let read = |profile: &Profile| {
            let kernels: Vec<Value> =
                profile.kernels.iter().map(|k| json!([k.name, k.readings.len(), k.share])).collect();
            json!({"rung": profile.rung, "kernels": kernels, "notes": profile.notes})
        };
        json!({
            "passed": {
                "speedup": timed.speedup, "in words": timed.speedup.to_string(), "labels": self.workshop.labels(&id),
                "reference": case.map(|case| times(&case.reference)), "candidate": case.map(|case| times(&case.candidate)),
                "floor_ns": case.and_then(|case| case.floor_ns), "clocks": self.workshop.clocks(&id),
                "profile": profile.map(read),
            }
        })
    }
}

fn failed(failure: &Failure) -> Value {
    json!({"failed": failure, "in words": failure.to_string()})
}

fn times(timing: &Timing) -> Value {
    json!({
        "median_ns": timing.typical_ns(Statistic::Median), "low_ns": timing.quantile_ns(0.05),
        "high_ns": timing.quantile_ns(0.95), "samples_ns": timing.samples_ns(),
    })
}

/// What each stage took, in seconds.
struct Clock {
    start: Instant,
    last: Instant,
    found: Map<String, Value>,
}

impl Clock {
    fn new() -> Self {
        let start = Instant::now();
        Self { start, last: start, found: Map::new() }
    }

    fn note(&mut self, stage: &str) {
        self.found.insert(stage.to_owned(), json!(self.last.elapsed().as_secs_f64()));
        self.last = Instant::now();
    }

    fn end(mut self) -> Map<String, Value> {
        self.found.insert("together".to_owned(), json!(self.start.elapsed().as_secs_f64()));
        self.found
    }
}

/// The median, the least and the most of each stage, of the evaluations that came so far.
fn summary(seconds: &[Map<String, Value>]) -> Value {
    let mut all = Map::new();
    for stage in STAGES {
        let mut found: Vec<f64> = seconds.iter().filter_map(|one| one.get(stage)?.as_f64()).collect();
        found.sort_by(f64::total_cmp);
        if let (Some(least), Some(most)) = (found.first(), found.last()) {
            all.insert(stage.to_owned(), json!({"median": Statistic::Median.of(&found), "least": least, "most": most}));
        }
    }
    Value::Object(all)
}
