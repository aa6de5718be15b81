//! What can be asked about candidates that are there already?

use super::{ProblemArgs, TimingArgs};
use clap::{Args, builder::NonEmptyStringValueParser};
use std::path::PathBuf;

/// `evaluate`
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct EvaluateArgs {
    /// The task: a folder that holds a task.toml, or a problem in KernelBench's format (a Python file); or a candidate of a
    /// run as RUN@NAME, with the run's task.
    #[arg(value_name = "TASK|RUN@NAME")]
    pub task: PathBuf,
    /// The candidates: source files, evaluated one after another; `-` is standard input, RUN@NAME a candidate of a run: a
    /// checkpoint, a round's number, `best`, `reference`, or the first digits of an id.
    #[arg(value_name = "CANDIDATE")]
    pub candidates: Vec<PathBuf>,
    /// A value for one of the task's tuning parameters, which the candidate names as {{NAME}}; can be repeated. What is left
    /// open is searched.
    #[arg(long, value_name = "NAME=VALUE", value_parser = binding)]
    pub bind: Vec<(String, kernelbench::Parameter)>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub problem: ProblemArgs,
    /// Of a task in HIP: where it runs. `cuda` is an NVIDIA GPU, by a header with CUDA's functions by HIP's names; without it
    /// nothing is run. AMD's own instructions do not build there, and a warp has 32 lanes.
    #[arg(long, value_name = "NAME", value_parser = ["cuda"])]
    pub backend: Option<String>,
    /// Profile it too, if it is correct.
    #[arg(long)]
    pub profile: bool,
    /// Certify it too: rebuild it, check and time it with fresh seeds and on further shapes. A kernel in HIP is compiled and
    /// not run, and never certified; with --backend cuda it is one in CUDA.
    #[arg(long)]
    pub certify: bool,
    /// The policy whose timing is used.
    #[arg(long, value_name = "NAME|FILE", value_parser = NonEmptyStringValueParser::new())]
    pub policy: Option<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub timing: TimingArgs,
    /// On a simulated machine: nothing is compiled or run, the times are made up.
    #[arg(long)]
    pub simulate: bool,
    /// Print the outcome as JSON.
    #[arg(long)]
    pub json: bool,
}

/// A binding as it stands on the command line.
fn binding(text: &str) -> Result<(String, kernelbench::Parameter), String> {
    let parts = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    let (name, value) = parts.ok_or("expected NAME=VALUE, such as TILE=64")?;
    Ok((name.to_owned(), value.into()))
}

/// What `--help` shows below the options.
pub(super) const EXAMPLES: &str = "\
Ends with 0 if the candidate is correct, with 1 if it is not. Of a kernel in HIP, which is compiled and not run, with 0 if it
compiles.

Examples:
  warpsmith evaluate examples/silu_and_mul mine.cpp
  warpsmith evaluate KernelBench/level1/29_Softplus.py mine.py --profile
  warpsmith evaluate examples/silu_and_mul mine.cpp --certify --json
  warpsmith evaluate RUN@best --profile                                   # on the run's own task
  warpsmith evaluate examples/matmul W@c7 W@pipelined mine.cpp
  warpsmith evaluate examples/hip/matmul_fp32 mine.hip --backend cuda     # is it right? on an NVIDIA GPU";
