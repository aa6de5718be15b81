//! What can be asked about metrics?

use super::TimingArgs;
use clap::{Args, Subcommand};
use std::{ffi::OsString, path::PathBuf};

/// `metrics`
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// Build `warpsmith-metrics` first, if it is not installed: in a checkout, with cargo, which takes some minutes.
    #[arg(long)]
    pub build: bool,
    /// What to do.
    #[command(subcommand)]
    pub what: Metrics,
}

/// The commands about metrics. Those that need tables of profiles are `warpsmith-metrics`'.
#[derive(Debug, Subcommand)]
pub enum Metrics {
    /// Time many kernels of each task, and profile the fastest and the slowest with everything that Nsight Compute reads.
    #[command(after_help = SAMPLE_EXAMPLES)]
    Sample(MetricsSampleArgs),
    /// Choose the metrics that tell a fast kernel from a slow one, from profiles, without a GPU.
    #[command(disable_help_flag = true)]
    Select(HandedOver),
    /// Say how well sets that were chosen on some tasks rank the kernels of another.
    #[command(disable_help_flag = true)]
    Score(HandedOver),
    /// Print a set of metrics as a table.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(MetricsShowArgs),
    /// Write one HTML file about profiles: correlations, scatter plots, what the tasks have in common.
    #[command(disable_help_flag = true)]
    Report(HandedOver),
}

/// Words that another program reads.
#[derive(Debug, Args)]
pub struct HandedOver {
    /// What the program beside this one is told; `--help` shows it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub arguments: Vec<OsString>,
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
    #[arg(long, short, value_name = "FILE")]
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
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub timing: TimingArgs,
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
  warpsmith metrics show metrics/sets/cudaforge24.toml --json";
