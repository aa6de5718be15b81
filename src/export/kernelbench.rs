//! How does KernelBench lay out a run, so that its own scripts score ours unchanged?
//!
//! Of each level a folder in `runs/` with a kernel a problem and `eval_results.json`, and in `results/timing/` the times of
//! the references (KernelBench's `scripts/eval_from_generations.py`, `scripts/generate_baseline_time.py`). Its scripts
//! divide a reference's `mean` by a candidate's `runtime`: both hold the statistic that the run timed by, taken side by
//! side, so that the ratio is the certified one.

use crate::{
    config::Word,
    store::{RunFolder, StoreError},
};
use agents::trajectory::Trajectory;
use kernelbench::{
    Baseline, CandidateId, CaseTiming, Certificate, CertificateVerdict, Evaluation, Failure, Hash, Precision, Problem,
    Task, Timed,
};
use metrics::{Statistic, Timing};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What KernelBench calls the times of eager torch.
const EAGER: &str = "baseline_time_torch";
/// Its timing of a sample that was not timed.
const NO_TIME: f64 = -1.0;

/// Files by their path in the folder that is to be made, and what could not be laid out.
#[derive(Debug, Default)]
pub struct Layout {
    /// Path and text, whole.
    pub files: BTreeMap<String, String>,
    /// Tasks that are not in it, and why.
    pub left_out: Vec<(String, String)>,
    /// The folders under `runs/`, each with its level.
    pub runs: Vec<(String, u8)>,
    /// The folder under `results/timing/`.
    pub hardware: String,
}

/// Lays out this run under this name.
///
/// # Errors
///
/// If the folder or a record cannot be read.
pub fn layout(folder: &RunFolder, name: &str) -> Result<Layout, StoreError> {
    let header = folder.header()?;
    let machine = plain(&header.machine.name);
    // KernelBench's files say nothing of a precision: times of another than its own usual one are another machine's there.
    let hardware_in = |precision: Precision| match precision {
        Precision::Fp32 => machine.clone(),
        other => format!("{machine}_{}", other.word()),
    };
    let mut levels: BTreeMap<u8, BTreeMap<u32, Value>> = BTreeMap::new();
    let mut times: BTreeMap<(String, String), BTreeMap<u8, Map<String, Value>>> = BTreeMap::new();
    let mut laid = Layout { hardware: machine.clone(), ..Layout::default() };
    for task in folder.tasks()? {
        let record = folder.record(&task)?;
        let story: Trajectory = record.events().collect();
        let fetch = |hash: &Hash| record.blobs.fetch(hash).ok();
        let sample = match Sample::of(&story, &fetch) {
            Ok(sample) => sample,
            Err(why) => {
                laid.left_out.push((task, why));
                continue;
            }
        };
        let (level, number) = (sample.level, sample.number);
        let run = run_name(name, level);
        if let Some(source) = sample.candidate.as_ref().and_then(fetch) {
            laid.files.insert(format!("runs/{run}/level_{level}_problem_{number}_sample_0_kernel.py"), source);
        }
        let hardware = hardware_in(sample.problem.precision);
        laid.hardware.clone_from(&hardware);
        for (baseline, time) in sample.baselines(&hardware) {
            times
                .entry((hardware.clone(), baseline))
                .or_default()
                .entry(level)
                .or_default()
                .insert(sample.problem.file.clone(), time);
        }
        levels.entry(level).or_default().insert(number, json!([sample.result(&hardware)]));
    }
    for (level, results) in levels {
        let run = run_name(name, level);
        laid.files.insert(format!("runs/{run}/eval_results.json"), pretty(&numbered(results)));
        laid.runs.push((run, level));
    }
    for ((hardware, baseline), levels) in times {
        let levels: Map<String, Value> =
            levels.into_iter().map(|(level, times)| (format!("level{level}"), times.into())).collect();
        laid.files.insert(format!("results/timing/{hardware}/{baseline}.json"), pretty(&levels.into()));
    }
    Ok(laid)
}

/// One problem, and what came of it.
struct Sample<'a> {
    problem: Problem,
    level: u8,
    number: u32,
    baseline: &'a Baseline,
    statistic: Statistic,
    candidate: Option<CandidateId>,
    outcome: Outcome<'a>,
}

enum Outcome<'a> {
    Certified(&'a Timed),
    Failed(String, Option<&'a Failure>),
}

impl<'a> Sample<'a> {
    fn of(story: &'a Trajectory, fetch: &dyn Fn(&Hash) -> Option<String>) -> Result<Self, String> {
        let task = story.task.as_ref().and_then(fetch).ok_or("its record lacks the task")?;
        let task: Task = serde_json::from_str(&task).map_err(|e| format!("its task cannot be read: {e}"))?;
        let problem = task.problem().cloned().ok_or("it is no problem in KernelBench's format")?;
        let (level, number) = problem.level.zip(problem.number).ok_or(
            "its level or its number is not known: a problem lies in a folder level1 to level4, and its file's name begins with its number",
        )?;
        if problem.file.is_empty() {
            return Err("its record does not say the name of its file: it was made by an older version".into());
        }
        let baseline = story.baseline.as_ref().ok_or("its reference was not timed")?;
        let certified = story.certified().and_then(|certificate| Some((&certificate.candidate, timed(certificate)?)));
        let (candidate, outcome) = match certified {
            Some((candidate, timed)) => (Some(candidate.clone()), Outcome::Certified(timed)),
            None => failed(story),
        };
        let statistic = match &outcome {
            Outcome::Certified(timed) => timed.statistic,
            Outcome::Failed(..) => Statistic::default(),
        };
        Ok(Self { problem, level, number, baseline, statistic, candidate, outcome })
    }

    /// The entry of `eval_results.json`.
    fn result(&self, hardware: &str) -> Value {
        let (compiled, correct, said) = match &self.outcome {
            Outcome::Certified(timed) => (true, true, timed.speedup.to_string()),
            Outcome::Failed(why, failure) => (self.candidate.is_some() && compiles(*failure), false, why.clone()),
        };
        let times = self.case().map(|case| &case.candidate);
        let precision = self.problem.precision.word();
        let mut metadata =
            json!({ "hardware": hardware, "device": hardware, "precision": precision, "warpsmith": said });
        if let Some(candidate) = &self.candidate {
            metadata["candidate"] = candidate.as_str().into();
        }
        json!({
            "sample_id": 0,
            "compiled": compiled,
            "correctness": correct,
            "metadata": metadata,
            "runtime": times.map_or(NO_TIME, |times| milliseconds(times.typical_ns(self.statistic))),
            "runtime_stats": times.map_or_else(|| json!({}), |times| statistics(times, hardware, None)),
        })
    }

    /// The reference's times by the name of KernelBench's file: beside the candidate where one is certified, else as they
    /// were before the first round; and those of the ways of `torch.compile` that were timed, over which the ratio is ours.
    fn baselines(&self, hardware: &str) -> Vec<(String, Value)> {
        let own = self.case().map(|case| &case.reference).or(self.baseline.timings.first().map(|(_, timing)| timing));
        let Some(own) = own else { return vec![] };
        let eager = milliseconds(own.typical_ns(self.statistic));
        let mut all = vec![(EAGER.to_owned(), statistics(own, hardware, Some((eager, self.statistic))))];
        for variant in &self.baseline.variants {
            if let (Some(times), Some(speedup)) = (&variant.timing, variant.speedup) {
                let typical = eager / speedup.ratio;
                all.push((file_of(&variant.name), statistics(times, hardware, Some((typical, self.statistic)))));
            }
        }
        all
    }

    fn case(&self) -> Option<&'a CaseTiming> {
        match &self.outcome {
            Outcome::Certified(timed) => timed.cases.first(),
            Outcome::Failed(..) => None,
        }
    }
}

fn timed(certificate: &Certificate) -> Option<&Timed> {
    match &certificate.verdict {
        CertificateVerdict::Certified(timed) => Some(timed),
        CertificateVerdict::Refused(_) => None,
    }
}

/// The last candidate of a task without a certified one, and why it does not count.
fn failed(story: &Trajectory) -> (Option<CandidateId>, Outcome<'_>) {
    if let Some(Certificate { candidate, verdict: CertificateVerdict::Refused(failure), .. }) =
        story.certificates.last()
    {
        return (Some(candidate.clone()), Outcome::Failed(format!("refused when certified: {failure}"), Some(failure)));
    }
    let last = story.finished().rev().find_map(|round| Some((round.candidate.clone()?, round.evaluation.as_ref()?)));
    match last {
        Some((candidate, Evaluation::Failed(failure))) => {
            (Some(candidate), Outcome::Failed(failure.to_string(), Some(failure)))
        }
        Some((candidate, Evaluation::Passed(_) | Evaluation::Counted(_) | Evaluation::Compiled(_))) => {
            (Some(candidate), Outcome::Failed("not certified".into(), None))
        }
        None => (None, Outcome::Failed("no candidate was written".into(), None)),
    }
}

/// Whether KernelBench counts a candidate that fails like this as compiled: its module could be built and imported.
fn compiles(failure: Option<&Failure>) -> bool {
    match failure {
        Some(Failure::Build { .. }) => false,
        // Without `ModelNew` there is nothing to call; an output of another form comes of a call.
        Some(Failure::Interface { log }) => !log.contains("ModelNew"),
        Some(Failure::Raised { stage, .. }) => stage != "import",
        _ => true,
    }
}

/// KernelBench's numbers of some times, in milliseconds; its scripts read `mean` alone, which may be another statistic.
fn statistics(timing: &Timing, hardware: &str, scored: Option<(f64, Statistic)>) -> Value {
    let samples = timing.samples_ns();
    let mean = timing.typical_ns(Statistic::Mean);
    let variance = samples.iter().map(|ns| (ns - mean).powi(2)).sum::<f64>() / samples.len() as f64;
    let mut numbers = json!({
        "mean": milliseconds(mean),
        "std": milliseconds(variance.sqrt()),
        "min": milliseconds(timing.quantile_ns(0.0)),
        "max": milliseconds(timing.quantile_ns(1.0)),
        "num_trials": samples.len(),
        "hardware": hardware,
        "device": hardware,
    });
    if let Some((typical, statistic)) = scored {
        numbers["mean"] = typical.into();
        numbers["mean_holds"] = serde_json::to_value(statistic).unwrap_or_default();
    }
    numbers
}

/// KernelBench's name for the times of a way of `torch.compile`.
fn file_of(variant: &str) -> String {
    let mode = variant.split(['(', ')']).nth(1).unwrap_or(variant);
    format!("{EAGER}_compile_inductor_{}", plain(mode))
}

fn run_name(name: &str, level: u8) -> String {
    format!("{}_level{level}", plain(name))
}

/// Letters, digits, `.`, `_` and `-`: a name that cannot lead out of a folder.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).take(80).collect();
    if name.trim_matches('.').is_empty() { "run".into() } else { name }
}

fn numbered(results: BTreeMap<u32, Value>) -> Value {
    results.into_iter().map(|(number, result)| (number.to_string(), result)).collect::<Map<_, _>>().into()
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn milliseconds(ns: f64) -> f64 {
    ns / 1e6
}
