//! Evaluates candidates for a problem or a kernel context in CUDA and prints what came of each as JSON, a line a candidate:
//! `evaluate PYTHON DEVICE PROBLEM.py CANDIDATE.py...`, or `evaluate - cuda:0 CONTEXT CANDIDATE.cu...`
//!
//! `REPETITIONS` and `TRIALS` set how often, else as policies do; with `PROFILE=1` each is profiled too (with `AHEAD=0`, by no process that waits
//! for it), and `PAUSE_S` passes before each, as a model would take to write it. With `TIMES` each is evaluated so often, as a
//! new candidate each time, and the last line has the median, the least and the most of what each stage took, in seconds.
//! `BASELINES=compile,max-autotune` times the reference as torch compiles it, beside.
//! `RUST_LOG=warpsmith_kernelbench=trace` tells of every request and of what a process under the profiler did when.
#![expect(clippy::print_stdout, reason = "a program")]

use metrics::{Statistic, Timing};
use serde_json::{Value, json};
use std::{
    path::Path,
    time::{Duration, Instant},
};
use warpsmith_kernelbench::{
    Candidate, CandidateId, CaseTiming, Failure, Fault, Suite, Task, Timed, TimingPlan, Workshop,
    cuda::{self, Cuda},
    load, native,
    torch::{Mode, Options, Torch},
};

/// The stages of an evaluation, in order, and all of them together.
const STAGES: [&str; 5] = ["build", "check", "time", "profile", "together"];

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).is_some_and(|first| first == "child") {
        native::child_main();
    }
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let asked = std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok());
    let level = asked.unwrap_or(tracing_subscriber::filter::LevelFilter::ERROR);
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_max_level(level).init();
    let [python, device, problem, candidates @ ..] = arguments.as_slice() else {
        return Err("expected PYTHON DEVICE PROBLEM.py CANDIDATE.py...".into());
    };
    let repetitions = std::env::var("REPETITIONS").ok().map_or(Ok(100), |text| text.parse())?;
    let plan = TimingPlan::median_of(20, repetitions);
    let task = load::task(Path::new(problem))?;
    let start = Instant::now();
    if task.problem().is_none() {
        let cache = std::env::temp_dir().join("warpsmith-evaluate");
        let workshop = Cuda::new(cuda::Options::new(std::env::current_exe()?, vec!["child".into()], cache))?;
        let up = start.elapsed();
        let clocks = |id: &CandidateId| json!(workshop.remarks(id));
        return each(&workshop, &task, &plan, candidates, up, &json!({}), clocks);
    }
    let mut options = Options::new(python.into(), device, std::env::current_exe()?, vec!["child".into()]);
    if let Ok(trials) = std::env::var("TRIALS") {
        options.trials = trials.parse()?;
    }
    options.own_user = std::env::var_os("SAME_USER").is_none();
    let beside = std::env::var("BASELINES").unwrap_or_default();
    options.baselines =
        Mode::NAMED.iter().filter(|(name, _)| beside.split(',').any(|b| b == *name)).map(|(_, m)| *m).collect();
    let ahead = std::env::var("AHEAD").ok().is_none_or(|ahead| ahead != "0");
    options.profile_ahead = ahead && std::env::var_os("PROFILE").is_some();
    let workshop = Torch::new(options)?;
    let up = start.elapsed();
    let known = json!({
        "facts": workshop.facts(), "labels": workshop.audit(&task)?, "confinement": workshop.confinement(&task)?,
    });
    let clocks = |id: &CandidateId| json!(workshop.remarks(id));
    each(&workshop, &task, &plan, candidates, up, &known, clocks)
}

/// Evaluates one after the other; `clocks` says how a candidate's time came about.
fn each(
    workshop: &dyn Workshop,
    task: &Task,
    plan: &TimingPlan,
    candidates: &[String],
    up: Duration,
    known: &Value,
    clocks: impl Fn(&CandidateId) -> Value,
) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let suite = Suite::of_task(task);
    let start = Instant::now();
    let baseline = runtime.block_on(workshop.prepare(task, &suite, plan))?;
    let reference = baseline.timings.first().map(|(_, timing)| times(timing));
    let mut head = json!({
        "problem": task.name, "machine": workshop.machine(), "reference": reference, "build": baseline.build, "baselines": baseline.variants,
        "seconds": {"start": up.as_secs_f64(), "prepare": start.elapsed().as_secs_f64()},
    });
    for (name, value) in known.as_object().into_iter().flatten() {
        head[name] = value.clone();
    }
    println!("{head}");
    let pause = std::env::var("PAUSE_S").ok().map_or(Ok(0.0), |text| text.parse())?;
    let turns = std::env::var("TIMES").ok().map(|text| text.parse::<usize>()).transpose()?;
    let mut spent = vec![];
    for (at, path) in (0..turns.unwrap_or(1)).flat_map(|_| candidates).enumerate() {
        std::thread::sleep(Duration::from_secs_f64(pause));
        let mark = if task.problem().is_some() { "#" } else { "//" };
        let source = std::fs::read_to_string(path)?;
        let mark = turns.map_or(String::new(), |_| format!("\n{mark} evaluation {at} of {}\n", std::process::id()));
        let candidate = Candidate::new(source + &mark);
        let (outcome, seconds, profile) = runtime.block_on(evaluate(workshop, task, &suite, plan, &candidate));
        let outcome = match outcome {
            Ok(Ok(timed)) => {
                let mut found = passed(&timed);
                found["passed"]["clocks"] = clocks(&candidate.id());
                found
            }
            Ok(Err(failure)) => json!({"failed": failure, "in words": failure.to_string()}),
            Err(fault) => json!({"fault": fault.to_string()}),
        };
        println!("{}", json!({"candidate": path, "outcome": outcome, "seconds": seconds, "profile": profile}));
        spent.push(seconds);
    }
    if turns.is_some() {
        println!("{}", json!({"stages": summary(&spent), "evaluations": spent.len()}));
    }
    Ok(())
}

/// The median, the least and the most of each stage, of the evaluations that came so far.
fn summary(seconds: &[Value]) -> Value {
    let mut all = json!({});
    for stage in STAGES {
        let together = |one: &Value| one.as_object().map(|one| one.values().filter_map(Value::as_f64).sum());
        let of = |one: &Value| if stage == "together" { together(one) } else { one[stage].as_f64() };
        let mut found: Vec<f64> = seconds.iter().filter_map(of).collect();
        found.sort_by(f64::total_cmp);
        if let (Some(least), Some(most)) = (found.first(), found.last()) {
            all[stage] = json!({"median": Statistic::Median.of(&found), "least": least, "most": most});
        }
    }
    all
}

async fn evaluate(
    workshop: &dyn Workshop,
    task: &Task,
    suite: &Suite,
    plan: &TimingPlan,
    candidate: &Candidate,
) -> (Result<Result<Timed, Failure>, Fault>, Value, Value) {
    let start = Instant::now();
    let built = workshop.build(task, candidate).await;
    let building = start.elapsed().as_secs_f64();
    let verified = match built {
        Ok(Ok(built)) => workshop.check(task, built, suite).await,
        Ok(Err(failure)) => Ok(Err(failure)),
        Err(fault) => Err(fault),
    };
    let checked = start.elapsed().as_secs_f64();
    let (timed, verified) = match verified {
        Ok(Ok(verified)) => (workshop.time(task, &verified, suite, plan, 0.0).await, Some(verified)),
        Ok(Err(failure)) => (Ok(Err(failure)), None),
        Err(fault) => (Err(fault), None),
    };
    let end = start.elapsed().as_secs_f64();
    let mut seconds = json!({"build": building, "check": checked - building, "time": end - checked});
    let mut profile = Value::Null;
    if let (Ok(Ok(_)), Some(verified), Some(_)) = (&timed, &verified, std::env::var_os("PROFILE")) {
        let taken = workshop.profile(task, verified, suite).await;
        seconds["profile"] = json!(start.elapsed().as_secs_f64() - end);
        profile = taken.map_or_else(|fault| json!(fault.to_string()), |profile| json!(profile));
    }
    (timed, seconds, profile)
}

fn times(timing: &Timing) -> Value {
    json!({
        "median_ns": timing.typical_ns(Statistic::Median), "low_ns": timing.quantile_ns(0.05),
        "high_ns": timing.quantile_ns(0.95), "samples_ns": timing.samples_ns(),
    })
}

fn passed(timed: &Timed) -> Value {
    let case = |case: &CaseTiming| {
        json!({
            "case": case.case, "speedup": case.speedup, "reference": times(&case.reference),
            "candidate": times(&case.candidate), "floor_ns": case.floor_ns,
        })
    };
    let mut passed = match timed.cases.as_slice() {
        [one] => case(one),
        several => json!({"cases": several.iter().map(case).collect::<Vec<_>>()}),
    };
    passed["speedup"] = json!(timed.speedup);
    passed["in words"] = json!(timed.speedup.to_string());
    passed["labels"] = json!(timed.labels);
    json!({"passed": passed})
}
