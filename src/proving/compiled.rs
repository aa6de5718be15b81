//! What can be said of a cell without its GPU: whether both kernels build, and which of its instructions tell them apart.

use super::{against, identity, task};
use crate::{config::Config, exit::Trouble, wiring};
use kernelbench::{
    Failure, Hash, Task,
    cuda::{self, Options},
    feature::{Cell, Column},
};
use metrics::Arch;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What came of compiling a cell, as it is kept: for whom, with what, and of which files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The cell's folder.
    pub cell: String,
    /// Of its files, as they were.
    pub files: Hash,
    /// What both kernels were built for.
    pub built: String,
    /// The compiler.
    pub compiler: String,
    /// What was found.
    pub found: String,
}

/// What came of compiling a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compiled {
    /// Both kernels build, and these instructions are in the optimized one alone.
    Told(Vec<String>),
    /// Both build, and no instruction tells them apart; why.
    Untold(String),
    /// One does not build, or an instruction is where it should not be; which and why.
    Wrong(String),
}

impl Compiled {
    /// Whether it is what the cell says.
    #[must_use]
    pub fn holds(&self) -> bool {
        !matches!(self, Self::Wrong(_))
    }
}

impl std::fmt::Display for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Told(instructions) => {
                write!(f, "compiles; {} in the optimized kernel alone", instructions.join(", "))
            }
            Self::Untold(why) => write!(f, "compiles; {why}"),
            Self::Wrong(why) => f.write_str(why),
        }
    }
}

/// The architectures that a column's kernels are built for.
fn targets(column: &Column) -> Vec<&Arch> {
    let all = column.archs.iter().take(1).chain(&column.also_on);
    all.filter(|arch| matches!(arch, Arch::Cuda { .. })).collect()
}

/// What is kept of this.
#[must_use]
pub fn record(cell: &Cell, column: &Column, compiled: &Compiled) -> Record {
    let built: Vec<String> = targets(column).into_iter().map(Arch::target).collect();
    let nvcc = cuda::find_nvcc().and_then(|nvcc| cuda::nvcc_version(&nvcc).ok());
    let (cell, files) = (cell.folder.clone(), identity(cell));
    Record { cell, files, built: built.join(", "), compiler: nvcc.unwrap_or_default(), found: compiled.to_string() }
}

/// Builds both kernels of a cell for all that they run on, and looks for its instructions.
///
/// # Errors
///
/// Where nothing can be built here.
pub fn compile(cell: &Cell, column: &Column, out: &Path, config: &Config) -> Result<Compiled, Trouble> {
    let task = task(cell, column, out)?;
    let options = wiring::cuda_options(config)?;
    let mut all = vec![];
    for arch in targets(column) {
        let compiled = compile_for(arch, cell, &task, &options)?;
        if !compiled.holds() {
            return Ok(compiled);
        }
        all.push(compiled);
    }
    let nothing = || Compiled::Untold(format!("nothing here builds for {}", column.title));
    Ok(all.into_iter().next().unwrap_or_else(nothing))
}

fn compile_for(arch: &Arch, cell: &Cell, task: &Task, options: &Options) -> Result<Compiled, Trouble> {
    let build = |what: &str, kernel: &str| match built(options, arch, &against(task, kernel))? {
        Ok(object) => Ok(Ok(object)),
        Err(failure) => {
            Ok::<_, Trouble>(Err(format!("the {what} kernel does not build for {}: {failure}", arch.target())))
        }
    };
    let (naive, optimized) = match (build("naive", cell.naive())?, build("optimized", cell.optimized())?) {
        (Ok(naive), Ok(optimized)) => (naive, optimized),
        (Err(why), _) | (_, Err(why)) => return Ok(Compiled::Wrong(why)),
    };
    told_apart(cell, options, [&naive, &optimized])
}

fn built(options: &Options, arch: &Arch, task: &Task) -> Result<Result<PathBuf, Failure>, Trouble> {
    Ok(cuda::build_reference(options, arch.clone(), task)?)
}

fn told_apart(cell: &Cell, options: &Options, objects: [&Path; 2]) -> Result<Compiled, Trouble> {
    let wanted: Vec<String> = cell.instructions().map(str::to_owned).collect();
    if wanted.is_empty() {
        let why = cell.no_instruction.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        return Ok(Compiled::Untold(format!("no instruction shows this feature{why}")));
    }
    let mut codes = vec![];
    for object in objects {
        match cuda::disassembly(options, object)? {
            Ok(code) => codes.push(code),
            Err(why) => return Ok(Compiled::Untold(format!("nobody looked for {}: {why}", wanted.join(", ")))),
        }
    }
    let has = |code: &str, name: &str| code.split_whitespace().any(|word| word.starts_with(name));
    for name in &wanted {
        match [has(&codes[0], name), has(&codes[1], name)] {
            [false, true] => {}
            [true, _] => return Ok(Compiled::Wrong(format!("{name} is in the naive kernel"))),
            [false, false] => return Ok(Compiled::Wrong(format!("{name} is not in the optimized kernel"))),
        }
    }
    Ok(Compiled::Told(wanted))
}
