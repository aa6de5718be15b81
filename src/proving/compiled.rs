//! What can be said of a cell without its GPU: whether both kernels build, and which of its instructions tell them apart.

use super::{against, identity, task};
use crate::{config::Config, exit::Trouble, wiring};
use kernelbench::{
    Candidate, Failure, Hash, Task,
    cuda::{self, Options},
    feature::{Cell, Column},
};
use metrics::Arch;
use serde::{Deserialize, Serialize};
use std::path::Path;

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

/// What compiles the kernels of a column here.
pub enum Builder {
    /// nvcc.
    Nvcc(Box<Options>, String),
    /// A clang, for an AMD GPU.
    Clang(kernelbench::Compiled),
}

impl Builder {
    /// The one that this column needs.
    ///
    /// # Errors
    ///
    /// In a sentence, where it is not here.
    pub fn of(column: &Column, config: &Config) -> Result<Self, Trouble> {
        if let Some(Arch::Amd(name)) = column.archs.first() {
            let arch = name.parse().map_err(Trouble::usage)?;
            return Ok(Self::Clang(wiring::compiled(arch, config)?));
        }
        let nvcc = cuda::find_nvcc().ok_or_else(|| Trouble::machine("there is no nvcc"))?;
        Ok(Self::Nvcc(Box::new(wiring::cuda_options(config)?), cuda::nvcc_version(&nvcc).unwrap_or_default()))
    }

    /// What it says of its version.
    #[must_use]
    pub fn version(&self) -> &str {
        match self {
            Self::Nvcc(_, version) => version,
            Self::Clang(workshop) => workshop.compiler(),
        }
    }

    /// The names of a kernel's instructions, or, within, why nobody could look.
    fn instructions(&self, arch: &Arch, task: &Task) -> Result<Result<Result<String, String>, Failure>, Trouble> {
        match self {
            Self::Nvcc(options, _) => Ok(match cuda::build_reference(options, arch.clone(), task)? {
                Ok(object) => Ok(cuda::disassembly(options, &object)?),
                Err(failure) => Err(failure),
            }),
            Self::Clang(workshop) => Ok(workshop.instructions(task, &Candidate::new(task.reference()))?.map(Ok)),
        }
    }
}

/// The architectures that a column's kernels are built for.
fn targets(column: &Column) -> Vec<&Arch> {
    let all = column.archs.iter().take(1).chain(&column.also_on);
    all.filter(|arch| matches!(arch, Arch::Cuda { .. } | Arch::Amd(_))).collect()
}

/// What is kept of this.
#[must_use]
pub fn record(cell: &Cell, column: &Column, builder: &Builder, compiled: &Compiled) -> Record {
    let built: Vec<String> = targets(column).into_iter().map(Arch::target).collect();
    Record {
        cell: cell.folder.clone(),
        files: identity(cell),
        built: built.join(", "),
        compiler: builder.version().to_owned(),
        found: compiled.to_string(),
    }
}

/// Builds both kernels of a cell for all that they run on, and looks for its instructions.
///
/// # Errors
///
/// Where nothing can be built here.
pub fn compile(cell: &Cell, column: &Column, out: &Path, builder: &Builder) -> Result<Compiled, Trouble> {
    let task = task(cell, column, out)?;
    let mut all = vec![];
    for arch in targets(column) {
        let compiled = compile_for(arch, cell, &task, builder)?;
        if !compiled.holds() {
            return Ok(compiled);
        }
        all.push(compiled);
    }
    let nothing = || Compiled::Untold(format!("nothing here builds for {}", column.title));
    Ok(all.into_iter().next().unwrap_or_else(nothing))
}

fn compile_for(arch: &Arch, cell: &Cell, task: &Task, builder: &Builder) -> Result<Compiled, Trouble> {
    let mut codes = vec![];
    for (what, kernel) in [("naive", cell.naive()), ("optimized", cell.optimized())] {
        match builder.instructions(arch, &against(task, kernel))? {
            Ok(code) => codes.push(code),
            Err(failure) => {
                let said = first_error(&failure).map_or_else(|| failure.to_string(), ToOwned::to_owned);
                return Ok(Compiled::Wrong(format!("the {what} kernel does not build for {}: {said}", arch.target())));
            }
        }
    }
    Ok(told_apart(cell, codes.into_iter().collect()))
}

/// The first error that a compiler told, where it was one that failed.
fn first_error(failure: &Failure) -> Option<&str> {
    let (Failure::Build { log } | Failure::Interface { log }) = failure else { return None };
    log.lines().find(|line| line.contains("error")).map(str::trim)
}

/// Which instructions tell the naive kernel's code from the optimized one's.
fn told_apart(cell: &Cell, codes: Result<Vec<String>, String>) -> Compiled {
    let wanted: Vec<String> = cell.instructions().map(str::to_owned).collect();
    if wanted.is_empty() {
        let why = cell.no_instruction.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        return Compiled::Untold(format!("no instruction shows this feature{why}"));
    }
    let codes = match codes {
        Ok(codes) => codes,
        Err(why) => return Compiled::Untold(format!("nobody looked for {}: {why}", wanted.join(", "))),
    };
    let has = |code: &str, name: &str| code.split_whitespace().any(|word| word.starts_with(name));
    for name in &wanted {
        match [has(&codes[0], name), has(&codes[1], name)] {
            [false, true] => {}
            [true, _] => return Compiled::Wrong(format!("{name} is in the naive kernel")),
            [false, false] => return Compiled::Wrong(format!("{name} is not in the optimized kernel")),
        }
    }
    Compiled::Told(wanted)
}
