//! Evaluates files of candidates in one program, one after another or some beside each other, says what came of each as
//! JSON, a line a file, and whether that is what the file's heading says. Ends with status 1 where one is not.
//!
//! `verdicts PYTHON DEVICE FOLDER-OF-PROBLEMS... -- CANDIDATE.py|FOLDER...`, with these variables: `TRIALS`, `WARMUP`,
//! `REPETITIONS`, `FLOOR_S` (what deadlines have beside the reference's time), `FIRST_S` (that of a first call),
//! `BUILD_S` (what a build may take), `BESIDE` (how many are evaluated at a time), `AHEAD` (how many builds are begun
//! ahead; those that run a compiler are begun at once), `GATE` (a file that is waited for before the first candidate that
//! is right), `PROFILE`, `KEEP` (candidates and problems stay open, as in a batch, until others need their memory).
#![expect(clippy::print_stdout, reason = "a program")]

#[path = "../tests/file/mod.rs"]
mod file;

use file::File;
use futures::future::try_join_all;
use metrics::{Statistic, Timing};
use serde_json::{Value, json};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    error::Error,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;
use warpsmith_kernelbench::{
    Built, Candidate, Failure, Fault, Label, Outcome, Suite, Task, Timed, TimingPlan, Workshop, load, native,
    torch::{Options, Torch},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "child") {
        native::child_main();
    }
    let (places, files) = arguments.split_at(arguments.iter().position(|a| a == "--").unwrap_or(arguments.len()));
    let [python, device, folders @ ..] = places else {
        return Err("expected PYTHON DEVICE FOLDER-OF-PROBLEMS... -- CANDIDATE.py|FOLDER...".into());
    };
    let mut options = Options::new(python.into(), device, std::env::current_exe()?, vec!["child".into()]);
    options.trials = setting("TRIALS", 5)?;
    options.deadline_floor = Duration::from_secs(setting("FLOOR_S", 5)?.into());
    options.first_call = Duration::from_secs(setting("FIRST_S", setting("FLOOR_S", 60)?)?.into());
    options.build_deadline = Duration::from_secs(setting("BUILD_S", 300)?.into());
    options.profile_ahead = std::env::var_os("PROFILE").is_some();
    let workshop = Torch::new(options)?;
    let files = files.iter().skip(1).flat_map(|path| File::all(Path::new(path)));
    let jobs: Result<Vec<Job>, _> = files.enumerate().map(|(at, file)| job(folders, file, at)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let all_as_said = runtime.block_on(all(&workshop, jobs?))?;
    drop((runtime, workshop));
    std::process::exit(i32::from(!all_as_said))
}

fn setting(name: &str, otherwise: u32) -> Result<u32, Box<dyn Error>> {
    std::env::var(name).map_or(Ok(otherwise), |text| text.parse().map_err(|e| format!("{name}: {e}").into()))
}

struct Job {
    file: File,
    task: Task,
    candidate: Candidate,
}

/// A file's job. One that comes twice is another candidate each time.
fn job(folders: &[String], file: File, at: usize) -> Result<Job, Box<dyn Error>> {
    let problem = folders.iter().find_map(|folder| find(Path::new(folder), file.problem()));
    let task = load::task(&problem.ok_or_else(|| format!("{}: no problem {}", file.path.display(), file.problem()))?)?;
    let candidate = Candidate::new(format!("{}\n# evaluation {at}\n", file.source));
    Ok(Job { file, task, candidate })
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let (below, name) = name.rsplit_once('/').unwrap_or(("", name));
    let is_it = |stem: &str| stem == name || stem.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
    let paths = std::fs::read_dir(folder.join(below)).ok()?.flatten().map(|entry| entry.path());
    paths.into_iter().find(|path| path.file_stem().and_then(|stem| stem.to_str()).is_some_and(is_it))
}

type Build = JoinHandle<Outcome<Built>>;

/// What is begun, what is next, and how many of each problem are left.
struct Row<'a> {
    workshop: &'a Torch,
    jobs: &'a [Job],
    builds: RefCell<Vec<Option<Build>>>,
    next: Cell<usize>,
    left: RefCell<BTreeMap<&'a str, usize>>,
    all_as_said: Cell<bool>,
}

async fn all(workshop: &Torch, jobs: Vec<Job>) -> Result<bool, Box<dyn Error>> {
    let builds = jobs.iter().map(|job| job.file.source.contains("load_inline").then(|| begin(workshop, job)));
    let mut left = BTreeMap::new();
    for job in &jobs {
        *left.entry(job.task.name.as_str()).or_default() += 1;
    }
    let row = Row {
        workshop,
        jobs: &jobs,
        builds: RefCell::new(builds.collect()),
        next: Cell::new(0),
        left: RefCell::new(left),
        all_as_said: Cell::new(true),
    };
    try_join_all((0..setting("BESIDE", 1)?).map(|_| row.go_on())).await?;
    Ok(row.all_as_said.get())
}

impl Row<'_> {
    /// One after another, until none is left.
    async fn go_on(&self) -> Result<(), Box<dyn Error>> {
        let ahead = setting("AHEAD", 1)? as usize;
        while let Some(job) = self.jobs.get(self.next.get()) {
            let at = self.next.replace(self.next.get() + 1);
            for (build, job) in self.builds.borrow_mut().iter_mut().zip(self.jobs).skip(at).take(ahead.max(1)) {
                build.get_or_insert_with(|| begin(self.workshop, job));
            }
            if job.file.line("right").is_some() {
                gate().await;
            }
            let Some(mut build) = self.builds.borrow_mut()[at].take() else { continue };
            let said = one(self.workshop, job, &mut build).await?;
            self.all_as_said.set(self.all_as_said.get() && said["as said"] == true);
            println!("{said}");
            if std::env::var_os("KEEP").is_some() {
                continue;
            }
            self.workshop.release(&job.candidate.id());
            let left = self.left.borrow_mut().get_mut(job.task.name.as_str()).map(|left| {
                *left -= 1;
                *left
            });
            if left == Some(0) {
                self.workshop.close(&job.task);
            }
        }
        Ok(())
    }
}

fn begin(workshop: &Torch, job: &Job) -> Build {
    let (workshop, task, candidate) = (workshop.clone(), job.task.clone(), job.candidate.clone());
    tokio::spawn(async move { workshop.build(&task, &candidate).await })
}

async fn gate() {
    let Some(gate) = std::env::var_os("GATE") else { return };
    while !Path::new(&gate).exists() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn one(workshop: &Torch, job: &Job, build: &mut Build) -> Result<Value, Box<dyn Error>> {
    let (warmup, repetitions) = (setting("WARMUP", 2)?, setting("REPETITIONS", 20)?);
    let plan = TimingPlan::median_of(warmup, repetitions);
    let start = Instant::now();
    let waited = Cell::new(Duration::ZERO);
    let (outcome, profile) = match evaluate(workshop, job, build, &plan, &waited).await {
        Ok(found) => found,
        Err(fault) => {
            return Ok(json!({"file": job.file.path, "fault": fault.to_string(), "as said": false}));
        }
    };
    let labels: Vec<Label> =
        workshop.audit(&job.task)?.into_iter().chain(workshop.labels(&job.candidate.id())).collect();
    let what = match &outcome {
        Ok(timed) => passed(timed),
        Err(failure) => json!({"failed": failure, "in words": failure.to_string()}),
    };
    Ok(json!({
        "file": job.file.path, "problem": job.task.name, "ours": job.file.word(&outcome, &labels), "said": job.file.line("ours"),
        "as said": job.file.as_said(&outcome, &labels), "outcome": what, "labels": labels, "profile": profile,
        "seconds": start.elapsed().as_secs_f64(), "of these for its build": waited.get().as_secs_f64(),
    }))
}

async fn evaluate(
    workshop: &Torch,
    Job { task, .. }: &Job,
    begun: &mut Build,
    plan: &TimingPlan,
    waited: &Cell<Duration>,
) -> Result<(Result<Timed, Failure>, Value), Fault> {
    let (suite, start) = (Suite::of_task(task), Instant::now());
    let begun = begun.await.map_err(|e| Fault::Machine(e.to_string()))?;
    waited.set(start.elapsed());
    let built = match begun? {
        Ok(built) => built,
        Err(failure) => return Ok((Err(failure), Value::Null)),
    };
    let verified = match workshop.check(task, built, &suite).await? {
        Ok(verified) => verified,
        Err(failure) => return Ok((Err(failure), Value::Null)),
    };
    let timed = workshop.time(task, &verified, &suite, plan, 0.0).await?;
    let profile = match &timed {
        Ok(_) if std::env::var_os("PROFILE").is_some() => match workshop.profile(task, &verified, &suite).await {
            Ok(profile) => json!({
                "rung": profile.rung, "readings": profile.readings, "notes": profile.notes,
            }),
            Err(fault) => json!({"fault": fault.to_string()}),
        },
        _ => Value::Null,
    };
    Ok((timed, profile))
}

fn passed(timed: &Timed) -> Value {
    let in_short = |timing: &Timing| {
        json!({
            "median_ns": timing.typical_ns(Statistic::Median), "low_ns": timing.quantile_ns(0.05),
            "high_ns": timing.quantile_ns(0.95),
        })
    };
    let case = timed.cases.first();
    json!({
        "speedup": timed.speedup, "in words": timed.speedup.to_string(), "reference": case.map(|case| in_short(&case.reference)),
        "candidate": case.map(|case| in_short(&case.candidate)), "floor_ns": case.and_then(|case| case.floor_ns),
    })
}
