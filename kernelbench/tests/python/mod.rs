//! A workshop with the first Python here that has torch.

use std::path::{Path, PathBuf};
use warpsmith_kernelbench::{
    Candidate, Evaluation, Outcome, Suite, Task, Timed, TimingPlan, Workshop, load,
    torch::{Options, Torch},
};

pub(crate) const PLAN: TimingPlan = TimingPlan::median_of(1, 5);

/// The workshop.
pub(crate) fn workshop() -> Torch {
    workshop_with(|_| ())
}

/// The same, set up in another way.
pub(crate) fn workshop_with(change: impl Fn(&mut Options)) -> Torch {
    let program: PathBuf = env!("CARGO_BIN_EXE_warpsmith-kernel").into();
    let device = std::env::var("WARPSMITH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let mut options = Options::new(env!("PYTHON_WITH_TORCH").into(), &device, program, vec![]);
    options.trials = 2;
    options.deadline_floor = std::time::Duration::from_secs(4);
    options.first_call = options.deadline_floor;
    options.spares = 0;
    change(&mut options);
    Torch::new(options).unwrap()
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
pub(crate) fn evaluate(workshop: &Torch, task: &Task, source: &str, plan: &TimingPlan) -> Outcome<Timed> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let evaluated = runtime.block_on(workshop.evaluate(task, &Candidate::new(source), &Suite::of_task(task), plan))?;
    Ok(match evaluated {
        Evaluation::Passed(timed) => Ok(timed),
        Evaluation::Failed(failure) => Err(failure),
        Evaluation::Counted(_) | Evaluation::Compiled(_) => unreachable!("torch times"),
    })
}
