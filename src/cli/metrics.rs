//! What can be asked about metrics?

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `metrics`
#[derive(Debug, Subcommand)]
pub enum Metrics {
    /// Time many kernels of each task, and profile the fastest and the slowest with everything that Nsight Compute reads.
    #[command(after_help = SAMPLE_EXAMPLES)]
    Sample(MetricsSampleArgs),
    /// Print a set of metrics as a table.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(MetricsShowArgs),
}

/// `metrics sample`
#[derive(Debug, Args)]
pub struct MetricsSampleArgs {
    /// The tasks: folders that hold a task.toml in CUDA, and perhaps a family.toml.
    #[arg(required = true, value_name = "TASK")]
    pub tasks: Vec<PathBuf>,
    /// How many kernels are tried for each task.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub kernels: u32,
    /// How many of the fastest, and how many of the slowest, are profiled.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub keep: u32,
    /// The table to write (Parquet); what was found out is kept in a folder beside it, and not found out again.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Take the candidates of this run too, before those of the family; may be given several times.
    #[arg(long, value_name = "RUN")]
    pub from: Vec<PathBuf>,
    /// What the members of a family are drawn by.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// The GPU, such as `cuda:0` [default: the first].
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Calls before the first sample of a timing.
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Samples of a timing.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub repetitions: Option<u32>,
    /// On a simulated machine: nothing is compiled or run, times and readings are made up.
    #[arg(long)]
    pub simulate: bool,
}

const SAMPLE_EXAMPLES: &str = "\
Kernels come from the task's family and from the folders of runs; a model's are had by a run of the policy self-refine.
What is wrong is counted and named. An interrupted sampling goes on when it is started again.

Examples:
  warpsmith metrics sample kernelbench/families/* --kernels 24 --out profiles.parquet
  warpsmith metrics sample TASK --kernels 100 --keep 5 --out profiles.parquet
  warpsmith run TASK --policy self-refine --rounds 100 --model openai:NAME --out runs/o3
  warpsmith metrics sample TASK --from runs/o3 --out profiles.parquet";

/// `metrics show`
#[derive(Debug, Args)]
pub struct MetricsShowArgs {
    /// The set: a file, or cudaforge24, which comes with the program.
    pub set: String,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

const SHOW_EXAMPLES: &str = "\
Examples:
  warpsmith metrics show cudaforge24
  warpsmith metrics show metrics/sets/hopper24.toml";
