//! `warpsmith sglang validate`: an export, checked and timed inside SGLang

use crate::{
    command::say,
    config::Layers,
    exit::{Exit, Trouble},
};
use clap::Args;
use sglang::validate::Order;
use std::path::PathBuf;

/// `sglang validate`
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// The folder of an export as plug-in.
    pub plugin: PathBuf,
    /// These operators alone.
    #[arg(long, value_name = "OP")]
    pub op: Vec<String>,
    /// SGLang's source tree, whose tests of the operator are run with the kernel in place.
    #[arg(long, value_name = "TREE")]
    pub tests: Option<PathBuf>,
    /// The Python that has SGLang [default: workshop.python, or python3].
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
    /// Where the result is written as JSON, with every sample.
    #[arg(long, value_name = "FILE", default_value = "validation.json")]
    pub result: PathBuf,
    /// How often each shape is timed: replays of a graph of many calls, interleaved.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub repetitions: u32,
    /// Do not run the tree's tests: take nothing from it but the text of the original, where that is not installed.
    #[arg(long)]
    pub no_tests: bool,
    /// Check only: no times.
    #[arg(long)]
    pub no_timing: bool,
}

/// What `--help` shows below the options.
pub(crate) const EXAMPLES: &str = "\
It installs the plug-in into a folder of its own, loads it as SGLang does, and compares it with the original on shapes that
neither the loop nor the certificate had. It ends with 1 where anything failed.

Example:
  warpsmith sglang validate plugin --op silu_and_mul --tests ~/sglang --result silu.json";

/// Runs the scripts and says how they ended.
pub(super) fn validate(arguments: &ValidateArgs, layers: &Layers) -> Result<Exit, Trouble> {
    if !arguments.plugin.join("pyproject.toml").is_file() {
        let why = "this is no export as plug-in: make one with `warpsmith sglang export RUN --as plugin -o DIR`";
        return Err(Trouble::usage(format!("{}: {why}", arguments.plugin.display())));
    }
    let order = Order {
        plugin: &arguments.plugin,
        operators: &arguments.op,
        tests: arguments.tests.as_deref(),
        result: &arguments.result,
        repetitions: arguments.repetitions,
        own_tests: !arguments.no_tests,
        timing: !arguments.no_timing,
    };
    let ended = order.run(&super::python(arguments.python.as_deref(), layers))?;
    ended.speedups.iter().for_each(|line| say(line));
    say(&format!("written    {}", arguments.result.display()));
    Ok(if ended.passed { Exit::Done } else { Exit::NothingCorrect })
}
