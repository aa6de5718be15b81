//! What can be asked about workflows and models, after PEAK's research questions (PEAK §5)?

use clap::{Args, Subcommand};
use kernelbench::Tuner;
use std::path::PathBuf;

/// `study`
#[derive(Debug, Subcommand)]
pub enum StudyCommand {
    /// How speed evolves along a run's transformations: cumulative, and step by step (RQ1).
    #[command(visible_alias = "rq1")]
    Trajectory(TrajectoryArgs),
    /// How often each model gets each transformation right: single tries, each from the run's correct checkpoint (RQ2).
    #[command(visible_alias = "rq2")]
    SuccessRate(SuccessRateArgs),
    /// Which errors the failed tries of a success-rate study were, by model (RQ3).
    #[command(visible_alias = "rq3")]
    Errors(StudyErrorsArgs),
    /// What a search finds by the number of configurations that it may test (RQ3).
    #[command(visible_alias = "rq3-depth")]
    TuningDepth(TuningDepthArgs),
}

/// `study trajectory`
#[derive(Debug, Args)]
pub struct TrajectoryArgs {
    /// The run, up to its head or to one of its checkpoints.
    #[arg(value_name = "RUN[@NAME]")]
    pub run: String,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `study success-rate`
#[derive(Debug, Args)]
pub struct SuccessRateArgs {
    /// The run whose steps are tried, up to its head or to one of its checkpoints.
    #[arg(value_name = "RUN[@NAME]")]
    pub run: String,
    /// What answers, once for each model: openai:NAME, openai-batch:NAME, mailbox:DIR or scripted:FILE.
    #[arg(long, value_name = "SPEC")]
    pub model: Vec<String>,
    /// How often each model tries each step.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// The study's folder; the same command again goes on with it [default: runs/TIME-TASK-success-rate].
    #[arg(long, short, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// End a model's tries when they have cost so many dollars; the same command with more goes on.
    #[arg(long, value_name = "N", value_parser = dollars, help_heading = "Limits of each model")]
    pub usd: Option<f64>,
    /// The same after so many tokens, prompts and replies.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Limits of each model")]
    pub tokens: Option<u64>,
    /// With a mailbox as the model: end with code 10 once nothing but replies is missing, instead of waiting.
    #[arg(long)]
    pub exit_when_waiting: bool,
    /// Print the table as JSON, and nothing else.
    #[arg(long)]
    pub json: bool,
}

fn dollars(text: &str) -> Result<f64, String> {
    let read = text.parse().ok().filter(|usd: &f64| usd.is_finite() && *usd > 0.0);
    read.ok_or_else(|| "expected dollars, more than 0".to_owned())
}

/// `study errors`
#[derive(Debug, Args)]
pub struct StudyErrorsArgs {
    /// The folder of a success-rate study.
    pub study: PathBuf,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `study tuning-depth`
#[derive(Debug, Args)]
pub struct TuningDepthArgs {
    /// The run, at its head or at one of its checkpoints, whose whole space is searched.
    #[arg(value_name = "RUN[@NAME]")]
    pub run: String,
    /// How many configurations are timed, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "500,1000,2000",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub tests: Vec<u32>,
    /// How often each is repeated, with other draws.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// How configurations are chosen: sampled or tpe; exhaustive times all, however many are allowed.
    #[arg(long, value_name = "NAME", default_value_t = Tuner::Tpe)]
    pub tuner: Tuner,
    /// The study's folder, a run of its own; the same command again goes on with it [default: runs/TIME-TASK-tuning-depth].
    #[arg(long, short, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the table as JSON, and nothing else.
    #[arg(long)]
    pub json: bool,
}

pub(super) const EXAMPLES: &str = "\
A study begins from a workflow's checkpoints, in folders of its own: the run itself stays as it is. A try asks each call once,
starts from the run's correct checkpoint, and succeeds if it compiles and agrees with the reference in the drawn configurations.

Examples:
  warpsmith study trajectory W
  warpsmith study success-rate W --model openai:A --model openai:B --repeats 5 --out S
  warpsmith study errors S
  warpsmith study tuning-depth W --tests 500,1000,2000 --repeats 5 --out D";
