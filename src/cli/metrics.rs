//! What can be asked about metrics?

use super::TimingArgs;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `metrics`
#[derive(Debug, Subcommand)]
pub enum Metrics {
    /// Time many kernels of each task, and profile the fastest and the slowest with everything that Nsight Compute reads.
    #[command(after_help = SAMPLE_EXAMPLES)]
    Sample(MetricsSampleArgs),
    /// Choose the metrics that tell a fast kernel from a slow one, from profiles, without a GPU.
    #[command(after_help = SELECT_EXAMPLES)]
    Select(MetricsSelectArgs),
    /// Say how well sets that were chosen on some tasks rank the kernels of another.
    #[command(after_help = SCORE_EXAMPLES)]
    Score(MetricsScoreArgs),
    /// Print a set of metrics as a table.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(MetricsShowArgs),
    /// Write one HTML file about profiles: correlations, scatter plots, what the tasks have in common.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(MetricsReportArgs),
}

/// Tables of profiles, and when metrics count.
#[derive(Debug, Args)]
pub struct ProfilesArgs {
    /// Tables of profiles, as `warpsmith metrics sample` writes them.
    #[arg(required = true, value_name = "PROFILES")]
    pub profiles: Vec<PathBuf>,
    /// How long each task's list of the highest |r| is.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = positive)]
    pub top: usize,
    /// How many metrics are wanted; fewer are taken where the rule finds fewer.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = positive)]
    pub want: usize,
    /// In how many tasks a metric must appear, with one sign.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = positive)]
    pub tasks: usize,
    /// Rule `public`: above which percentile of all mean |r| a metric must be.
    #[arg(long, value_name = "P", default_value_t = 75.0, value_parser = within::<0, 100>)]
    pub percentile: f64,
    /// From which size of their correlation two metrics say the same, and one of them goes.
    #[arg(long, value_name = "R", default_value_t = 0.95, value_parser = within::<0, 1>)]
    pub collinear: f64,
    /// The share of a task's kernels for which a metric must have a value.
    #[arg(long, value_name = "SHARE", default_value_t = 0.8, value_parser = within::<0, 1>)]
    pub present: f64,
}

/// `metrics select`
#[derive(Debug, Args)]
pub struct MetricsSelectArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub profiles: ProfilesArgs,
    /// How to choose.
    #[arg(long, value_enum, default_value_t = RuleArg::Stable)]
    pub rule: RuleArg,
    /// Rule `random`: what is drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The set's name [default: the file's].
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where to write the set [default: the terminal].
    #[arg(long, value_name = "SET.toml")]
    pub out: Option<PathBuf>,
}

/// `metrics score`
#[derive(Debug, Args)]
pub struct MetricsScoreArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub profiles: ProfilesArgs,
    /// Sets to score as they are, each a file or cudaforge24; their authors may have seen the tasks.
    #[arg(long, value_name = "SET", default_value = "cudaforge24")]
    pub set: Vec<String>,
    /// How many random sets are drawn.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = positive)]
    pub seeds: usize,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
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

/// `metrics report`
#[derive(Debug, Args)]
pub struct MetricsReportArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub profiles: ProfilesArgs,
    /// Where to write it.
    #[arg(long, value_name = "FILE", default_value = "metrics.html")]
    pub out: PathBuf,
}

/// How metrics are chosen.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RuleArg {
    /// Strong with one sign over all tasks, one after another, each unlike those before it.
    Stable,
    /// CudaForge's, as published: in the top lists of several tasks, with one sign, mean |r| above a percentile.
    Public,
    /// CudaForge's, as printed: in the top lists of all tasks. It cannot give more than a list is long.
    Intersection,
    /// The highest mean |r|.
    Top,
    /// Drawn by lot.
    Random,
    /// All that vary.
    Full,
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=10_000) => Ok(number),
        _ => Err("expected a number from 1 to 10000".to_owned()),
    }
}

fn within<const LOW: u8, const HIGH: u8>(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (f64::from(LOW)..=f64::from(HIGH)).contains(&number) => Ok(number),
        _ => Err(format!("expected a number from {LOW} to {HIGH}")),
    }
}

const SELECT_EXAMPLES: &str = "\
The same profiles and flags give the same file, byte for byte. Nothing is padded: a rule that finds fewer metrics than are
wanted gives fewer, and the file says what the cut was.

Examples:
  warpsmith metrics select profiles.parquet --top 20 --out hopper24.toml
  warpsmith metrics select profiles.parquet --rule public
  warpsmith metrics select profiles.parquet --rule random --seed 7 --out random24.toml";

const SCORE_EXAMPLES: &str = "\
Each task is left out in turn; sets are chosen and weighed on the others, and rank the kernels of the one left out.
1 is the true order, 0 is chance.

Examples:
  warpsmith metrics score profiles.parquet
  warpsmith metrics score profiles.parquet --set cudaforge24 --set mine.toml --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  warpsmith metrics show cudaforge24
  warpsmith metrics show metrics/sets/cudaforge24.toml --json";

const REPORT_EXAMPLES: &str = "\
Examples:
  warpsmith metrics report profiles.parquet --out metrics.html";
