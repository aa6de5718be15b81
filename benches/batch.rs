//! How close does a batch come to the time that it must take at least, and what does it take beside that?
//!
//! `cargo bench --bench batch` prints a line of JSON each for 250 tasks on one simulated GPU and 1,000 on eight, ten rounds
//! each: replies after a log-normal time around 30 s, 40 under way at once, evaluations of 3 s. The clock jumps to whatever
//! comes next, so that hours of it pass in a minute; what the program itself takes is measured for real, with the record on
//! disk. The goals: at most 5 % above the bound, below 300 MB, and below 2 % of one core of the time that passed.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its numbers, and stops where one is missing"
)]

#[path = "../tests/crowd/mod.rs"]
mod crowd;

use crowd::{Crowd, HALF, Slow, on_a_jumping_clock, work};
use std::{process::Command, sync::Arc};

/// Names a scenario for the process that is to run it, so that its memory is its own.
const SCENARIO: &str = "WARPSMITH_BENCH_TASKS";

fn crowd_of(tasks: usize) -> Crowd {
    let gpus = if tasks > 250 { 8 } else { 1 };
    // As many as the program takes by itself: twice the calls, and eight a GPU.
    Crowd { tasks, rounds: 10, gpus, calls: 40, at_once: 80 + 8 * gpus, repetitions: 100 }
}

/// The least time, in seconds, that these draws allow: the model's work over its width, the GPUs' work over their number,
/// or the longest task on its own.
fn bound(crowd: &Crowd, model: &Slow) -> f64 {
    let drawn = model.drawn();
    let half = HALF.as_secs_f64();
    // Each round is a check and a timing, and the certificate takes half of that.
    let evaluations = half * f64::from(2 * crowd.rounds + 1);
    let of_model = drawn.values().sum::<f64>() / crowd.calls as f64;
    let of_gpus = evaluations * crowd.tasks as f64 / crowd.gpus as f64;
    let longest = drawn.values().fold(0.0, |longest: f64, own| longest.max(own + evaluations));
    of_model.max(of_gpus).max(longest)
}

/// Processor time of this process so far, in seconds.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

/// The most memory that this process had, in MB.
fn memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0 / 1e6
}

fn scenario(tasks: usize) {
    let (crowd, folder) = (crowd_of(tasks), tempfile::tempdir().unwrap());
    let model = Arc::new(Slow::new(crowd.calls));
    let (outcome, took, _) = on_a_jumping_clock(work(crowd, model.clone(), &folder.path().join("run")));
    assert!(outcome.broke_off.is_empty() && outcome.left == 0, "{outcome:?}");
    let (bound, cpu) = (bound(&crowd, &model), cpu_s());
    let told = serde_json::json!({
        "tasks": tasks, "rounds": crowd.rounds, "gpus": crowd.gpus, "calls": crowd.calls, "at_once": crowd.at_once,
        "took_s": took.round(), "bound_s": bound.round(), "above_bound_percent": (took / bound - 1.0) * 100.0,
        "memory_mb": memory_mb(), "cpu_s": cpu, "cpu_percent_of_a_core": cpu / took * 100.0,
    });
    println!("{told}");
}

fn main() {
    if let Some(tasks) = std::env::var(SCENARIO).ok().and_then(|tasks| tasks.parse().ok()) {
        return scenario(tasks);
    }
    for tasks in ["250", "1000"] {
        let mut again = Command::new(std::env::current_exe().unwrap());
        assert!(again.env(SCENARIO, tasks).status().unwrap().success());
    }
}
