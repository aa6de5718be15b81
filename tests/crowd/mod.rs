//! Many tasks on simulated machines, with a model that takes its time: on a clock that jumps to whatever comes next.
#![allow(dead_code, clippy::allow_attributes, clippy::unwrap_used, reason = "each test uses the part that it needs")]

use agents::{
    crew::Place,
    event::FORMAT,
    llm::{Answer, Call, Llm, Purpose, Reply, Usage},
    policy::{Policy, Profiling, Shapes},
};
use kernelbench::{Hash, Simulated, Task, Workshop, load};
use prompts::Prompts;
use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::Semaphore;
use warpsmith::{
    batch::{
        extension::More,
        limits::Meter,
        running::{Batch, Outcome},
        watching::BatchProgress,
    },
    config::{Config, Limits},
    progress::Screen,
    store::{BatchList, Listed, RunFolder, RunHeader},
};

/// How many of what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    pub(crate) tasks: usize,
    pub(crate) rounds: u32,
    pub(crate) gpus: usize,
    /// Questions under way at the same time.
    pub(crate) calls: usize,
    /// Tasks under way at the same time.
    pub(crate) at_once: usize,
    /// Samples of a timing.
    pub(crate) repetitions: u32,
}

/// What half of an evaluation takes: the check, and the timing.
pub(crate) const HALF: Duration = Duration::from_millis(1500);

/// A model whose replies take a log-normal time with this median, in seconds, and this spread.
const MEDIAN_S: f64 = 30.0;
const SIGMA: f64 = 0.5;

/// Answers in form, after a while that is drawn from the question's name.
pub(crate) struct Slow {
    calls: Semaphore,
    drawn: Mutex<HashMap<String, f64>>,
}

impl Slow {
    pub(crate) fn new(calls: usize) -> Self {
        Self { calls: Semaphore::new(calls), drawn: Mutex::default() }
    }

    /// What each task's replies took together, in seconds.
    pub(crate) fn drawn(&self) -> HashMap<String, f64> {
        self.drawn.lock().unwrap().clone()
    }
}

/// A log-normal draw by a name: always the same for the same.
fn latency(name: &str) -> f64 {
    let hash = Hash::of(name.as_bytes());
    let uniform = |digits: &str| (u64::from_str_radix(digits, 16).unwrap() as f64 + 0.5) / (1_u64 << 48) as f64;
    let (one, two) = (uniform(&hash.as_str()[..12]), uniform(&hash.as_str()[12..24]));
    let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * two).cos();
    MEDIAN_S * (SIGMA * normal).exp()
}

impl Llm for Slow {
    fn describe(&self) -> String {
        "a slow model".into()
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        Box::pin(async move {
            let _turn = self.calls.acquire().await.unwrap();
            let seconds = latency(&call.id.to_string());
            *self.drawn.lock().unwrap().entry(call.id.task.clone()).or_default() += seconds;
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            let usage = Some(Usage { input_tokens: 4000, output_tokens: 1500, ..Usage::default() });
            let latency_ms = (seconds * 1e3) as u64;
            Ok(Reply { text: reply(&call), model: "slow".into(), usage, usd: Some(0.02), latency_ms, requests: 1 })
        })
    }
}

/// A verdict, or a candidate of some 200 lines.
fn reply(call: &Call) -> String {
    if call.id.purpose == Purpose::Advise {
        return r#"{"bottleneck": "work", "optimization method": "less", "modification plan": "do less"}"#.into();
    }
    let (us, ms) = (95 - 3 * call.id.round, HALF.as_millis());
    let lines = "    out[i] = input[i] / (1.0f + expf(-input[i])) * input[i + hidden];\n".repeat(200);
    let name = &call.id;
    format!("```cpp\n// {name}, simulate: us={us} run_ms={ms}\nvoid silu_and_mul() {{\n{lines}}}\n```")
}

fn task(number: usize) -> Task {
    let task = load::task(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/silu_and_mul")).unwrap();
    Task { name: format!("task-{number:04}"), ..task }
}

fn policy(crowd: &Crowd) -> Policy {
    let mut policy = Policy::parse(Policy::embedded("cudaforge").unwrap()).unwrap();
    (policy.rounds, policy.shapes, policy.profile) = (crowd.rounds, Shapes::Task, Profiling::Never);
    policy.timing.repetitions = crowd.repetitions;
    policy
}

fn header() -> RunHeader {
    RunHeader {
        format: FORMAT,
        warpsmith: String::new(),
        began: String::new(),
        task: String::new(),
        model: String::new(),
        policy: String::new(),
        simulated: true,
        compilers: [].into(),
        templates: [].into(),
        machine: Simulated::new().machine().clone(),
        configuration: Config::default(),
    }
}

/// Makes the run in this folder and works on it. Gives what came of it, the simulated seconds that it took, and the machines.
pub(crate) async fn work(crowd: Crowd, model: Arc<Slow>, run: &Path) -> (Outcome, f64, Vec<Arc<Simulated>>) {
    let policy = policy(&crowd);
    let mut kept = None;
    let folder = RunFolder::create_batch(run, &header(), |blobs| {
        let listed = |number| {
            let task = task(number);
            let text = blobs.keep(&serde_json::to_string(&task).unwrap())?;
            Ok(Listed { name: task.name, path: String::new(), task: text })
        };
        let tasks = (0..crowd.tasks).map(listed).collect::<Result<_, _>>()?;
        let policy = blobs.keep(&toml::to_string(&policy).unwrap())?;
        let list = BatchList { name: "crowd".into(), source: String::new(), policy, tasks, unreadable: vec![] };
        kept = Some(list.clone());
        Ok(list)
    });
    let folder = folder.unwrap();
    let (lock, _) = folder.lock().unwrap();
    let machines: Vec<Arc<Simulated>> = (0..crowd.gpus).map(|_| Arc::new(Simulated::new())).collect();
    let place = |(gpu, workshop): (usize, &Arc<Simulated>)| Place {
        workshop: workshop.clone(),
        device: format!("cuda:{gpu}"),
        builds: 16,
    };
    let places = machines.iter().enumerate().map(place).collect();
    let meter = Arc::new(Meter::new(Limits::default(), &[]));
    let board = BatchProgress::new(Screen::new(false), meter.clone(), crowd.rounds, crowd.tasks, &[]);
    board.be_silent();
    let (list, prompts) = (kept.unwrap(), Arc::new(Prompts::embedded()));
    let (at_once, more) = (crowd.at_once, More::default());
    let batch = Batch {
        folder,
        lock,
        list,
        policy,
        llm: model,
        prompts,
        validators: Arc::default(),
        meter,
        board,
        at_once,
        more,
    };
    let began = tokio::time::Instant::now();
    let outcome = batch.run(places).await;
    (outcome, began.elapsed().as_secs_f64(), machines)
}

/// Runs this on a clock that jumps.
pub(crate) fn on_a_jumping_clock<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(work)
}
