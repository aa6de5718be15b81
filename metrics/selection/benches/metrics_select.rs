//! What does it cost to choose a set of metrics, and how does that grow with kernels and with metrics?
//!
//! `cargo bench -p warpsmith-selection` prints a line of JSON for each size: reading the file, correlating, and choosing, in
//! seconds, and the file's size. The goal is under 5 s for 50 profiles of 2,200 metrics on two cores.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its numbers, and stops where one is missing"
)]

use rand::{Rng, SeedableRng, rngs::StdRng};
use std::time::Instant;
use warpsmith_selection::{
    Evidence, Table, Wish, choose,
    evidence::PRESENT,
    table::{self, Launch, Measured, Profiled, Setup},
};

const TASKS: usize = 5;
/// Kernels of a task, and metrics: a full set, ten times the kernels, ten times the metrics.
const SIZES: [(usize, usize); 3] = [(10, 2_200), (100, 2_200), (10, 22_000)];

/// Metrics in families of four that say much the same, as `.avg`, `.max`, `.min` and `.sum` do; each family goes with the
/// time as closely as chance has it.
fn profiled(task: usize, kernel: usize, kernels: usize, metrics: usize) -> Profiled {
    let mut random = StdRng::seed_from_u64((task * kernels + kernel) as u64);
    let time = kernel as f64 / kernels as f64;
    let mut measured = Vec::with_capacity(metrics);
    for family in 0..metrics / 4 {
        let closeness = (family % 100) as f64 / 100.0;
        let value = closeness * time + (1.0 - closeness) * random.random::<f64>();
        for (rollup, unit) in [("avg", "byte"), ("max", "Kbyte"), ("min", ""), ("sum", "%")] {
            let value = (!family.is_multiple_of(31) || !kernel.is_multiple_of(3))
                .then_some(value + 0.01 * random.random::<f64>());
            measured.push(Measured { metric: format!("unit__family_{family:05}.{rollup}"), unit: unit.into(), value });
        }
    }
    Profiled {
        task: format!("task{task}"),
        kernel: format!("{kernel:032x}{task:032x}"),
        kernel_name: "kernel".into(),
        launch: Launch::default(),
        runtime_ns: 1e6 * (1.0 + 9.0 * time),
        setup: Setup { architecture: "sm_90".into(), gpu: "G".into(), driver: "1".into(), ncu: "2".into() },
        measured,
    }
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.parquet");
    for (kernels, metrics) in SIZES {
        let all = (0..TASKS).flat_map(|task| (0..kernels).map(move |kernel| profiled(task, kernel, kernels, metrics)));
        table::write(&path, &all.collect::<Vec<_>>()).unwrap();
        let began = Instant::now();
        let table = Table::read(&path).unwrap();
        let read = began.elapsed().as_secs_f64();
        let evidence = Evidence::of(&table, PRESENT).unwrap();
        let correlated = began.elapsed().as_secs_f64();
        let choice = choose(&evidence, &evidence.all(), &Wish::default());
        let chosen = began.elapsed().as_secs_f64();
        println!(
            "{}",
            serde_json::json!({
                "profiles": TASKS * kernels,
                "metrics": metrics,
                "file_mib": std::fs::metadata(&path).unwrap().len() as f64 / f64::from(1 << 20),
                "read_s": read,
                "correlate_s": correlated - read,
                "choose_s": chosen - correlated,
                "total_s": chosen,
                "distinct": choice.distinct,
            })
        );
    }
}
