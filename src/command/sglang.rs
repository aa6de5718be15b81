//! `warpsmith sglang`: operators out of SGLang, and faster kernels back

mod bench;
pub(crate) mod export;
mod extract;
mod found;
mod list;
mod survey;
pub(crate) mod validate;

use crate::{
    config::Layers,
    exit::{Exit, Trouble},
};
use clap::{Args, Subcommand};
use sglang::tree::{self, Tree};
use std::path::PathBuf;

/// `sglang`
#[derive(Debug, Subcommand)]
pub enum Sglang {
    /// List the operators that can be taken out of an SGLang, and why others cannot.
    #[command(after_help = list::EXAMPLES)]
    List(list::ListArgs),
    /// Say where a model's step spends its time, how far each kernel is from its roofline, and which can be taken out.
    #[command(after_help = survey::EXAMPLES)]
    Survey(survey::SurveyArgs),
    /// Take an operator out of SGLang: a task's folder, compared with the framework's own operator.
    #[command(after_help = extract::EXAMPLES)]
    Extract(extract::ExtractArgs),
    /// Make what puts a run's certified kernel back into SGLang.
    #[command(after_help = export::EXAMPLES)]
    Export(export::ExportArgs),
    /// Install an export beside SGLang, and check and time it there against the original.
    #[command(after_help = validate::EXAMPLES)]
    Validate(validate::ValidateArgs),
    /// Serve a whole model with random weights with a plug-in off and on, and compare tokens a second.
    #[command(after_help = bench::EXAMPLES)]
    Bench(bench::BenchArgs),
}

/// What `--help` shows below the commands.
pub(crate) const EXAMPLES: &str = "\
docs/SGLANG.md walks the whole way.

Example:
  warpsmith sglang list && warpsmith sglang extract silu_and_mul -o silu && warpsmith run silu --out run
  warpsmith sglang export run --as plugin -o plugin && warpsmith sglang validate plugin";

/// Which SGLang is meant.
#[derive(Debug, Args)]
pub struct FrameworkArgs {
    /// SGLang: a folder of site packages that holds it, or a source tree [default: the one that the Python has].
    #[arg(long, value_name = "PATH")]
    pub sglang: Option<PathBuf>,
    /// The Python that has SGLang [default: workshop.python, or python3].
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
}

impl FrameworkArgs {
    fn python(&self, layers: &Layers) -> String {
        python(self.python.as_deref(), layers)
    }

    fn tree(&self, layers: &Layers) -> Result<Tree, Trouble> {
        let root = match &self.sglang {
            Some(root) => root.clone(),
            None => tree::installed(&self.python(layers)).map_err(Trouble::usage)?,
        };
        Tree::open(&root).map_err(Trouble::usage)
    }
}

/// The Python that has SGLang.
fn python(named: Option<&str>, layers: &Layers) -> String {
    let set = &layers.config.workshop.python;
    named.unwrap_or(if set.is_empty() { "python3" } else { set }).to_owned()
}

/// Does what is asked about SGLang.
pub(super) fn sglang(what: &Sglang, layers: &Layers) -> Result<Exit, Trouble> {
    match what {
        Sglang::List(arguments) => list::list(arguments, layers),
        Sglang::Survey(arguments) => survey::survey(arguments, layers),
        Sglang::Extract(arguments) => extract::extract(arguments, layers),
        Sglang::Export(arguments) => export::export(arguments),
        Sglang::Validate(arguments) => validate::validate(arguments, layers),
        Sglang::Bench(arguments) => bench::bench(arguments, layers),
    }
}
