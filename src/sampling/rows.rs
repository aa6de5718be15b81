//! How does what was found out become profiles of the table?

use super::{
    extremes,
    notebook::{Found, Notebook, Surveyed, Timed},
    pool::Pool,
};
use kernelbench::{Hash, Survey, ncu};
use metrics::{
    Machine,
    profiled::{Launch, Measured, Profiled, Setup},
};
use std::collections::HashSet;

/// What is noted of a survey: all numbers of the launch that stands for the call, and what read nothing. Words are left out.
pub(super) fn found(survey: &Survey) -> Result<Found, String> {
    let (launch, share) = survey.dominant().ok_or("the profiler read of no launch")?;
    let mut seen = HashSet::new();
    let numbers = launch.metrics().filter(|column| !matches!(column.value, ncu::Value::Text(_)));
    let once = numbers.filter(|column| seen.insert(column.name));
    let metrics = once.map(|column| (column.name.to_owned(), column.unit.to_owned(), column.value.number())).collect();
    let [grid, block] = launch.shape;
    let (case, tool, kernel) = (survey.case.clone(), survey.tool.clone(), launch.kernel.clone());
    Ok(Found::Surveyed(Surveyed { case, tool, kernel, grid, block, share, metrics }))
}

/// The profiles of the fastest and the slowest kernels of these pools, so many of each, whenever they were taken.
pub(super) fn profiles(notebook: &Notebook, pools: &[Pool], machine: &Machine, keep: usize) -> Vec<Profiled> {
    let of_pool = |pool: &Pool| {
        let profiled = |id: Hash| {
            let (timed, survey) = notebook.both(pool, pool.entry(&id)?)?;
            profiled(pool, id.as_str(), timed, survey, machine)
        };
        extremes(&notebook.times(pool), keep).into_iter().filter_map(profiled).collect::<Vec<_>>()
    };
    pools.iter().flat_map(of_pool).collect()
}

/// A line of JSON each.
pub(super) fn lines(profiles: &[Profiled]) -> Vec<u8> {
    profiles
        .iter()
        .flat_map(|profiled| [serde_json::to_vec(profiled).unwrap_or_default(), b"\n".to_vec()].concat())
        .collect()
}

fn profiled(pool: &Pool, kernel: &str, timed: &Timed, survey: &Surveyed, machine: &Machine) -> Option<Profiled> {
    let fact = |name: &str| machine.facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.clone());
    let number = |name: &str| {
        let found = survey.metrics.iter().find(|(metric, _, _)| metric == name);
        found.and_then(|(_, _, value)| *value)
    };
    let shape = |[x, y, z]: [u64; 3]| Some(format!("({x}, {y}, {z})"));
    let shared = ["static", "dynamic"].map(|which| number(&format!("launch__shared_mem_per_block_{which}")));
    let measured = survey.metrics.iter().map(|(metric, unit, value)| {
        let (metric, unit, value) = (metric.clone(), unit.clone(), *value);
        Measured { metric, unit, value }
    });
    Some(Profiled {
        task: pool.task.name.clone(),
        kernel: kernel.to_owned(),
        kernel_name: survey.kernel.clone(),
        launch: Launch {
            grid: shape(survey.grid),
            block: shape(survey.block),
            registers: number("launch__registers_per_thread").map(|registers| registers as u32),
            shared_bytes: shared[0].zip(shared[1]).map(|(one, other)| (one + other) as u64),
        },
        runtime_ns: timed.of_case(&survey.case)?,
        setup: Setup {
            architecture: machine.arch.to_string(),
            gpu: machine.name.clone(),
            driver: fact("driver").unwrap_or_default(),
            ncu: survey.tool.clone(),
        },
        measured: measured.collect(),
    })
}
