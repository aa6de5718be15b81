//! What can be asked about transformations, and about the checkpoints that they lead to?

use super::{GpusArgs, HandArgs, LimitArgs, ModelArgs, TimingArgs};
use agents::workflow::TuningPlan;
use clap::Args;
use kernelbench::Tuner;
use std::path::PathBuf;

/// `transform`
#[derive(Debug, Args)]
pub struct TransformArgs {
    /// What to transform: a task (a folder that holds a task.toml with regions in its reference), which begins a run, or a
    /// run's head, or one of its checkpoints as RUN@NAME.
    #[arg(value_name = "TASK|RUN[@NAME]", required_unless_present = "list")]
    pub what: Option<String>,
    /// The transformation's name; --list has all.
    #[arg(required_unless_present = "list")]
    pub name: Option<String>,
    /// List the transformations instead.
    #[arg(long, conflicts_with_all = ["edit", "pause"])]
    pub list: bool,
    /// Of the list, those for this backend: cuda, hip, hlsl or cpu.
    #[arg(long, value_name = "NAME", requires = "list")]
    pub backend: Option<String>,
    /// For a task: the initial context is this candidate of a run, such as RUN@best, and not the task's reference.
    #[arg(long, value_name = "RUN@NAME", conflicts_with = "list")]
    pub from: Option<String>,
    /// What the model is told beside the transformation.
    #[arg(long, value_name = "TEXT")]
    pub say: Option<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub hand: HandArgs,
    /// How often it is tried before the context stays what it was [default: as the transformation says, three].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20))]
    pub tries: Option<u32>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub tuning: TuningArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub model: ModelArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub limits: LimitArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub timing: TimingArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub gpus: GpusArgs,
    /// For a task: the run's folder, which must not exist or be empty [default: runs/TIME-TASK].
    #[arg(long, short, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// For a task: on a simulated machine, where nothing is compiled or run and the times are made up.
    #[arg(long)]
    pub simulate: bool,
    /// Print as JSON: the list, or every event and a last line with the outcome.
    #[arg(long)]
    pub json: bool,
}

/// How configurations are searched.
#[derive(Clone, Copy, Debug, Args)]
pub struct TuningArgs {
    /// How configurations are chosen: exhaustive, sampled or tpe [default: all if --tests allows it, else sampled].
    #[arg(long, value_name = "NAME")]
    pub tuner: Option<Tuner>,
    /// How many configurations are timed at most; exhaustive times all [default: as the policy says, 2000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub tests: Option<u32>,
    /// How many of the fastest are kept, times the next transformation's values [default: as the policy says, 128].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub keep: Option<u32>,
}

impl From<TuningArgs> for TuningPlan {
    fn from(given: TuningArgs) -> Self {
        let count = |number: Option<u32>| number.map(|number| number as usize);
        Self { tuner: given.tuner, tests: count(given.tests), keep: count(given.keep), seed: None }
    }
}

/// `tune`
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// The checkpoint: RUN for the head, or RUN@NAME.
    #[arg(value_name = "RUN[@NAME]")]
    pub at: String,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub tuning: TuningArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub limits: LimitArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub gpus: GpusArgs,
    /// Print every event as a line of JSON, and a last line with the outcome.
    #[arg(long)]
    pub json: bool,
}

/// `tree`
#[derive(Debug, Args)]
pub struct TreeArgs {
    /// The run's folder.
    pub run: PathBuf,
    /// Of a batch: the task's name.
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `checkpoint` and `branch`
#[derive(Debug, Args)]
pub struct NewNameArgs {
    /// The checkpoint: RUN for the head, or RUN@NAME.
    #[arg(value_name = "RUN[@NAME]")]
    pub at: String,
    /// The new name.
    #[arg(value_name = "NEW")]
    pub name: String,
}

/// `restore`
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The checkpoint, or the branch that is to go on: RUN@NAME.
    #[arg(value_name = "RUN@NAME")]
    pub at: String,
}

pub(super) const TRANSFORM_EXAMPLES: &str = "\
A transformation rewrites one region of a kernel at a time; what comes of it is checked, tuned and kept as a checkpoint.
Ends with 0 if it made one, with 1 if every try failed. docs/PEAK.md is a page about it.

Examples:
  warpsmith transform --list --backend cpu
  warpsmith transform examples/matmul Refactor --model openai:NAME --out W
  warpsmith transform examples/matmul Refactor --from RUN@best --model openai:NAME
  warpsmith transform W TB-Tiling --model openai:NAME
  warpsmith transform W@c1 TB-Tiling --say \"keep the loop over K outermost\" --tries 1
  warpsmith transform W@c1 TB-Tiling --model openai:NAME --say \"two stages only\" --edit
  warpsmith run examples/matmul --policy peak-x1-85 --model openai:NAME";

pub(super) const TUNE_EXAMPLES: &str = "\
The whole space of the checkpoint is searched again, not the values alone that were kept; what comes of it is a checkpoint.

Examples:
  warpsmith tune W
  warpsmith tune W@c8 --tuner tpe --tests 1000 --keep 128";

pub(super) const TREE_EXAMPLES: &str = "Examples:\n  warpsmith tree W\n  warpsmith tree W --json";
pub(super) const CHECKPOINT_EXAMPLES: &str = "Example:\n  warpsmith checkpoint W@c7 pipelined";
pub(super) const BRANCH_EXAMPLES: &str = "Example:\n  warpsmith branch W@c7 no-split      # and W goes on from there";
pub(super) const RESTORE_EXAMPLES: &str = "Examples:\n  warpsmith restore W@c7              # the branch that goes on is set back to it\n  warpsmith restore W@main            # that branch goes on";
