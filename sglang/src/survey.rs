//! Where does a model's step spend its time, and which of that could be made faster?
//!
//! From traces of SGLang's engine: [`trace`] reads them, [`launches`] says which operator launched each kernel, [`known`]
//! whether it can be taken out, [`work`] what it must do at least, [`pairs`] what could be one kernel, and [`table`] prints it.

pub mod bench;
pub mod engine;
pub mod known;
pub mod launches;
pub mod pairs;
pub mod table;
pub mod trace;
pub mod work;

use self::{
    known::{Names, Standing},
    launches::{Call, Launch, Step},
    pairs::{Pair, Seen},
};
use crate::{operator, tree::Tree};
use metrics::gpu::Gpu;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// What a survey is told beside the traces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The GPU, where the trace does not say it or says another.
    pub gpu: Option<&'a str>,
    /// How many steps a trace without annotations holds.
    pub steps: Option<u32>,
    /// The SGLang that is asked which operators it has.
    pub tree: Option<&'a Tree>,
}

/// A stage of a trace: all its prefills, or all its decodes.
#[derive(Debug, Serialize)]
pub struct Stage {
    /// The trace.
    pub file: String,
    /// `prefill`, `decode`, or what the file is called.
    pub stage: String,
    /// The steps that were summed up.
    pub steps: f64,
    /// The GPU, as the trace names it.
    pub gpu: String,
    /// Whether its figures are known, so that there is a roofline.
    pub has_roofline: bool,
    /// The time that kernels take, in microseconds a step.
    pub us: f64,
    /// The part of the time from the first kernel to the last in which one ran, where there is one step.
    pub busy: Option<f64>,
    /// The kernels, those with the greatest share first.
    pub kernels: Vec<Row>,
    /// Pairs that could be one, those with the greatest share first.
    pub pairs: Vec<Pair>,
}

/// A kernel, as an operator of the host launched it.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The function.
    pub kernel: String,
    /// What the host calls it; empty where the trace does not say it.
    pub operator: String,
    /// How often in a step.
    pub calls: f64,
    /// The time, in microseconds a step.
    pub us: f64,
    /// The part of the step's kernels that it takes.
    pub share: f64,
    /// The bytes that must move, a step; none where the shapes do not say it.
    pub bytes: Option<f64>,
    /// The operations that must be done, a step.
    pub operations: Option<f64>,
    /// The least time over the time taken: 1 is at the roofline.
    pub of_roofline: Option<f64>,
    /// Why there is no roofline, where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// The shapes that it was called with.
    pub shapes: BTreeSet<String>,
    /// Whether it can be taken out.
    #[serde(flatten)]
    pub standing: Standing,
}

/// Reads a trace and sums it up, by stage.
///
/// # Errors
/// A sentence that says what is wrong with the trace or the options.
pub fn survey(file: &Path, options: Options<'_>) -> Result<Vec<Stage>, String> {
    let read = trace::read(file)?;
    let (launches, steps) = launches::launches(&read);
    let device = read.devices.first().map_or("", |device| device.name.as_str());
    let name = options.gpu.unwrap_or(device);
    let gpu = Gpu::named(name);
    if let (Some(asked), None) = (options.gpu, gpu) {
        let known: Vec<_> = Gpu::known().iter().filter_map(|gpu| gpu.names.first().cloned()).collect();
        return Err(format!("--gpu {asked}: no such GPU is in the table; it has {}", known.join(", ")));
    }
    let names = Names::of(options.tree);
    let of = |stage: String, steps: f64, launches: Vec<Launch>| {
        let (file, gpu_name) = (file.display().to_string(), name.to_owned());
        Stage { file, gpu: gpu_name, stage, ..sum(&launches, steps, gpu, &names) }
    };
    if steps.is_empty() {
        let count = f64::from(options.steps.unwrap_or(1).max(1));
        return Ok(vec![of(stage_of(file), count, launches)]);
    }
    let stages: BTreeSet<&str> = steps.iter().map(|step| step.stage).collect();
    Ok(stages
        .into_iter()
        .rev()
        .map(|stage| of(stage.to_owned(), count(&steps, stage), in_stage(&launches, &steps, stage)))
        .collect())
}

fn count(steps: &[Step], stage: &str) -> f64 {
    steps.iter().filter(|step| step.stage == stage).count() as f64
}

/// What was launched outside every step is of none.
fn in_stage(launches: &[Launch], steps: &[Step], stage: &str) -> Vec<Launch> {
    launches.iter().filter(|one| one.step.is_some_and(|step| steps[step].stage == stage)).cloned().collect()
}

/// SGLang names its traces by the stage.
fn stage_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let upper = name.to_uppercase();
    match (upper.contains("DECODE"), upper.contains("EXTEND") || upper.contains("PREFILL")) {
        (true, _) => "decode".into(),
        (_, true) => "prefill".into(),
        _ => name,
    }
}

/// A row's kernels, as they come.
#[derive(Default)]
struct Sum<'a> {
    us: f64,
    launches: Vec<&'a Launch>,
}

fn sum(launches: &[Launch], steps: f64, gpu: Option<&'static Gpu>, names: &Names) -> Stage {
    let total: f64 = launches.iter().map(|one| one.us).sum();
    let standings: Vec<Standing> = launches.iter().map(|one| names.standing(one)).collect();
    let mut rows: BTreeMap<(String, String), (Sum<'_>, &Standing)> = BTreeMap::new();
    for (launch, standing) in launches.iter().zip(&standings) {
        let entry = rows.entry((launch.kernel.clone(), called(launch))).or_insert((Sum::default(), standing));
        entry.0.us += launch.us;
        entry.0.launches.push(launch);
    }
    let of_operators = times_of_operators(launches);
    let row = |((kernel, operator), (sum, standing)): ((String, String), (Sum<'_>, &Standing))| {
        let worked = worked(&sum, standing, gpu, &of_operators);
        Row {
            kernel,
            operator,
            calls: sum.launches.len() as f64 / steps,
            us: sum.us / steps,
            share: sum.us / total,
            bytes: worked.as_ref().ok().map(|one| one.bytes / steps),
            operations: worked.as_ref().ok().map(|one| one.operations / steps),
            of_roofline: worked.as_ref().ok().and_then(|one| one.of_roofline),
            unknown: worked.err(),
            shapes: sum.launches.iter().filter_map(|launch| Some(shapes(launch.operators.first()?))).collect(),
            standing: standing.clone(),
        }
    };
    let mut kernels: Vec<Row> = rows.into_iter().map(row).collect();
    kernels.sort_by(|a, b| b.share.total_cmp(&a.share));
    let seen: Vec<Seen<'_>> =
        launches.iter().zip(&standings).map(|(launch, standing)| (launch, label(launch, standing), standing)).collect();
    Stage {
        file: String::new(),
        stage: String::new(),
        gpu: String::new(),
        steps,
        has_roofline: gpu.is_some(),
        us: total / steps,
        busy: (steps <= 1.0).then(|| busy(launches)),
        kernels,
        pairs: pairs::pairs(&seen, steps, total, gpu),
    }
}

fn called(launch: &Launch) -> String {
    launch.operators.first().map(|call| call.name.clone()).unwrap_or_default()
}

/// What a kernel is called in a pair: the operator where it is known, else the function.
fn label(launch: &Launch, standing: &Standing) -> String {
    match (standing.operators.as_slice(), launch.operators.first()) {
        ([one], _) => one.clone(),
        (_, Some(call)) => call.name.clone(),
        _ => launch.kernel.clone(),
    }
}

fn shapes(call: &Call) -> String {
    let shape = |shape: &[u64]| format!("[{}]", shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", "));
    call.tensors.iter().map(|tensor| shape(&tensor.shape)).collect::<Vec<_>>().join(" ")
}

/// By an operator's call: the time of all that it launched, since its work is theirs together.
fn times_of_operators(launches: &[Launch]) -> BTreeMap<usize, f64> {
    let mut times = BTreeMap::new();
    for launch in launches {
        for call in &launch.operators {
            *times.entry(call.event).or_default() += launch.us;
        }
    }
    times
}

struct Worked {
    bytes: f64,
    operations: f64,
    of_roofline: Option<f64>,
}

fn worked(
    sum: &Sum<'_>,
    standing: &Standing,
    gpu: Option<&Gpu>,
    times: &BTreeMap<usize, f64>,
) -> Result<Worked, String> {
    let known = standing.operators.iter().find_map(|name| operator::named(name).ok());
    let (mut seen, mut bytes, mut operations, mut floor, mut us) = (BTreeSet::new(), 0.0, 0.0, 0.0, 0.0);
    for launch in &sum.launches {
        if launch.operators.is_empty() {
            let why = if launch.in_graph {
                "it ran in a CUDA graph, of which a trace has no shapes: record without graphs"
            } else {
                "the trace has no operator for it"
            };
            return Err(why.to_owned());
        }
        let (call, work) = work::work(&launch.operators, known.as_ref())
            .ok_or_else(|| format!("the shapes of {} do not say its work", called(launch)))?;
        // One operator may launch several kernels: its work is counted once.
        if seen.insert(call.event) {
            bytes += work.bytes;
            operations += work.operations;
            us += times.get(&call.event).copied().unwrap_or(launch.us);
            floor += gpu.map_or(0.0, |gpu| work.floor_us(gpu));
        }
    }
    Ok(Worked { bytes, operations, of_roofline: gpu.filter(|_| us > 0.0).map(|_| floor / us) })
}

/// The part of the time from the first kernel's begin to the last one's end in which one ran.
fn busy(launches: &[Launch]) -> f64 {
    let Some(first) = launches.first() else { return 0.0 };
    let (mut ran, mut end) = (0.0, first.start);
    for launch in launches {
        let stop = launch.start + launch.us;
        ran += (stop - launch.start.max(end)).max(0.0);
        end = end.max(stop);
    }
    if end > first.start { ran / (end - first.start) } else { 1.0 }
}
