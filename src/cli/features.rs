//! What can be asked about features?

use super::ModelArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `features`
#[derive(Debug, Subcommand)]
pub enum FeaturesCommand {
    /// List the features of each architecture: the counter that proves each, and how far it was proved.
    List(FeaturesListArgs),
    /// Print a feature's guide, its evidence and what its counters read.
    Show(FeaturesShowArgs),
    /// List the texts about an architecture's instructions and patterns, and what each adds to a prompt, in tokens.
    Modules(FeaturesListArgs),
    /// Prove that each feature of an architecture fires: both kernels are right, and its counters tell them apart.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(FeaturesVerifyArgs),
    /// Say how kernels came about: the best against turns and tokens, what each accepted step brought, strategies in common.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(FeaturesReportArgs),
    /// Ask a model once for each feature, and say how many it brings in at its first try (Pass@1), and how the others fail.
    #[command(after_help = SCORE_EXAMPLES)]
    Score(FeaturesScoreArgs),
}

/// `features list`
#[derive(Debug, Args)]
pub struct FeaturesListArgs {
    /// Of this architecture alone: its name, or one that a compiler knows, such as `sm_90`.
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `features show`
#[derive(Debug, Args)]
pub struct FeaturesShowArgs {
    /// The feature: its name, its folder or its row's number.
    pub name: String,
    /// Of this architecture [default: the first that has it].
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// Print the kernel that uses it instead.
    #[arg(long)]
    pub kernel: bool,
}

/// `features verify`
#[derive(Debug, Args)]
pub struct FeaturesVerifyArgs {
    /// The architecture: its name, or one that a compiler knows, such as `sm_90`.
    #[arg(long, value_name = "NAME")]
    pub arch: String,
    /// This feature alone; may be given again.
    #[arg(long, value_name = "NAME")]
    pub cell: Vec<String>,
    /// Where the kernels and what was found are kept; what is there already is not found out again.
    #[arg(long, short, value_name = "DIR", default_value = "features-proved")]
    pub out: PathBuf,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `features score`
#[derive(Debug, Args)]
pub struct FeaturesScoreArgs {
    /// The architecture: its name, or one that a compiler knows, such as `sm_90`.
    #[arg(long, value_name = "NAME")]
    pub arch: String,
    /// This feature alone; may be given again.
    #[arg(long, value_name = "NAME")]
    pub cell: Vec<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub model: ModelArgs,
    /// Where replies are kept; what is there is not asked for again.
    #[arg(long, short, value_name = "DIR", default_value = "features-scored")]
    pub out: PathBuf,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `features report`
#[derive(Debug, Args)]
pub struct FeaturesReportArgs {
    /// Folders of runs.
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// An expert's speed in the same unit: a run that comes to a tenth of it or less collapsed.
    #[arg(long, value_name = "SPEED")]
    pub expert: Option<f64>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

const REPORT_EXAMPLES: &str = "\
Speeds are TFLOPS (GFLOPS on a processor) where the task says how many operations it takes, else times the reference's. Each
accepted step is credited to the target counter of its feature if that fired, else to time alone; the credits of a run add up to
its last head's speed. Strategies are found by words of the source.

Example:
  warpsmith features report RUN RUN --expert 660";

/// What help shows.
pub(super) const EXAMPLES: &str = "\
A feature is a strategy as one architecture does it: a small task, a kernel that does without it, one that uses it, and the
counters that tell them apart. docs/FEATURES.md is a page about them.

Examples:
  warpsmith features list --arch hopper
  warpsmith features show wgmma
  warpsmith features verify --arch hopper -o proved
  warpsmith run TASK --features guides --model openai:NAME";

const SCORE_EXAMPLES: &str = "\
A reply passes where it compiles, is right, and its target counter comes to 99 % of the example's. The others are sorted: invalid
syntax for the right strategy, no gain, what belongs to another architecture. Without a GPU it is only said what compiles.

Example:
  warpsmith features score --arch hopper --model openai:NAME -o scored";

const VERIFY_EXAMPLES: &str = "\
Without a GPU of the architecture it says only whether both kernels build, and whether the instruction is in one and not in
the other. Ends with 0 if all are as the list says, with 1 if one did not fire, with 3 where this machine cannot say.

Examples:
  warpsmith features verify --arch hopper
  warpsmith features verify --arch hopper --cell wgmma -o proved";
