//! Are scores what their formulas say, for people, for other programs, and by KernelBench's own reckoning?
use crate::program;

use agents::{
    event::{End, Event, FORMAT, Step},
    llm::{CallId, Purpose, Role, Usage},
    log::Log,
};
use kernelbench::{
    Baseline, Candidate, CaseTiming, Certificate, CertificateVerdict, Evaluation, Failure, Precision, Suite, Task,
    Timed, Variant, load,
};
use metrics::{Machine, MachineKind, Speedup, Statistic, Timing};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};
use warpsmith::{
    compare::{Comparison, Side, TaskChange},
    config::Config,
    export::kernelbench::layout,
    scores::{RunScores, State},
    store::{RunFolder, RunHeader},
};

/// What becomes of each problem: its candidate's time where the reference takes 100 µs, or how it fails.
#[derive(Clone)]
enum Fate {
    Certified(f64),
    /// Passed, and was refused when certified.
    Refused,
    /// Does not build.
    Unbuilt,
    /// Builds, and is wrong.
    Wrong,
    /// No reply could be read.
    Unwritten,
}

use Fate::{Certified, Refused, Unbuilt, Unwritten, Wrong};

/// Ten problems: one exactly as fast as the reference, and one at each side of every threshold.
const TEN: [Fate; 10] = [
    Certified(100.0),
    Certified(99.0),
    Certified(40.0),
    Certified(60.0),
    Certified(160.0),
    Certified(240.0),
    Refused,
    Unbuilt,
    Wrong,
    Unwritten,
];

fn machine() -> Machine {
    let kind = MachineKind::Cpu;
    Machine {
        kind,
        name: "A CPU, 2 cores".into(),
        arch: metrics::Arch::Cpu("x86_64".into()),
        facts: vec![],
        bandwidths: vec![],
        peak_flops: None,
    }
}

fn header() -> RunHeader {
    RunHeader {
        format: FORMAT,
        warpsmith: "0".into(),
        began: String::new(),
        task: "problems".into(),
        model: "nobody".into(),
        policy: "cudaforge".into(),
        simulated: false,
        compilers: [].into(),
        templates: [].into(),
        machine: machine(),
        configuration: Config::default(),
    }
}

/// The problem of this number, in a folder of its level; numbers 19 and 20 of level 1 are known to be defective.
fn problem(folder: &Path, number: usize) -> Task {
    let level = folder.join("level1");
    fs::create_dir_all(&level).unwrap();
    let path = level.join(format!("{number}_A_problem_with_{}_name.py", "a_long_".repeat(9)));
    fs::write(&path, "class Model(object): pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n").unwrap();
    load::problem(&path).unwrap()
}

fn timed(us: f64) -> Timed {
    // Its mean lies far from its median: what is exported must be what was scored.
    let samples = |us: f64| Timing::of([us, us, us, us * 30.0].map(|us| us * 1000.0));
    let (reference, candidate) = (samples(100.0), samples(us));
    let speedup = Speedup::over(&[(&reference, &candidate)], Statistic::Median).unwrap();
    let case = CaseTiming { case: "default".into(), reference, candidate, speedup, floor_ns: None, uncounted: 0.0 };
    Timed {
        cases: vec![case],
        speedup,
        statistic: Statistic::Median,
        labels: vec![],
        widened_by: None,
        object: None,
        against: None,
    }
}

fn baseline() -> Baseline {
    let timing = || Timing::of([100_000.0; 4]);
    let speedup = Speedup::over(&[(&timing(), &Timing::of([50_000.0; 4]))], Statistic::Median);
    let compiled =
        Variant { name: "torch.compile (default)".into(), timing: Some(timing()), speedup, note: String::new() };
    Baseline { variants: vec![compiled], ..Baseline::new(vec![("default".into(), timing())], "none".into()) }
}

/// The events of a task with this fate.
fn events(log: &mut dyn Log, task: &Task, fate: &Fate) -> Vec<Event> {
    let opened = Event::Opened {
        format: FORMAT,
        task: log.keep(&serde_json::to_string(task).unwrap()).unwrap(),
        name: task.name.clone(),
        policy: log.keep("").unwrap(),
        model: "nobody".into(),
        machine: machine(),
    };
    let call = CallId {
        task: task.name.clone(),
        round: 1,
        role: Role::Coder,
        purpose: Purpose::Seed,
        part: String::new(),
        attempt: 1,
    };
    let prompt = log.keep("write").unwrap();
    let usage = Some(Usage { input_tokens: 1000, cached_tokens: 400, output_tokens: 50, reasoning_tokens: 0 });
    let answered = Event::Answered {
        call,
        prompt: prompt.clone(),
        reply: prompt,
        model: "nobody".into(),
        usage,
        usd: Some(0.25),
        latency_ms: 5,
        requests: 1,
    };
    let mut events = vec![
        opened,
        Event::SuiteFrozen { suite: Suite::of_task(task), notes: vec![] },
        Event::Prepared { baseline: baseline() },
        Event::Began { round: 1, step: Step::Seed },
        answered,
    ];
    events.extend(outcome(log, task, fate));
    events.push(Event::Ended { end: End::OutOfRounds });
    events
}

fn outcome(log: &mut dyn Log, task: &Task, fate: &Fate) -> Vec<Event> {
    let us = if let Certified(us) = fate { *us } else { 0.0 };
    let candidate = Candidate::new(format!("# the candidate for {} that takes {us}\n", task.name));
    log.keep(&candidate.canonical()).unwrap();
    let id = candidate.id();
    let wrong = || Failure::Crash { case: "default".into(), signal: "SIGSEGV".into(), stderr: String::new() };
    let evaluation = match fate {
        Unwritten => return vec![Event::Unreadable { role: Role::Coder, why: "no code".into() }],
        Certified(us) => Evaluation::Passed(timed(*us)),
        Refused => Evaluation::Passed(timed(20.0)),
        Unbuilt => Evaluation::Failed(Failure::Build { log: "error".into() }),
        Wrong => Evaluation::Failed(wrong()),
    };
    let verdict = match fate {
        Certified(us) => Some(CertificateVerdict::Certified(timed(*us))),
        Refused => Some(CertificateVerdict::Refused(wrong())),
        _ => None,
    };
    let certificate = |verdict| Event::Certified {
        certificate: Certificate {
            candidate: id.clone(),
            verdict,
            checked: vec![],
            build: String::new(),
            machine: String::new(),
        },
        evidence: None,
    };
    let mut events =
        vec![Event::Wrote { candidate: id.clone() }, Event::Evaluated { candidate: id.clone(), evaluation }];
    events.extend(verdict.map(certificate));
    events
}

/// A run of ten problems, numbers 15 to 24, with these fates.
fn run_of(folder: &Path, name: &str, fates: &[Fate]) -> RunFolder {
    run_in(Precision::Fp32, folder, name, fates)
}

fn run_in(precision: Precision, folder: &Path, name: &str, fates: &[Fate]) -> RunFolder {
    let run = RunFolder::create(&folder.join(name), &header()).unwrap();
    let (lock, _) = run.lock().unwrap();
    for (at, fate) in fates.iter().enumerate() {
        let task = problem(folder, 15 + at).in_precision(precision);
        let (mut log, _) = run.append(&task.name, &lock).unwrap();
        for event in events(&mut log, &task, fate) {
            log.note(&event).unwrap();
        }
    }
    run
}

fn shares(run: &RunScores, table: usize) -> BTreeMap<String, f64> {
    let group = &run.tables()[table].groups[0];
    group.scores.iter().filter_map(|score| Some((score.measure.clone(), score.estimate?.value))).collect()
}

/// How KernelBench's `scripts/benchmark_eval_analysis.py` reckons, written anew from its description: sample 0 of every
/// problem that has a baseline; a problem without a result has failed.
fn by_kernelbench(files: &BTreeMap<String, String>, results: &str, baseline: &str, p: f64) -> f64 {
    let json = |name: &str| -> Value { serde_json::from_str(&files[name]).unwrap() };
    let (results, times) = (json(results), json(baseline));
    let problems = times["level1"].as_object().unwrap();
    let fast = problems.iter().filter(|(file, time)| {
        let number = file.split('_').next().unwrap();
        let sample =
            results[number].as_array().and_then(|samples| samples.iter().find(|sample| sample["sample_id"] == 0));
        let Some(sample) = sample.filter(|sample| sample["correctness"] == true) else { return false };
        time["mean"].as_f64().unwrap() / sample["runtime"].as_f64().unwrap() > p
    });
    fast.count() as f64 / problems.len() as f64
}

#[test]
fn kernelbench_s_reckoning_of_an_exported_run_gives_our_fast_p() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_of(folder.path(), "run", &TEN);
    let scores = RunScores::of(&run).unwrap();
    let laid = layout(&run, "run").unwrap();
    assert_eq!((laid.left_out.len(), laid.runs.as_slice()), (0, &[("run_level1".to_owned(), 1)][..]));
    for (table, file) in ["baseline_time_torch", "baseline_time_torch_compile_inductor_default"].iter().enumerate() {
        let ours = shares(&scores, table);
        for p in [0.0, 0.5, 0.8, 1.0, 1.5, 2.0] {
            let baseline = format!("results/timing/A_CPU__2_cores/{file}.json");
            let theirs = by_kernelbench(&laid.files, "runs/run_level1/eval_results.json", &baseline, p);
            assert!((theirs - ours[&format!("fast_{p}")]).abs() < 1e-12, "{file}, fast_{p}: {theirs} and {ours:?}");
        }
    }
    assert!((shares(&scores, 0)["fast_1"] - 0.3).abs() < 1e-12, "one as fast as the reference is not faster");
}

#[test]
fn an_export_holds_a_kernel_a_problem_and_knows_what_did_not_build() {
    let folder = tempfile::tempdir().unwrap();
    let laid = layout(&run_of(folder.path(), "run", &TEN), "run").unwrap();
    let results: Value = serde_json::from_str(&laid.files["runs/run_level1/eval_results.json"]).unwrap();
    let of = |number: &str| {
        let sample = &results[number][0];
        (sample["compiled"].as_bool().unwrap(), sample["correctness"].as_bool().unwrap())
    };
    assert_eq!(
        [of("15"), of("21"), of("22"), of("23"), of("24")],
        [(true, true), (true, false), (false, false), (true, false), (false, false)]
    );
    let kernel = &laid.files["runs/run_level1/level_1_problem_17_sample_0_kernel.py"];
    assert!(kernel.contains("the candidate for level1-17_"), "{kernel}");
    assert!(!laid.files.contains_key("runs/run_level1/level_1_problem_24_sample_0_kernel.py"));
}

#[test]
fn what_leaves_says_its_precision_and_times_of_another_do_not_stand_for_kernelbenchs_own() {
    let folder = tempfile::tempdir().unwrap();
    let laid = layout(&run_in(Precision::Bf16, folder.path(), "half", &TEN), "half").unwrap();
    assert_eq!(laid.hardware, "A_CPU__2_cores_bf16");
    assert!(laid.files.contains_key("results/timing/A_CPU__2_cores_bf16/baseline_time_torch.json"));
    let results: Value = serde_json::from_str(&laid.files["runs/half_level1/eval_results.json"]).unwrap();
    assert_eq!(results["15"][0]["metadata"]["precision"], "bf16");
    let path = folder.path().join("half").display().to_string();
    let csv = program::run(&["scores", &path, "--format", "csv"]).ended(0).out;
    assert!(csv.lines().next().unwrap().contains(",precision,") && csv.contains(",15,bf16,"), "{csv}");
    program::run(&["report", &path]).ended(0);
    let page = fs::read_to_string(folder.path().join("half/report.html")).unwrap();
    assert!(page.contains("Weights and inputs") && page.contains("bfloat16"), "the page of a batch says it");
}

#[test]
fn defective_problems_are_in_the_whole_and_not_in_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let scores = RunScores::of(&run_of(folder.path(), "run", &TEN)).unwrap();
    let groups: Vec<(String, usize)> =
        scores.tables()[0].groups.iter().map(|group| (group.name.clone(), group.tasks)).collect();
    // Numbers 19, 20 and 23 are in the list.
    assert_eq!(groups, [("all".to_owned(), 10), ("not defective".to_owned(), 7)]);
    assert_eq!((scores.wins(), scores.spent().calls, scores.spent().input_tokens), (3, 10, 10_000));
    assert_eq!(scores.spent().known_usd(), Some(2.5));
}

#[test]
fn a_task_that_has_not_ended_counts_as_a_failure_and_is_said_to_be_open() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_of(folder.path(), "run", &TEN[..3]);
    let task = run.tasks().unwrap().remove(0);
    let log = run.path().join("tasks").join(&task).join("events.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(&log, lines[..lines.len() - 2].join("\n") + "\n").unwrap();
    let scores = RunScores::of(&run).unwrap();
    let open: Vec<_> = scores.tasks.iter().filter(|task| task.state == State::Open).collect();
    assert_eq!(open.len(), 1);
    assert!(open[0].speedup.is_none() && open[0].best.is_some(), "without a certificate there is no score");
    assert!(scores.text().contains("not ended, counted as failures: 1 of "), "{}", scores.text());
}

#[test]
fn csv_parquet_and_json_have_a_line_a_task() {
    let (folder, _) = program::place();
    let run = run_of(folder.path(), "run", &TEN);
    let path = run.path().display().to_string();
    let csv = program::run(&["scores", &path, "--format", "csv"]).ended(0).out;
    assert_eq!(csv.lines().count(), 11);
    assert!(csv.lines().next().unwrap().contains(",speedup,speedup_low,speedup_high,"), "{csv}");
    assert!(!csv.lines().next().unwrap().contains([' ', '"']), "{csv}");
    let parquet = folder.path().join("scores.parquet");
    let arguments = ["scores", &path, "--format", "parquet", "-o", &parquet.display().to_string()];
    program::with_metrics(&arguments).output().map(program::Told::of).unwrap().ended(0);
    assert_eq!(&fs::read(&parquet).unwrap()[..4], b"PAR1");
    let json: Value = serde_json::from_str(&program::run(&["scores", &path, "--format", "json"]).ended(0).out).unwrap();
    assert_eq!(json["run"]["tasks"].as_array().unwrap().len(), 10);
    assert_eq!(json["tables"][0]["groups"][0]["scores"][4]["measure"], "fast_1");
}

#[test]
fn the_same_run_twice_is_no_difference_and_a_better_one_is_higher() {
    let folder = tempfile::tempdir().unwrap();
    let better: Vec<Fate> =
        TEN.iter().map(|fate| if let Certified(us) = fate { Certified(us / 3.0) } else { fate.clone() }).collect();
    let sides: Vec<Side> = [("first", TEN.to_vec()), ("same", TEN.to_vec()), ("better", better)]
        .iter()
        .map(|(name, fates)| Side::of(&run_of(folder.path(), name, fates), None).unwrap())
        .collect();
    let comparison = Comparison::of(&sides.iter().collect::<Vec<_>>());
    assert!(comparison.doubts.is_empty(), "{:?}", comparison.doubts);
    assert!(comparison.text().contains("first   policy cudaforge, answered by"), "{}", comparison.text());
    let changes = |at: usize| comparison.tasks.iter().filter(|task| task.changes[at] == TaskChange::Faster).count();
    assert_eq!((changes(0), changes(1)), (0, 6));
    let mean = comparison.measures.iter().find(|measure| measure.measure == "mean").unwrap();
    let words = |at: usize| serde_json::to_value(mean.differences[at].change).unwrap();
    assert_eq!((words(0), words(1)), ("no-difference".into(), "higher".into()));
    assert!((comparison.ratios[1].estimate.unwrap().value - 3.0).abs() < 1e-9);
}

#[test]
fn the_same_code_is_no_difference_however_it_was_timed() {
    let folder = tempfile::tempdir().unwrap();
    let first = run_of(folder.path(), "first", &TEN);
    let second = run_of(folder.path(), "second", &TEN);
    // The very same candidates, on another day: three times as fast, samples and all.
    for log in program::files(&second.path().join("tasks")) {
        let text = fs::read_to_string(&log).unwrap();
        let lines = text.lines().map(|line| {
            let mut line: agents::event::Line = serde_json::from_str(line).unwrap();
            if let Event::Certified { certificate, .. } = &mut line.event
                && let CertificateVerdict::Certified(_) = certificate.verdict
            {
                certificate.verdict = CertificateVerdict::Certified(timed(3.0));
            }
            serde_json::to_string(&line).unwrap() + "\n"
        });
        fs::write(&log, lines.collect::<String>()).unwrap();
    }
    let comparison = Comparison::of(&[&Side::of(&first, None).unwrap(), &Side::of(&second, None).unwrap()]);
    let faster = comparison.tasks.iter().filter(|task| task.changes[0] == TaskChange::Faster).count();
    let same = comparison.tasks.iter().filter(|task| task.changes[0] == TaskChange::SameCode).count();
    assert_eq!((faster, same), (0, 6), "{}", comparison.text());
    assert!((comparison.ratios[0].estimate.unwrap().value - 1.0).abs() < 1e-9);
}

#[test]
fn tasks_of_one_name_and_another_content_are_not_compared() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = run_of(folders[0].path(), "run", &TEN[..2]);
    let second = run_of(folders[1].path(), "run", &TEN[..2]);
    let log = fs::read_dir(second.path().join("tasks")).unwrap().next().unwrap().unwrap().path().join("events.jsonl");
    let other = kernelbench::Hash::of(b"another task");
    let text = fs::read_to_string(&log).unwrap();
    let task = text.split("\"task\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    fs::write(&log, text.replacen(&task, other.as_str(), 1)).unwrap();
    let comparison = Comparison::of(&[&Side::of(&first, None).unwrap(), &Side::of(&second, None).unwrap()]);
    assert_eq!(comparison.tasks.len(), 1);
    assert!(
        comparison.doubts.iter().any(|doubt| doubt.contains("1 tasks of run are left out")),
        "{:?}",
        comparison.doubts
    );
}
