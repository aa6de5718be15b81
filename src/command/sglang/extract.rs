//! `warpsmith sglang extract`: an operator's file, its headers and a C entry, as a task

use super::FrameworkArgs;
use crate::{
    command::{json, say},
    config::Layers,
    exit::{Exit, Trouble},
    wiring,
};
use clap::Args;
use kernelbench::{Gate, cuda, load};
use metrics::Arch;
use serde_json::{Value, json};
use sglang::{
    extract::{self, Extract, Order},
    gate, operator,
    tree::Tree,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) const EXAMPLES: &str = "\
Examples:
  warpsmith sglang extract silu_and_mul -o silu
  warpsmith sglang extract merge_attn_states -o merge --dtype fp16 --sglang ~/sglang --headers ~/flashinfer/csrc
  warpsmith run silu --policy astra --model openai:NAME";

/// `sglang extract`
#[derive(Debug, Args)]
pub struct ExtractArgs {
    /// The operator, as `warpsmith sglang list` names it.
    pub operator: String,
    /// The task's folder, which must not exist or be empty.
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// The type of its elements: bf16 or fp16.
    #[arg(long, value_name = "TYPE", default_value = "bf16")]
    pub dtype: String,
    #[command(flatten)]
    pub framework: FrameworkArgs,
    /// A further folder of headers; may be given several times.
    #[arg(long, value_name = "DIR")]
    pub headers: Vec<PathBuf>,
    /// Do not compare it with the framework's own operator.
    #[arg(long)]
    pub no_gate: bool,
    /// Print what came of it as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Takes it out, builds it, and compares it with the framework's own.
pub(super) fn extract(arguments: &ExtractArgs, layers: &Layers) -> Result<Exit, Trouble> {
    let operator = operator::named(&arguments.operator).map_err(Trouble::usage)?;
    let precision = operator.precision(&arguments.dtype).map_err(Trouble::usage)?;
    if let Some(folder) = arguments.headers.iter().find(|folder| !folder.is_dir()) {
        return Err(Trouble::usage(format!("--headers {}: there is no such folder", folder.display())));
    }
    let tree = arguments.framework.tree(layers)?;
    let nvcc = cuda::find_nvcc().ok_or_else(|| {
        Trouble::machine(
            "there is no nvcc, which says what headers a file needs: install the CUDA toolkit, or name one in NVCC",
        )
    })?;
    let python = arguments.framework.python(layers);
    let order = Order {
        operator: &operator,
        precision,
        tree: &tree,
        headers: &arguments.headers,
        python: &python,
        nvcc: &nvcc,
    };
    let made = extract::gather(&order).map_err(Trouble::usage)?;
    made.write(&arguments.out).map_err(Trouble::usage)?;
    let library = build(&arguments.out, layers)?;
    let (verdict, exit) = judge(&order, &library, arguments)?;
    if arguments.json {
        say(&json(&json!({"folder": arguments.out, "manifest": made.manifest, "gate": verdict})));
    } else {
        tell(&operator.name, &tree, &made, &arguments.out, &verdict);
    }
    Ok(exit)
}

/// Builds the extract as every candidate will be built, for the architecture that its flags are of.
fn build(folder: &Path, layers: &Layers) -> Result<PathBuf, Trouble> {
    let task = load::task(folder)?;
    let program =
        std::env::current_exe().map_err(|e| Trouble::machine(format!("cannot find this program's own file: {e}")))?;
    let cache = wiring::cache_folder(&layers.config)?.join("builds");
    let options = cuda::Options::new(program, vec![wiring::CHILD.into()], cache);
    cuda::build_reference(&options, Arch::Cuda { major: 9, minor: 0 }, &task)?.map_err(|failure| {
        let log = match &failure {
            kernelbench::Failure::Build { log } | kernelbench::Failure::Interface { log } => log.clone(),
            other => other.to_string(),
        };
        let kept = match extract::judged(folder, Gate::Refused) {
            Ok(()) => "kept to look at, and no task: its task.toml is now task.refused.toml".to_owned(),
            Err(why) => why,
        };
        Trouble::usage(format!(
            "what was taken out does not build for sm_90a: this version's file is another than the one known here; the folder {} is {kept}\n{log}",
            folder.display()
        ))
    })
}

/// Runs the gate where there is a GPU, and writes down what it said.
fn judge(order: &Order<'_>, library: &Path, arguments: &ExtractArgs) -> Result<(Value, Exit), Trouble> {
    let skipped = |why: &str| Ok((json!({"ran": false, "why": why}), Exit::Done));
    if arguments.no_gate {
        return skipped("not asked for (--no-gate)");
    }
    if !wiring::has_gpu() {
        return skipped(
            "no GPU; take the same out on a machine with one and with this SGLang before its speedups are believed",
        );
    }
    let report = gate::run(order, library, &arguments.out).map_err(|why| {
        match extract::judged(&arguments.out, Gate::Refused) {
            Ok(()) => Trouble::machine(why),
            Err(worse) => Trouble::machine(format!("{why}; {worse}")),
        }
    })?;
    let refusal = report.refusal();
    let verdict =
        json!({"ran": true, "passed": refusal.is_none(), "refusal": refusal, "mean": report.mean(), "report": report});
    let place = arguments.out.join("gate.json");
    fs::write(&place, json(&verdict))
        .map_err(|e| Trouble::machine(format!("cannot write {}: {e}", place.display())))?;
    let (said, exit) =
        if refusal.is_none() { (Gate::Passed, Exit::Done) } else { (Gate::Refused, Exit::NothingCorrect) };
    extract::judged(&arguments.out, said).map_err(Trouble::machine)?;
    Ok((verdict, exit))
}

fn tell(name: &str, tree: &Tree, made: &Extract, folder: &Path, verdict: &Value) {
    let headers = made.headers.len();
    say(&format!("{name} of SGLang {}: {} with {headers} headers, built for sm_90a", tree.version, folder.display()));
    if let Some(checkout) = tree.checkout.as_ref().filter(|checkout| !checkout.dirty.is_empty()) {
        say(&format!(
            "note: this tree differs from its commit {} (files: {}; manifest.json names them); if others are to get the same, commit or undo that, and take it out again",
            checkout.commit,
            checkout.dirty.len()
        ));
    }
    for changed in &made.since_release {
        say(&format!("note: {changed}"));
    }
    match (verdict["ran"].as_bool(), verdict["refusal"].as_str()) {
        (Some(true), None) => {
            let mean = verdict["mean"].as_f64().unwrap_or(f64::NAN);
            let count = verdict["report"]["cases"].as_array().map_or(0, Vec::len);
            say(&format!("gate: passed on {count} shapes: the same bits, {mean:.3} of the framework's time"));
        }
        (Some(true), Some(why)) => {
            say(&format!("gate: refused: {why}; gate.json has every shape, and task.toml is now task.refused.toml"));
        }
        _ => say(&format!("gate: not run ({})", verdict["why"].as_str().unwrap_or_default())),
    }
}
