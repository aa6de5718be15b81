//! `warpsmith metrics sample`: profiles of fast and slow kernels, to choose metrics from.

use crate::{
    cli::MetricsSampleArgs,
    command::on_threads,
    config::Layers,
    exit::{Exit, Trouble},
    handover::Companion,
    logging, plan,
    progress::Screen,
    sampling::{Notebook, Pool, Sampling, folder_beside},
    store::{Lock, RunFolder},
    wiring::{self, Kind},
};
use kernelbench::{TimingPlan, Workshop};

/// Builds, checks and times the kernels of each task, and surveys the fastest and the slowest.
pub(super) fn sample(arguments: &MetricsSampleArgs, mut layers: Layers, build: bool) -> Result<Exit, Trouble> {
    arguments.timing.apply(&mut layers);
    layers.flag("workshop.device", arguments.device.clone(), |config, device| config.workshop.device = device);
    let timing = plan::policy(&layers.config, None)?.timing;
    let pools = pools(arguments)?;
    let table = Companion::metrics(build)?;
    if let Some(other) = pools.iter().find(|pool| !pool.task.is_cuda() && !arguments.simulate) {
        let what = "only kernels in CUDA can be sampled: expected a task with language = \"cuda\", or --simulate";
        return Err(Trouble::usage(format!("{}: {what}", other.task.name)));
    }
    let kind = if arguments.simulate { Kind::Simulated } else { Kind::Cuda };
    on(&*wiring::workshop(kind, &layers.config, true, None)?, arguments, &pools, timing, table)
}

fn pools(arguments: &MetricsSampleArgs) -> Result<Vec<Pool>, Trouble> {
    let runs = arguments.from.iter().map(|run| RunFolder::open(run)).collect::<Result<Vec<_>, _>>()?;
    let mut pools: Vec<Pool> = vec![];
    for task in &arguments.tasks {
        let pool = Pool::of(task, arguments.kernels as usize, arguments.seed, &runs)?;
        if pools.iter().any(|other| other.task.name == pool.task.name) {
            let name = &pool.task.name;
            return Err(Trouble::usage(format!("{}: an earlier task is called {name} too", task.display())));
        }
        pools.push(pool);
    }
    Ok(pools)
}

fn on(
    workshop: &dyn Workshop,
    arguments: &MetricsSampleArgs,
    pools: &[Pool],
    plan: TimingPlan,
    table: Companion,
) -> Result<Exit, Trouble> {
    let folder = folder_beside(&arguments.out);
    std::fs::create_dir_all(&folder).map_err(|e| Trouble::record(format!("{}: {e}", folder.display())))?;
    let (lock, _) = Lock::take(&folder)?;
    let notebook = Notebook::open(&folder, workshop.machine())?;
    let screen = Screen::new(true);
    logging::start(&screen, None);
    let at_once = std::thread::available_parallelism().map_or(2, usize::from);
    let keep = arguments.keep as usize;
    let mut sampling = Sampling { workshop, plan, keep, at_once, screen: &screen, notebook, table };
    let sampled = on_threads(sampling.sample(pools, &arguments.out));
    screen.close();
    drop(lock);
    let sampled = sampled?;
    if sampled.correct > 0 && sampled.surveyed == 0 {
        return Err(Trouble::machine("kernels are correct, and none could be profiled: `warpsmith doctor` says why"));
    }
    screen.result(&format!(
        "{} of {} kernels of {} tasks were correct, and {} profiles are in {}",
        sampled.correct,
        sampled.kernels,
        pools.len(),
        sampled.surveyed,
        arguments.out.display()
    ));
    Ok(if sampled.surveyed > 0 { Exit::Done } else { Exit::NothingCorrect })
}
