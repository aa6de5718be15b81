//! `warpsmith sglang export`: a certified kernel, as SGLang can take it

use super::found;
use crate::{
    command::say,
    exit::{Exit, Trouble},
};
use clap::{Args, ValueEnum};
use sglang::export::{
    kernels as repository, library, patch, plugin,
    swap::{self, Kernel},
};
use std::path::PathBuf;

/// `sglang export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Runs whose tasks were taken out of SGLang; of each operator and type one.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// These operators alone.
    #[arg(long = "op", value_name = "OP")]
    pub operators: Vec<String>,
    /// What to make.
    #[arg(long = "as", value_enum)]
    pub form: Form,
    /// The folder to make; it must not exist or be empty.
    #[arg(long, short, value_name = "DIR")]
    pub out: PathBuf,
    /// This candidate of a run with one task, certified or not, by its hash or the beginning of it.
    #[arg(long, value_name = "HASH")]
    pub candidate: Option<String>,
    /// For --as patch: the tree of SGLang that it is for, on whose file it is tried with git apply --check.
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
}

/// What puts a kernel back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A package that pip installs: the kernel serves what it was certified for, the original all else.
    Plugin,
    /// A change of SGLang's source, for each layout that it has had.
    Patch,
    /// A library in front of an operator that SGLang compiles ahead of time.
    Library,
    /// A repository for Hugging Face's `kernels`, whose kernels are compiled at their first call. Loaded by it in a test, and not
    /// run with it on a GPU yet.
    Kernels,
    /// Definitions, solutions and workloads in FlashInfer-Bench's format. Not tried with it yet: of programs that were built
    /// with --features flashinfer-bench.
    FlashinferBench,
}

/// What `--help` shows below the options.
pub(crate) const EXAMPLES: &str = "\
Examples:
  warpsmith sglang export RUN --as plugin -o plugin && pip install --no-deps --no-build-isolation ./plugin
  warpsmith sglang export BF16-RUN FP16-RUN --as plugin -o plugin    # both types in one package
  warpsmith sglang export RUN --as patch --tree ~/sglang -o patches";

/// Writes the files and says what to do with them.
pub(super) fn export(arguments: &ExportArgs) -> Result<Exit, Trouble> {
    let mut kernels = vec![];
    for run in &arguments.runs {
        for found in found::of(run, arguments.candidate.as_deref())? {
            kernels.push(Kernel::of(found)?);
        }
    }
    let kernels = chosen(kernels, &arguments.operators)?;
    swap::together(&kernels)?;
    if let Some(chain) = kernels.iter().find(|kernel| kernel.is_chain() && arguments.form != Form::Plugin) {
        let name = chain.operator();
        return Err(Trouble::usage(format!(
            "{name} is a chain of operators, and only a plug-in can put it back: its hook stands at the layer that calls them; name --as plugin"
        )));
    }
    let laid = match arguments.form {
        Form::Plugin => plugin::plugin(&kernels)?,
        Form::Patch => patch::patch(&kernels, arguments.tree.as_deref())?,
        Form::Library => library::library(&kernels)?,
        Form::Kernels => repository::kernels(&kernels)?,
        #[cfg(feature = "flashinfer-bench")]
        Form::FlashinferBench => sglang::export::bench::bench(&kernels)?,
        #[cfg(not(feature = "flashinfer-bench"))]
        Form::FlashinferBench => {
            return Err(Trouble::not_built_in("The export to FlashInfer-Bench", "flashinfer-bench"));
        }
    };
    laid.write(&arguments.out)?;
    for kernel in &kernels {
        let which = format!("{} ({})", kernel.operator(), kernel.dtype());
        say(&format!("kernel     {which}: {}", kernel.found.summary()));
        say(&format!("gate       {which}: {}", kernel.found.gate()));
    }
    for note in &laid.notes {
        say(&format!("note       {note}"));
    }
    say(&format!("written    {} files in {}", laid.files.len(), arguments.out.display()));
    for line in &laid.next {
        say(&format!("next       {line}"));
    }
    Ok(Exit::Done)
}

/// The kernels of the operators that were named, or all.
fn chosen(kernels: Vec<Kernel>, operators: &[String]) -> Result<Vec<Kernel>, Trouble> {
    let there: Vec<String> = kernels.iter().map(|kernel| kernel.operator().to_owned()).collect();
    if let Some(missing) = operators.iter().find(|operator| !there.contains(operator)) {
        let there = there.join(", ");
        return Err(Trouble::usage(format!(
            "--op {missing}: there is no kernel of it; there are of {there}; one that its run has not certified is left out (`warpsmith resume RUN` goes on)"
        )));
    }
    let named = |kernel: &Kernel| operators.is_empty() || operators.iter().any(|name| name == kernel.operator());
    Ok(kernels.into_iter().filter(named).collect())
}
