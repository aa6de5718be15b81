//! What does a round cost beside compiling and timing, and how long does the program take to start?
//!
//! `cargo bench --bench orchestrator` prints a line of JSON, in milliseconds. The model answers at once and the workshop's
//! findings are those of an earlier run, so what is left is ours: the loop, the actors, the prompts, and the record on
//! disk. The goals are under 5 ms a round, under 50 ms for `--help` and under 1 ms for choosing the features that a profile
//! calls for.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its numbers, and stops where one is missing"
)]

use agents::{
    crew::Crew,
    event::{Event, FORMAT},
    llm::{Answer, Call, Llm, Purpose, Reply},
    log::{Log, MemoryLog},
    planner::{Job, no_limit, work},
    policy::Policy,
    trajectory::Trajectory,
};
use kernelbench::{Recorded, Simulated, Task, Workshop, load};
use metrics::{Kernel, MetricSet, Profile, Reading, Rung};
use prompts::Prompts;
use std::{
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};
use warpsmith::{
    config::Config,
    recall,
    store::{RunFolder, RunHeader},
};

/// Rounds of a run.
const ROUNDS: u32 = 50;
/// Runs, and starts of the program: the fastest counts, the others were disturbed.
const TIMES: usize = 10;

struct AtOnce;

impl Llm for AtOnce {
    fn describe(&self) -> String {
        "nobody".into()
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        let text = match call.id.purpose {
            Purpose::Diagnose => {
                r#"{"critical_issue": "tail", "why_it_matters": "wrong", "minimal_fix_hint": "mend"}"#.into()
            }
            Purpose::Advise => {
                r#"{"bottleneck": "work", "optimization method": "less", "modification plan": "do less"}"#.into()
            }
            _ => source(call.id.round),
        };
        let reply = Reply { text, model: "nobody".into(), usage: None, usd: None, latency_ms: 0, requests: 1 };
        Box::pin(std::future::ready(Ok(reply)))
    }
}

/// A candidate of some 200 lines; every third is wrong.
fn source(round: u32) -> String {
    let does = if round.is_multiple_of(3) { "wrong" } else { "us=50" };
    let lines = "    out[i] = input[i] / (1.0f + expf(-input[i])) * input[i + hidden];\n".repeat(200);
    format!("```cpp\n// round {round}, simulate: {does}\nvoid silu_and_mul() {{\n{lines}}}\n```")
}

fn task() -> Task {
    load::task(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/silu_and_mul")).unwrap()
}

fn policy() -> Policy {
    let mut policy = Policy::parse(Policy::embedded("cudaforge").unwrap()).unwrap();
    policy.shapes = agents::policy::Shapes::Task;
    policy.rounds = ROUNDS;
    policy
}

async fn run<W: Workshop>(workshop: W, log: Box<dyn Log>) {
    let crew = Crew::spawn(Arc::new(workshop), Arc::new(AtOnce), Arc::new(Prompts::embedded())).await;
    let job = Job { task: task(), policy: policy(), so_far: Trajectory::default(), log, limit: no_limit() };
    assert!(work(job, &crew).await.unwrap().end.is_some());
    crew.stop().await;
}

/// One run with its record on disk, in milliseconds a round.
async fn a_round(events: &[Event]) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let (machine, findings) = recall::findings(events.iter().cloned()).unwrap();
    let header = RunHeader {
        format: FORMAT,
        warpsmith: String::new(),
        began: String::new(),
        task: String::new(),
        model: String::new(),
        policy: String::new(),
        simulated: true,
        compilers: [].into(),
        templates: [].into(),
        machine: machine.clone(),
        configuration: Config::default(),
    };
    let on_disk = RunFolder::create(&folder.path().join("run"), &header).unwrap();
    let (lock, _) = on_disk.lock().unwrap();
    let (log, _) = on_disk.append("silu_and_mul", &lock).unwrap();
    let began = Instant::now();
    run(Recorded::new(machine, findings), Box::new(log)).await;
    began.elapsed().as_secs_f64() * 1e3 / f64::from(ROUNDS)
}

/// One start of the program, in milliseconds.
fn a_start() -> f64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    let began = Instant::now();
    assert!(command.arg("--help").stdout(Stdio::null()).status().unwrap().success());
    began.elapsed().as_secs_f64() * 1e3
}

/// Choosing the features that a profile with all readings of a set calls for, once they are read, in milliseconds.
fn a_choice() -> f64 {
    let (words, machine) = (Prompts::embedded(), metrics::Gpu::named("H200").unwrap().machine());
    let set = words.features().of_arch(&machine.arch).unwrap().asked(MetricSet::cudaforge24());
    let readings = set.metric.iter().map(|metric| Reading::new(&metric.name, Some(30.0), "", "")).collect();
    let kernels = vec![Kernel { name: "k".into(), launches: Some(1), share: Some(1.0), readings }];
    let profile = Profile { rung: Rung::Ncu, case: "c".into(), readings: vec![], kernels, notes: vec![] };
    let (task, began) = (task(), Instant::now());
    assert!(!words.offer(&task, &machine, Some(&profile), &[]).is_empty());
    began.elapsed().as_secs_f64() * 1e3
}

#[tokio::main]
async fn main() {
    let log = MemoryLog::default();
    run(Simulated::new(), Box::new(log.clone())).await;
    let events = log.events();
    let mut round = f64::INFINITY;
    for _ in 0..TIMES {
        round = round.min(a_round(&events).await);
    }
    let help = (0..TIMES).map(|_| a_start()).fold(f64::INFINITY, f64::min);
    let choice = (0..TIMES).map(|_| a_choice()).fold(f64::INFINITY, f64::min);
    println!(
        "{}",
        serde_json::json!({ "round_ms": round, "help_ms": help, "choice_ms": choice, "rounds": ROUNDS, "best_of": TIMES })
    );
}
