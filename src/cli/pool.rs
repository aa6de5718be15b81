//! What can be asked about kernels that were certified earlier?

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `pool`
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Admit the certified kernel of a run: its record is verified first.
    Add(PoolAddArgs),
    /// Have a model say what a run taught, whose kernel is in the pool, for models of later runs.
    Reflect(PoolReflectArgs),
    /// List the kernels: what they compute, how fast, on which machine.
    List(PoolListArgs),
}

/// `pool add`
#[derive(Debug, Args)]
pub struct PoolAddArgs {
    /// The run's folder.
    pub run: PathBuf,
    /// Of this task, where the run has several.
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// What the kernel computes, in a word such as `gemm` [default: the task's name].
    #[arg(long = "as", value_name = "NAME")]
    pub workload: Option<String>,
    /// The pool's folder [default: that of the settings, else `pool`].
    #[arg(long, value_name = "DIR")]
    pub pool: Option<PathBuf>,
    /// Admit what a simulation made up, too: only to try a pool out.
    #[arg(long)]
    pub simulated: bool,
}

/// `pool reflect`
#[derive(Debug, Args)]
pub struct PoolReflectArgs {
    /// The run's folder.
    pub run: PathBuf,
    /// Of this task, where the run has several.
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// What is asked, once: openai:NAME, mailbox:DIR or scripted:FILE.
    #[arg(long, value_name = "SPEC")]
    pub model: String,
    /// With a mailbox as the model: end with code 10 once nothing but its reply is missing, instead of waiting.
    #[arg(long)]
    pub exit_when_waiting: bool,
    /// The pool's folder [default: that of the settings, else `pool`].
    #[arg(long, value_name = "DIR")]
    pub pool: Option<PathBuf>,
}

/// `pool list`
#[derive(Debug, Args)]
pub struct PoolListArgs {
    /// The pool's folder [default: that of the settings, else `pool`].
    #[arg(long, value_name = "DIR")]
    pub pool: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What help shows.
pub(super) const EXAMPLES: &str = "\
A pool is a folder of plain files, for each architecture the fastest certified kernel of each workload and precision. With
`[prompts] pool` set to it, the first prompt of a run shows the two that are nearest to its task. A kernel that is wrong, not
faster, or takes its work from a library is not admitted. `reflect` asks a model what the run taught, and later runs are shown
that beside the kernel.

Examples:
  warpsmith pool add RUN --as gemm
  warpsmith pool reflect RUN --model openai:NAME
  warpsmith pool list";
