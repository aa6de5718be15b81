//! `warpsmith sglang bench`: a whole model with a plug-in off and on

use super::python;
use crate::{
    command::say,
    config::Layers,
    exit::{Exit, Trouble},
};
use clap::Args;
use sglang::survey::{
    bench::{self, Order},
    engine,
};
use std::path::PathBuf;

pub(crate) const EXAMPLES: &str = "\
Example, with SGLang and a GPU:
  warpsmith sglang bench --model llama-3.1-8b --plugin plugin -o bench";

/// `sglang bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The model, with random weights: llama-3.1-8b, qwen3-8b-fp8, qwen3-30b-a3b, or a config.json.
    #[arg(long, value_name = "CONFIG")]
    pub model: String,
    /// What SGLang's engine is told beside it, an argument of its server by its name in Python; may be given several times.
    #[arg(long = "engine", value_name = "NAME=VALUE", value_parser = engine::setting)]
    pub settings: Vec<(String, serde_json::Value)>,
    /// The folder of an export as plug-in.
    #[arg(long, value_name = "DIR")]
    pub plugin: PathBuf,
    /// Where everything is written: a folder that does not exist or is empty.
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// Requests at once.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub batch: u32,
    /// Tokens of each prompt.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=131_072))]
    pub tokens: u32,
    /// Tokens of each answer.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..=16_384))]
    pub new: u32,
    /// Processes with the plug-in off, and as many with it on, in an order that is drawn.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    pub rounds: u32,
    /// The Python that has SGLang [default: workshop.python, or python3].
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
}

/// Serves it, and prints what came of it.
pub(super) fn bench(arguments: &BenchArgs, layers: &Layers) -> Result<Exit, Trouble> {
    let order = Order {
        model: &arguments.model,
        settings: &arguments.settings.iter().cloned().collect(),
        plugin: &arguments.plugin,
        out: &arguments.out,
        batch: arguments.batch,
        tokens: arguments.tokens,
        new: arguments.new,
        rounds: arguments.rounds,
    };
    for line in bench::bench(&order, &python(arguments.python.as_deref(), layers))? {
        say(&line);
    }
    Ok(Exit::Done)
}
