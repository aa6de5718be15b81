//! A workshop with the first Python here that has torch.

use metrics::Statistic;
use std::io::Write;
use std::path::{Path, PathBuf};
use warpsmith_kernelbench::{
    Candidate, Outcome, Suite, Task, Timed, TimingPlan, Workshop, load,
    torch::{Options, Torch},
};

pub(crate) const PLAN: TimingPlan = TimingPlan { warmup: 1, repetitions: 5, statistic: Statistic::Median };

/// The workshop; `None` where no Python has torch. `WARPSMITH_PYTHON` names one, and must then work.
pub(crate) fn workshop() -> Option<Torch> {
    workshop_with(|_| ())
}

/// The same, set up in another way.
pub(crate) fn workshop_with(change: impl Fn(&mut Options)) -> Option<Torch> {
    let named = std::env::var("WARPSMITH_PYTHON").ok();
    let choices = named.clone().map_or(vec!["/usr/bin/python3".to_owned(), "python3".to_owned()], |named| vec![named]);
    let program: PathBuf = env!("CARGO_BIN_EXE_warpsmith-kernel").into();
    let found = choices.iter().find_map(|python| {
        let device = std::env::var("WARPSMITH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
        let mut options = Options::new(python.into(), &device, program.clone(), vec![]);
        options.trials = 2;
        options.deadline_floor = std::time::Duration::from_secs(4);
        options.spares = 0;
        change(&mut options);
        Torch::new(options).ok()
    });
    assert!(found.is_some() || named.is_none(), "the Python that WARPSMITH_PYTHON names has no torch");
    if found.is_none() {
        let _ = writeln!(std::io::stderr(), "skipped: no Python here has torch; name one in WARPSMITH_PYTHON");
    }
    found
}

pub(crate) fn problems() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/problems/level1");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "py"));
    found.sort();
    found
}

/// A problem of ours by its name, or of the checkout that `WARPSMITH_KERNELBENCH` names, such as `level1/13`.
pub(crate) fn problem(name: &str) -> Task {
    let of_checkout = name.split_once('/').map(|(level, id)| {
        let checkout = PathBuf::from(std::env::var("WARPSMITH_KERNELBENCH").unwrap());
        let entries = std::fs::read_dir(checkout.join("KernelBench").join(level)).unwrap();
        let start = format!("{id}_");
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&start)).unwrap()
    });
    let ours = || problems().into_iter().find(|path| path.file_stem().is_some_and(|stem| stem == name)).unwrap();
    load::task(&of_checkout.unwrap_or_else(ours)).unwrap()
}

/// Everything that an evaluation does.
pub(crate) fn evaluate(workshop: &Torch, task: &Task, source: &str) -> Outcome<Timed> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let suite = Suite::of_task(task);
    runtime.block_on(async {
        let built = match workshop.build(task, &Candidate::new(source)).await? {
            Ok(built) => built,
            Err(failure) => return Ok(Err(failure)),
        };
        match workshop.check(task, built, &suite).await? {
            Ok(verified) => workshop.time(task, &verified, &suite, &PLAN).await,
            Err(failure) => Ok(Err(failure)),
        }
    })
}
