//! What does a round cost in a batch of many different problems, and what is the device's time spent on?
//!
//! `cargo bench -p warpsmith-kernelbench --bench batch_cost -- PYTHON DEVICE[,DEVICE...] PROBLEMS CANDIDATES`: PROBLEMS is a
//! checkout's folder with `level1` and so on below it, CANDIDATES a folder of files `level1-29_Softplus.r1.1.py`: problem,
//! round, attempt. Each problem's reference is prepared, then round after round its candidate is built, checked, timed, and
//! profiled where it is right, as a batch does; `IN_FLIGHT` problems (8) at a time on each device.
//!
//! `BESIDE` sets how many are checked side by side (1: every step has the device alone), `ROUNDS` how many rounds there are:
//! where fewer are recorded, the last candidates come again as new ones. `PROFILE=0` leaves profiles out, `PROFILER=ncu` has
//! them begin with that profiler, `ONLY=level1-29,..` names the problems, `REPETITIONS` how often each is
//! timed. `STRETCHES=1` lists each round's stages in order, with the times at which they began. A line of JSON a round; then a
//! table and a line that sums up.
#![expect(clippy::print_stdout, reason = "a program")]

use metrics::Statistic;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    error::Error,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};
use tokio::{sync::Semaphore, task::JoinSet};
use warpsmith_kernelbench::{
    Candidate, Evaluation, Fault, Suite, Task, TimingPlan, Workshop, load, native,
    stage::{Hold, Recorder, Stage, Stretch},
    torch::{Options, Torch},
};

/// A name such as `level1-29_Softplus`, and its candidates round by round.
type Recorded = BTreeMap<String, Vec<PathBuf>>;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).is_some_and(|first| first == "child") {
        native::child_main();
    }
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [python, devices, problems, candidates] = arguments.as_slice() else {
        return Err("expected PYTHON DEVICE[,DEVICE...] PROBLEMS CANDIDATES".into());
    };
    let asked = std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok());
    let level = asked.unwrap_or(tracing_subscriber::filter::LevelFilter::ERROR);
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_max_level(level).init();
    let recorded = recorded(Path::new(candidates))?;
    let options: Vec<Options> = devices.split(',').map(|device| options(python, device)).collect::<Result<_, _>>()?;
    let workshops: Result<Vec<Torch>, Fault> = std::thread::scope(|scope| {
        let begun: Vec<_> = options.into_iter().map(|options| scope.spawn(|| Torch::new(options))).collect();
        let ended = |one: std::thread::ScopedJoinHandle<'_, _>| one.join().unwrap_or_else(|panic| resume_unwind(panic));
        begun.into_iter().map(ended).collect()
    });
    let bench = Arc::new(Bench {
        workshops: workshops?,
        devices: devices.split(',').map(str::to_owned).collect(),
        plan: TimingPlan::median_of(20, setting("REPETITIONS", 100)? as u32),
        profiles: setting("PROFILE", 1)? > 0,
        stretches: setting("STRETCHES", 0)? > 0,
        rounds: setting("ROUNDS", 0)?,
        began: Instant::now(),
        spent: Mutex::default(),
    });
    let in_flight = setting("IN_FLIGHT", 8)?.max(1);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(all(&bench, Path::new(problems), recorded, in_flight))?;
    let spent = bench.spent.lock().unwrap_or_else(PoisonError::into_inner);
    let wall_s = bench.began.elapsed().as_secs_f64();
    print!("{}", table(&spent));
    println!("{}", summary(&spent, &bench.devices, wall_s));
    Ok(())
}

fn setting(name: &str, otherwise: usize) -> Result<usize, Box<dyn Error>> {
    std::env::var(name).map_or(Ok(otherwise), |text| text.parse().map_err(|e| format!("{name}: {e}").into()))
}

fn options(python: &str, device: &str) -> Result<Options, Box<dyn Error>> {
    let mut options = Options::new(python.into(), device, std::env::current_exe()?, vec!["child".into()]);
    options.beside = setting("BESIDE", options.beside)?;
    options.profile_ahead = setting("PROFILE", 1)? > 0;
    if let Ok(name) = std::env::var("PROFILER") {
        options.profiler = serde_json::from_value(json!(name)).map_err(|e| format!("PROFILER: {e}"))?;
    }
    Ok(options)
}

/// The candidates of a folder, in order of their rounds.
fn recorded(folder: &Path) -> Result<Recorded, Box<dyn Error>> {
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut found: BTreeMap<String, Vec<(u32, PathBuf)>> = BTreeMap::new();
    for path in std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut parts = name.rsplitn(4, '.');
        let (Some("py"), Some(_), Some(round), Some(task)) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let round = round.strip_prefix('r').and_then(|round| round.parse().ok());
        let round = round.ok_or_else(|| format!("{name}: expected a name such as level1-29_Softplus.r1.1.py"))?;
        if only.is_empty() || only.split(',').any(|start| task.starts_with(&format!("{start}_"))) {
            found.entry(task.to_owned()).or_default().push((round, path));
        }
    }
    let in_order = |mut rounds: Vec<(u32, PathBuf)>| {
        rounds.sort();
        rounds.into_iter().map(|(_, path)| path).collect()
    };
    Ok(found.into_iter().map(|(task, rounds)| (task, in_order(rounds))).collect())
}

struct Bench {
    workshops: Vec<Torch>,
    devices: Vec<String>,
    plan: TimingPlan,
    profiles: bool,
    stretches: bool,
    rounds: usize,
    began: Instant,
    spent: Mutex<Vec<Spent>>,
}

/// What one round took, or preparing the reference.
struct Spent {
    device: usize,
    is_round: bool,
    stretches: Vec<Stretch>,
}

impl Spent {
    fn seconds(&self, fits: impl Fn(&Stretch) -> bool) -> f64 {
        self.stretches.iter().filter(|one| fits(one)).map(|one| one.us).sum::<u64>() as f64 / 1e6
    }
}

async fn all(bench: &Arc<Bench>, problems: &Path, recorded: Recorded, in_flight: usize) -> Result<(), Box<dyn Error>> {
    let turns: Vec<_> = bench.workshops.iter().map(|_| Arc::new(Semaphore::new(in_flight))).collect();
    let mut tasks = JoinSet::new();
    for (at, (name, candidates)) in recorded.into_iter().enumerate() {
        let (level, file) = name.split_once('-').ok_or_else(|| format!("{name} names no level"))?;
        let task = load::task(&problem(&problems.join(level), file)?)?;
        let (bench, device) = (Arc::clone(bench), at % turns.len());
        let turn = Arc::clone(&turns[device]);
        tasks.spawn(async move {
            let _turn = turn.acquire().await;
            if let Err(fault) = bench.work(device, &name, &task, &candidates).await {
                println!("{}", json!({"task": name, "fault": fault.to_string()}));
            }
        });
    }
    tasks.join_all().await;
    Ok(())
}

/// The problem of a level's folder that is called so: a long name is cut where a task is named by it.
fn problem(level: &Path, name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let found = std::fs::read_dir(level)?.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = found
        .filter(|path| path.extension().is_some_and(|ending| ending == "py"))
        .filter(|path| path.file_stem().is_some_and(|stem| stem.to_string_lossy().starts_with(name)))
        .collect();
    // The shortest is the name itself, where it is whole.
    found.sort_by_key(|path| path.as_os_str().len());
    found.into_iter().next().ok_or_else(|| format!("{}: there is no problem {name}", level.display()).into())
}

impl Bench {
    /// Prepares a problem, and takes its candidates in turn.
    async fn work(&self, device: usize, name: &str, task: &Task, candidates: &[PathBuf]) -> Result<(), Fault> {
        let (workshop, suite) = (&self.workshops[device], Suite::of_task(task));
        let recorder = Recorder::begin(self.now_us());
        let baseline = recorder.record(workshop.prepare(task, &suite, &self.plan)).await?;
        let differs = baseline.self_difference();
        self.note(device, json!({"task": name, "round": 0, "outcome": "prepared"}), &recorder);
        let last = candidates.len().saturating_sub(1);
        for round in 0..self.rounds.max(if self.rounds == 0 { candidates.len() } else { 0 }) {
            let source = std::fs::read_to_string(&candidates[round.min(last)]);
            let mut source = source.map_err(|e| Fault::Machine(e.to_string()))?;
            if round > last {
                source = format!("{source}\n# round {}\n", round + 1);
            }
            let candidate = Candidate::new(source);
            let recorder = Recorder::begin(self.now_us());
            let (outcome, profile) = recorder.record(self.round(workshop, task, &candidate, &suite, differs)).await?;
            let told = match &outcome {
                Evaluation::Passed(timed) => json!({"outcome": "passed", "speedup": timed.speedup}),
                Evaluation::Counted(counts) => json!({"outcome": "counted", "counts": counts}),
                Evaluation::Compiled(code) => json!({"outcome": "compiled", "code": code}),
                Evaluation::Failed(failure) => json!({"outcome": "failed", "why": failure.to_string()}),
            };
            let mut line = json!({"task": name, "round": round + 1, "profile": profile});
            line.as_object_mut()
                .into_iter()
                .for_each(|line| line.extend(told.as_object().cloned().unwrap_or_default()));
            self.note(device, line, &recorder);
        }
        Ok(())
    }

    /// One round: what came of it, and what its profile was read by.
    async fn round(
        &self,
        workshop: &Torch,
        task: &Task,
        candidate: &Candidate,
        suite: &Suite,
        differs: f64,
    ) -> Result<(Evaluation, Value), Fault> {
        let failed = |failure| Ok((Evaluation::Failed(failure), Value::Null));
        let built = match workshop.build(task, candidate).await? {
            Ok(built) => built,
            Err(failure) => return failed(failure),
        };
        let verified = match workshop.check(task, built, suite).await? {
            Ok(verified) => verified,
            Err(failure) => return failed(failure),
        };
        let timed = match workshop.time(task, &verified, suite, &self.plan, differs).await? {
            Ok(timed) => timed,
            Err(failure) => return failed(failure),
        };
        let mut profile = Value::Null;
        if self.profiles {
            // A profile is asked for later, by who knows the candidate alone.
            let _ = workshop.build(task, candidate).await?;
            let taken = workshop.profile(task, &verified, suite).await;
            profile = taken.map_or_else(
                |fault| json!(fault.to_string()),
                |profile| json!({"rung": profile.rung, "kernels": profile.kernels.len(), "notes": profile.notes}),
            );
        }
        Ok((Evaluation::Passed(timed), profile))
    }

    fn now_us(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    /// Prints a round's line, and keeps what it took.
    fn note(&self, device: usize, mut line: Value, recorder: &Recorder) {
        let is_round = line["round"] != 0;
        let spent = Spent { device, is_round, stretches: recorder.stretches() };
        let mut stages = json!({});
        for (held, name) in HOLDS {
            for stage in Stage::ALL {
                let seconds = spent.seconds(|one| one.stage == stage && one.held == held);
                if seconds > 0.0 {
                    stages[name][stage.name()] = json!(seconds);
                }
            }
        }
        (line["device"], line["stages"]) = (json!(self.devices[device]), stages);
        line["exclusive_s"] = json!(spent.seconds(|one| one.held == Some(Hold::Exclusive)));
        line["shared_s"] = json!(spent.seconds(|one| one.held == Some(Hold::Shared)));
        if self.stretches {
            line["stretches"] = json!(spent.stretches);
        }
        println!("{line}");
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).push(spent);
    }
}

const HOLDS: [(Option<Hold>, &str); 3] =
    [(Some(Hold::Exclusive), "exclusive"), (Some(Hold::Shared), "shared"), (None, "not held")];

/// The median, the mean and the most.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let count = values.len().max(1) as f64;
    let most = values.last().copied().unwrap_or(0.0);
    [if values.is_empty() { 0.0 } else { Statistic::Median.of(&values) }, values.iter().sum::<f64>() / count, most]
}

/// Seconds of a round by stage and by how the device was held: median, mean and most of all rounds.
fn table(spent: &[Spent]) -> String {
    let rounds: Vec<&Spent> = spent.iter().filter(|one| one.is_round).collect();
    let of = |fits: &dyn Fn(&Stretch) -> bool| spread(rounds.iter().map(|one| one.seconds(fits)).collect());
    let cells = |[median, mean, most]: [f64; 3]| format!("{median:7.2} {mean:7.2} {most:7.2}");
    let head = |name: &str| format!("{name:^23}");
    let each = " median    mean    most";
    let mut lines = vec![
        format!("{:24} {} {} {}", "", head("exclusive"), head("shared"), head("not held")),
        format!("{:24} {each} {each} {each}", "seconds of a round"),
    ];
    for stage in Stage::ALL {
        let all = HOLDS.map(|(held, _)| of(&|one: &Stretch| one.stage == stage && one.held == held));
        if all.iter().any(|[_, _, most]| *most > 0.0) {
            lines.push(format!("{:24} {}", stage.name(), all.map(cells).join(" ")));
        }
    }
    let all = HOLDS.map(|(held, _)| cells(of(&|one: &Stretch| one.held == held)));
    lines.push(format!("{:24} {}\n", "together", all.join(" ")));
    lines.join("\n")
}

/// How long a device was held at all, by whoever: where several shared it, once.
fn covered_s(spent: &[Spent], device: usize) -> f64 {
    let of_device = spent.iter().filter(|one| one.device == device).flat_map(|one| &one.stretches);
    let mut held: Vec<(i64, i64)> =
        of_device.filter(|one| one.held.is_some()).map(|one| (one.from_us, one.until_us())).collect();
    held.sort_unstable();
    let (mut until, mut all) = (i64::MIN, 0);
    for (from, to) in held {
        all += (to - from.max(until)).max(0);
        until = until.max(to);
    }
    all as f64 / 1e6
}

fn summary(spent: &[Spent], devices: &[String], wall_s: f64) -> Value {
    let rounds: Vec<&Spent> = spent.iter().filter(|one| one.is_round).collect();
    let exclusive = |one: &&Spent| one.seconds(|one| one.held == Some(Hold::Exclusive));
    let [median, mean, most] = spread(rounds.iter().map(exclusive).collect());
    let covered: Vec<f64> = (0..devices.len()).map(|device| covered_s(spent, device)).collect();
    let of_device = |device: usize| {
        let alone: f64 = spent.iter().filter(|one| one.device == device).map(|one| exclusive(&one)).sum();
        json!({"device": devices[device], "held_s": covered[device], "exclusive_s": alone, "exclusive part of wall": alone / wall_s})
    };
    json!({
        "rounds": rounds.len(), "problems": spent.len() - rounds.len(), "wall_s": wall_s,
        "exclusive_s a round": {"median": median, "mean": mean, "most": most},
        "device_s a round, shared once": covered.iter().sum::<f64>() / rounds.len().max(1) as f64,
        "devices": (0..devices.len()).map(of_device).collect::<Vec<_>>(),
    })
}
