//! Faces of pages about problems and GPUs, each with a snapshot of its own.

use super::{
    bound, candidate, guides, in_the_pool, machine, mismatch, offered, one_fix, one_optimization, problem, that_taught,
    timed,
};
use crate::{Attempted, advise, features, fix, optimize, pooled, seed};
use kernelbench::{Beyond, ReferenceMode, Source, Task};
use metrics::{Gpu, Kernel, Machine, Profile, Reading, Rung};
use minijinja::Value;

/// Faces of pages that have a snapshot of their own, beside the first face of each page.
pub(crate) fn more_faces() -> Vec<(&'static str, &'static str, Value)> {
    let (problem, machine, candidate) = (problem(), machine(), candidate());
    vec![
        ("seed_of_a_problem", "seed", seed::values(&problem, &machine, false)),
        ("seed_of_a_problem_with_an_example", "seed", seed::values(&problem, &h200(), true)),
        ("seed_with_a_binding", "seed", seed::values(&bound(), &machine, false)),
        ("seed_of_a_problem_on_a_gpu", "seed", seed::values(&problem, &h200(), false)),
        ("seed_of_a_problem_as_kernelbench_runs_it", "seed", seed::values(&as_kernelbench(), &h200(), false)),
        ("seed_of_a_problem_beyond_what_it_draws", "seed", seed::values(&strict(), &machine, false)),
        (
            "advise_on_a_gpu",
            "advise",
            advise::values(&counted(), &h200(), &candidate, &timed(), Some(&profile_on_a_gpu())),
        ),
        (
            "advise_after_a_change_that_was_taken_back",
            "advise",
            advise::after(&[attempted()], &advise::values(&problem, &machine, &candidate, &timed(), None)),
        ),
        (
            "advise_after_a_change_of_an_earlier_candidate",
            "advise",
            advise::after(&[earlier()], &advise::values(&problem, &machine, &candidate, &timed(), None)),
        ),
        (
            "advise_with_features",
            "advise",
            advise::offering(&offered(), &advise::values(&problem, &h200(), &candidate, &timed(), None)),
        ),
        (
            "optimize_with_features",
            "optimize",
            features::guided(guides(), &optimize::values(&problem, &h200(), &candidate, Some(&one_optimization()))),
        ),
        ("seed_with_a_pool", "seed", pooled::pooled(&[&in_the_pool()], &seed::values(&bound(), &machine, false))),
        (
            "seed_with_a_pool_that_taught",
            "seed",
            pooled::pooled(&[&that_taught()], &seed::values(&bound(), &machine, false)),
        ),
        ("seed_anew", "seed", seed::anew(&problem, &machine, &candidate, 2.5)),
        ("fix_a_problem", "fix", fix::values(&problem, &h200(), &candidate, &mismatch(), Some(&one_fix()))),
        ("optimize_a_problem", "optimize", optimize::values(&problem, &machine, &candidate, Some(&one_optimization()))),
    ]
}

/// A GPU, as its vendor's papers describe it.
pub(crate) fn h200() -> Machine {
    Gpu::named("H200").map_or_else(machine, Gpu::machine)
}

/// The problem, whose candidates are wrong where they are so on inputs of both signs.
fn strict() -> Task {
    let mut task = problem();
    if let Source::Problem(problem) = &mut task.source {
        problem.beyond = Beyond::Failure;
    }
    task
}

/// The problem with the reference as KernelBench's own evaluation runs it.
pub(crate) fn as_kernelbench() -> Task {
    let mut task = problem();
    if let Source::Problem(problem) = &mut task.source {
        problem.reference = ReferenceMode::KernelBench;
    }
    task
}

/// A change that made nothing faster.
fn attempted() -> Attempted {
    Attempted { change: one_optimization(), came: "correct, 0.93x [0.91, 0.95]".to_owned(), earlier: false }
}

/// The same of a candidate before the one that is looked at.
fn earlier() -> Attempted {
    Attempted { earlier: true, ..attempted() }
}

/// The problem with its operations counted.
fn counted() -> Task {
    let mut task = problem();
    if let Source::Problem(problem) = &mut task.source {
        problem.signature.flops = Some(137_438_953_472);
    }
    task
}

/// A call of one kernel on tensor cores, as Nsight Compute reads it.
pub(crate) fn profile_on_a_gpu() -> Profile {
    let reading = |name: &str, value: f64, unit: &str, says: &str| Reading::new(name, Some(value), unit, says);
    let tensor = "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active";
    let cycles = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
    let call = vec![
        reading("time", 43_130.0, "ns", "of one call"),
        reading("launches", 1.0, "", "kernels that one call launches"),
        reading("time of all kernels", 38_020.0, "ns", "all kernels of one call together"),
    ];
    let instead = Reading {
        stands_for: Some(tensor.into()),
        ..reading(cycles, 61.4, "%", "use of the tensor pipeline, by cycles")
    };
    let readings = vec![
        reading("gpu__time_duration.sum", 38.02, "us", "the kernel's duration"),
        reading("grid", 132.0, "block", "blocks: 132 x 1 x 1"),
        reading("block", 256.0, "thread", "threads a block: 256 x 1 x 1"),
        reading("launch__shared_mem_per_block", 99_328.0, "byte/block", "shared memory a block"),
        reading("launch__waves_per_multiprocessor", 0.5, "", "waves"),
        reading("sm__ops_path_tensor_src_tf32_dst_fp32.sum", 1.2e10, "", "operations of tensor instructions on TF32"),
        reading("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 18.3, "%", "use of device memory"),
        reading(tensor, 2.1, "%", "use of the tensor pipe"),
        instead,
    ];
    let kernel = Kernel { name: "product".into(), launches: Some(1), share: Some(1.0), readings };
    Profile { rung: Rung::Ncu, case: "default".into(), readings: call, kernels: vec![kernel], notes: vec![] }
}
