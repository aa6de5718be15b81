//! What can be asked of `warpsmith-metrics`?

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Tells which metrics tell a fast kernel from a slow one, from tables of profiles. `warpsmith metrics` hands over to it.
#[derive(Debug, Parser)]
#[command(name = "warpsmith metrics", bin_name = "warpsmith metrics", version, max_term_width = 110)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Choose the metrics that tell a fast kernel from a slow one, from profiles, without a GPU.
    #[command(after_help = SELECT_EXAMPLES)]
    Select(SelectArgs),
    /// Say how well sets that were chosen on some tasks rank the kernels of another.
    #[command(after_help = SCORE_EXAMPLES)]
    Score(ScoreArgs),
    /// Write one HTML file about profiles: correlations, scatter plots, what the tasks have in common.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Write the table of the profiles that come in, a line of JSON each: what `warpsmith metrics sample` asks for.
    #[command(hide = true)]
    Table(OutArgs),
    /// Write the columns that come in as JSON to a Parquet file: what `warpsmith scores` asks for.
    #[command(hide = true)]
    Columns(OutArgs),
}

/// A file to write.
#[derive(Debug, Args)]
pub(crate) struct OutArgs {
    /// Where to write it.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

/// Tables of profiles, and when metrics count.
#[derive(Debug, Args)]
pub(crate) struct ProfilesArgs {
    /// Tables of profiles, as `warpsmith metrics sample` writes them.
    #[arg(required = true, value_name = "PROFILES")]
    pub(crate) profiles: Vec<PathBuf>,
    /// How long each task's list of the highest |r| is.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = positive)]
    pub(crate) top: usize,
    /// How many metrics are wanted; fewer are taken where the rule finds fewer.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = positive)]
    pub(crate) want: usize,
    /// In how many tasks a metric must appear, with one sign.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = positive)]
    pub(crate) tasks: usize,
    /// Rule `public`: above which percentile of all mean |r| a metric must be.
    #[arg(long, value_name = "P", default_value_t = 75.0, value_parser = within::<0, 100>)]
    pub(crate) percentile: f64,
    /// From which size of their correlation two metrics say the same, and one of them goes.
    #[arg(long, value_name = "R", default_value_t = 0.95, value_parser = within::<0, 1>)]
    pub(crate) collinear: f64,
    /// The share of a task's kernels for which a metric must have a value.
    #[arg(long, value_name = "SHARE", default_value_t = 0.8, value_parser = within::<0, 1>)]
    pub(crate) present: f64,
}

/// `metrics select`
#[derive(Debug, Args)]
pub(crate) struct SelectArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfilesArgs,
    /// How to choose.
    #[arg(long, value_enum, default_value_t = RuleArg::Stable)]
    pub(crate) rule: RuleArg,
    /// Rule `random`: what is drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The set's name [default: the file's].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Where to write the set [default: the terminal].
    #[arg(long, short, value_name = "SET.toml")]
    pub(crate) out: Option<PathBuf>,
}

/// `metrics score`
#[derive(Debug, Args)]
pub(crate) struct ScoreArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfilesArgs,
    /// Sets to score as they are, each a file or cudaforge24; their authors may have seen the tasks.
    #[arg(long, value_name = "SET", default_value = "cudaforge24")]
    pub(crate) set: Vec<String>,
    /// How many random sets are drawn.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = positive)]
    pub(crate) seeds: usize,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `metrics report`
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) profiles: ProfilesArgs,
    /// Where to write it.
    #[arg(long, short, value_name = "FILE", default_value = "metrics.html")]
    pub(crate) out: PathBuf,
}

/// How metrics are chosen.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RuleArg {
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
1 is the true order, 0 is chance. A score with a * is of a task that the set itself was chosen on.

Examples:
  warpsmith metrics score profiles.parquet
  warpsmith metrics score profiles.parquet --set cudaforge24 --set mine.toml --json";

const REPORT_EXAMPLES: &str = "\
Examples:
  warpsmith metrics report profiles.parquet --out metrics.html";
