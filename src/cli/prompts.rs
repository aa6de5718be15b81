//! The arguments of `warpsmith prompts`: which template is printed, or which prompt is rendered.

use super::NameArgs;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// What help shows.
pub(super) const EXAMPLES: &str = "Examples:\n  warpsmith prompts\n  warpsmith prompts seed\n  \
                                   warpsmith prompts render examples/problems/level1/2_Matmul.py --step optimize\n  \
                                   warpsmith prompts render --run runs/mine --round 3 --role judge";

/// `prompts`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PromptsArgs {
    /// Render a prompt.
    #[command(subcommand)]
    pub render: Option<PromptsCommand>,
    /// The template to print.
    #[command(flatten)]
    pub name: NameArgs,
}

/// What else `prompts` does.
#[derive(Debug, Subcommand)]
pub enum PromptsCommand {
    /// Print the prompt that a role would be sent for a task, or in a round of a run.
    Render(RenderArgs),
}

/// `prompts render`
#[derive(Args, Debug)]
pub struct RenderArgs {
    /// The task: a folder, or a file in KernelBench's format; with `--run`, the name of one of its tasks.
    pub task: Option<String>,
    /// Who would be asked.
    #[arg(long, value_enum, default_value_t = RenderRole::Coder)]
    pub role: RenderRole,
    /// For what: seed, fix, optimize, refine, retry, suggest or shapes; by default, the round's step, or seed.
    #[arg(long)]
    pub step: Option<String>,
    /// A run whose record says what was known.
    #[arg(long)]
    pub run: Option<PathBuf>,
    /// The run's round; by default, the last.
    #[arg(long)]
    pub round: Option<u32>,
    /// Print as JSON: the system part and the turns.
    #[arg(long)]
    pub json: bool,
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RenderRole {
    /// Writes candidates.
    Coder,
    /// Gives one fix or one optimization.
    Judge,
    /// Suggests what to change.
    Planner,
    /// Chooses shapes.
    Tester,
}

impl RenderRole {
    /// As the command line says it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Coder => "coder",
            Self::Judge => "judge",
            Self::Planner => "planner",
            Self::Tester => "tester",
        }
    }
}
