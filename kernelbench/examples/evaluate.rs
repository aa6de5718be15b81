//! Evaluates candidates for a problem and prints what came of each as JSON, a line a candidate:
//! `evaluate PYTHON DEVICE PROBLEM.py CANDIDATE.py...`
#![expect(clippy::print_stdout, reason = "a program")]

use metrics::{Statistic, Timing};
use serde_json::{Value, json};
use std::{path::Path, time::Instant};
use warpsmith_kernelbench::{
    Candidate, Failure, Fault, Suite, Task, Timed, TimingPlan, Workshop, load, native,
    torch::{Options, Torch},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).is_some_and(|first| first == "child") {
        native::child_main();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [python, device, problem, candidates @ ..] = arguments.as_slice() else {
        return Err("expected PYTHON DEVICE PROBLEM.py CANDIDATE.py...".into());
    };
    let mut options = Options::new(python.into(), device, std::env::current_exe()?, vec!["child".into()]);
    if let Ok(trials) = std::env::var("TRIALS") {
        options.trials = trials.parse()?;
    }
    options.own_user = std::env::var_os("SAME_USER").is_none();
    let repetitions = std::env::var("REPETITIONS").ok().map_or(Ok(20), |text| text.parse())?;
    let plan = TimingPlan { warmup: 2, repetitions, statistic: Statistic::Median };
    let start = Instant::now();
    let workshop = Torch::new(options)?;
    let task = load::task(Path::new(problem))?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let up = start.elapsed();
    let suite = Suite::of_task(&task);
    let baseline = runtime.block_on(workshop.prepare(&task, &suite, &plan))?;
    let reference = baseline.timings.first().map(|(_, timing)| times(timing));
    println!(
        "{}",
        json!({
            "problem": task.name, "machine": workshop.machine(), "facts": workshop.facts(), "labels": workshop.audit(&task)?,
            "confinement": workshop.confinement(&task)?, "reference": reference, "build": baseline.build,
            "seconds": {"start": up.as_secs_f64(), "prepare": start.elapsed().as_secs_f64() - up.as_secs_f64()},
        })
    );
    for path in candidates {
        let candidate = Candidate::new(std::fs::read_to_string(path)?);
        let (outcome, seconds) = runtime.block_on(evaluate(&workshop, &task, &suite, &plan, &candidate));
        let outcome = match outcome {
            Ok(Ok(timed)) => {
                let mut found = passed(&timed, &workshop.labels(&candidate.id()));
                found["passed"]["clocks"] = json!(workshop.clocks(&candidate.id()));
                found
            }
            Ok(Err(failure)) => json!({"failed": failure, "in words": failure.to_string()}),
            Err(fault) => json!({"fault": fault.to_string()}),
        };
        println!("{}", json!({"candidate": path, "outcome": outcome, "seconds": seconds}));
    }
    Ok(())
}

async fn evaluate(
    workshop: &Torch,
    task: &Task,
    suite: &Suite,
    plan: &TimingPlan,
    candidate: &Candidate,
) -> (Result<Result<Timed, Failure>, Fault>, Value) {
    let start = Instant::now();
    let built = workshop.build(task, candidate).await;
    let building = start.elapsed().as_secs_f64();
    let verified = match built {
        Ok(Ok(built)) => workshop.check(task, built, suite).await,
        Ok(Err(failure)) => Ok(Err(failure)),
        Err(fault) => Err(fault),
    };
    let checked = start.elapsed().as_secs_f64();
    let timed = match verified {
        Ok(Ok(verified)) => workshop.time(task, &verified, suite, plan).await,
        Ok(Err(failure)) => Ok(Err(failure)),
        Err(fault) => Err(fault),
    };
    let end = start.elapsed().as_secs_f64();
    let seconds = json!({
        "build": building, "check": checked - building, "time": end - checked,
    });
    (timed, seconds)
}

fn times(timing: &Timing) -> Value {
    json!({
        "median_ns": timing.typical_ns(Statistic::Median), "low_ns": timing.quantile_ns(0.05),
        "high_ns": timing.quantile_ns(0.95), "samples_ns": timing.samples_ns(),
    })
}

fn passed(timed: &Timed, labels: &[String]) -> Value {
    let case = timed.cases.first();
    json!({
        "passed": {
            "speedup": timed.speedup, "in words": timed.speedup.to_string(), "labels": labels,
            "reference": case.map(|case| times(&case.reference)), "candidate": case.map(|case| times(&case.candidate)),
            "floor_ns": case.and_then(|case| case.floor_ns),
        }
    })
}
