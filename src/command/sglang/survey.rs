//! `warpsmith sglang survey`: where does a model's step spend its time, and what of that can be taken out?

use super::FrameworkArgs;
use crate::{
    command::{json, say},
    config::Layers,
    exit::{Exit, Trouble},
};
use clap::Args;
use sglang::survey::{
    self, Options, Stage,
    engine::{self, Recording},
    table,
};
use std::path::{Path, PathBuf};

pub(crate) const EXAMPLES: &str = "\
Examples:
  warpsmith sglang survey --trace 1700000000-TP-0-DECODE.trace.json.gz --steps 4
  warpsmith sglang survey --model llama-3.1-8b --batch 1,16,64 --tokens 128,1024 -o traces   # needs SGLang and a GPU
  warpsmith sglang survey --trace decode.json --json | jq '.[0].kernels[:5]'";

/// `sglang survey`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["trace", "model"]))]
pub struct SurveyArgs {
    /// A trace that the profiler of PyTorch, or a server of SGLang, wrote, packed by gzip or not; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub trace: Vec<PathBuf>,
    /// Record traces of this model with random weights: llama-3.1-8b, qwen3-8b-fp8, qwen3-30b-a3b, or a config.json.
    #[arg(long, value_name = "CONFIG", conflicts_with = "trace", requires = "out")]
    pub model: Option<String>,
    /// What SGLang's engine is told beside it, an argument of its server by its name in Python; may be given several times.
    #[arg(long = "engine", value_name = "NAME=VALUE", requires = "model", value_parser = engine::setting)]
    pub settings: Vec<(String, serde_json::Value)>,
    /// Requests at once, with commas.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,16,64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub batch: Vec<u32>,
    /// Tokens of each prompt, with commas.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "128,1024", value_parser = clap::value_parser!(u32).range(1..=131_072))]
    pub tokens: Vec<u32>,
    /// Where the traces of --model go: a folder that does not exist or is empty.
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub framework: FrameworkArgs,
    /// The GPU whose roofline counts [default: the one that the trace names].
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,
    /// How many steps a trace holds, where it does not say it by annotations [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: Option<u32>,
    /// Every kernel and every pair, not only the first fifteen.
    #[arg(long)]
    pub all: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// Surveys traces, or records them first.
pub(super) fn survey(arguments: &SurveyArgs, layers: &Layers) -> Result<Exit, Trouble> {
    // Without a tree, what this program knows stands for it.
    let tree = arguments.framework.sglang.as_ref().map(|_| arguments.framework.tree(layers)).transpose()?;
    let options = Options { gpu: arguments.gpu.as_deref(), steps: arguments.steps, tree: tree.as_ref() };
    let mut stages = vec![];
    match (&arguments.model, &arguments.out) {
        (Some(model), Some(out)) => {
            let python = arguments.framework.python(layers);
            let asked = Recording {
                model,
                settings: &arguments.settings.iter().cloned().collect(),
                batches: &arguments.batch,
                tokens: &arguments.tokens,
            };
            let recorded = engine::record(&python, asked, out)?;
            if let Some(why) = &recorded.lacking {
                tracing::warn!("{why}");
            }
            for one in recorded.traces {
                let told = Options { steps: Some(one.steps), ..options };
                let named = |stage: Stage| Stage {
                    stage: format!("{}, {} requests of {} tokens", stage.stage, one.batch, one.tokens),
                    ..stage
                };
                stages.extend(of(&one.file, told)?.into_iter().map(named));
            }
        }
        _ => {
            for file in &arguments.trace {
                stages.extend(of(file, options)?);
            }
        }
    }
    if arguments.json {
        say(&json(&stages));
        return Ok(Exit::Done);
    }
    for stage in &stages {
        say(table::stage(stage, arguments.all).trim_end());
    }
    Ok(Exit::Done)
}

fn of(file: &Path, options: Options<'_>) -> Result<Vec<Stage>, Trouble> {
    survey::survey(file, options).map_err(Trouble::usage)
}
