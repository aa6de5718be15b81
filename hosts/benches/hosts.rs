//! What does carrying cost? Tasks on simulated devices of several worker processes, beside what their work takes at least.
//!
//! `WARPSMITH_NATS=.../nats-server cargo bench -p warpsmith-hosts --bench hosts -- [TASKS [WORKERS [DEVICES [MS [JOBS]]]]]`,
//! 1,000 tasks on eight workers of eight devices with two jobs each where nothing is said. MS is what timing a candidate takes,
//! and certifying it: 400 shows what carrying costs, 3000 is what a problem takes (docs/results/cost.md).
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench that cannot go on has failed, and prints")]

#[path = "../tests/bed/mod.rs"]
mod bed;

use bed::{Bed, ended, started};
use std::{collections::BTreeMap, fs, time::Instant};

/// What a candidate takes to be built, in milliseconds.
const BUILD_MS: usize = 200;
/// The same to be checked, timed and certified, each, where nothing is said.
const RUN_MS: usize = 400;
/// The kernel's ticks a second, by which it tells what processors were used for.
const TICKS: f64 = 100.0;

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let number = |at: usize, usual| numbers.get(at).copied().unwrap_or(usual);
    let (tasks, workers, devices, run_ms) = (number(0, 1000), number(1, 8), number(2, 8), number(3, RUN_MS));
    let mut bed = Bed::begin();
    bed.tasks(tasks, &[&format!("us=50 build_ms={BUILD_MS} run_ms={run_ms}")]);
    let (devices_of_each, jobs_of_each) = (devices.to_string(), number(4, 2).to_string());
    for worker in 0..workers {
        bed.worker_with(&format!("w{worker}"), &["--simulate", &devices_of_each, "--at-once", &jobs_of_each]);
    }
    let mut batch = bed.batch("run", 1, true);
    batch.args(["--at-once", &(3 * workers * devices).to_string()]);
    let began = Instant::now();
    let batch = started(batch);
    let process = format!("/proc/{}", batch.id());
    // It says more than a pipe holds.
    let output = std::thread::spawn(|| batch.wait_with_output());
    let (cpu, memory) = watched(&process);
    let said = ended(&output.join().unwrap().unwrap(), 0);
    let wall = began.elapsed().as_secs_f64();
    let jobs: usize = bed.events("run", "spent").into_values().map(|events| events.len() + 1).sum();
    // Each is checked, timed and certified alone on its device, where checks share it.
    let alone = (2 * run_ms) as f64 / 1e3 * (tasks as f64 / (workers * devices) as f64).ceil();
    println!("{}", said.lines().find(|line| line.contains("finished,")).unwrap_or_default());
    println!(
        "{tasks} tasks on {workers} workers of {devices} devices: {wall:.1} s; devices held alone {alone:.1} s each at least"
    );
    println!(
        "{jobs} jobs, {:.0} a second; orchestrator: {cpu:.1} s of processor, {:.0} % of a core, {memory} MiB at most",
        jobs as f64 / wall,
        100.0 * cpu / wall
    );
    println!("{:.2} ms of the orchestrator's processor a job", 1e3 * cpu / jobs as f64);
    println!("{}", of_devices(&bed));
}

/// How tasks and work were shared out among the devices.
fn of_devices(bed: &Bed) -> String {
    let (mut tasks, mut checks) = (BTreeMap::<String, usize>::new(), 0.0);
    let mut alone = BTreeMap::<String, f64>::new();
    for spent in bed.events("run", "spent").into_values() {
        let device = |event: &serde_json::Value| event["lease"]["device"].as_str().map(str::to_owned);
        if let Some(device) = spent.iter().find_map(device) {
            *tasks.entry(device).or_default() += 1;
        }
        for event in &spent {
            let of = |held: &str| event["lease"]["held"][held].as_f64().unwrap_or(0.0) / 1e6;
            *alone.entry(device(event).unwrap_or_default()).or_default() += of("exclusive_us");
            checks += of("shared_us");
        }
    }
    let ends = |of: &mut dyn Iterator<Item = f64>| of.fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
    let (least, most) = ends(&mut tasks.values().map(|tasks| *tasks as f64));
    let (shortest, longest) = ends(&mut alone.values().copied());
    format!(
        "tasks a device: {least} to {most}; held alone: {shortest:.1} to {longest:.1} s; checks in all: {checks:.1} s"
    )
}

/// What a process used of processors, in seconds, and of memory, in MiB, until it ended.
fn watched(process: &str) -> (f64, u64) {
    let (mut cpu, mut memory) = (0.0, 0);
    while let Ok(stat) = fs::read_to_string(format!("{process}/stat")) {
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        if fields.first() == Some(&"Z") {
            break;
        }
        cpu = (ticks(11) + ticks(12)) / TICKS;
        let status = fs::read_to_string(format!("{process}/status")).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        memory =
            peak.and_then(|kib| kib.trim().trim_end_matches(" kB").parse().ok()).map_or(memory, |kib: u64| kib >> 10);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    (cpu, memory)
}
