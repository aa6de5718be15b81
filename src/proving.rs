//! Proving features: are a cell's two kernels right, do its counters tell them apart, and which is faster?
//!
//! On a GPU of the column all of it is found out; elsewhere only whether both build, and whether an instruction is in one and
//! not in the other. What was found is kept a file a cell, so that an interrupted proving goes on.

mod compiled;
mod measured;
mod scored;

pub use compiled::{Builder, Compiled, Record, compile, record};
pub use measured::{Proved, Proving};
pub use scored::{Asking, Scored, compiled, stand_in};

use crate::exit::Trouble;
use kernelbench::{
    Hash, Source, Task,
    feature::{Cell, Column},
    load,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Writes a cell's files where they can be read as a task, and gives the folder.
///
/// # Errors
///
/// If they cannot be written.
pub fn lay(cell: &Cell, column: &Column, out: &Path) -> Result<PathBuf, Trouble> {
    let folder = out.join(&column.name).join(&cell.folder);
    let wrong = |e: std::io::Error| Trouble::record(format!("{}: {e}", folder.display()));
    fs::create_dir_all(&folder).map_err(wrong)?;
    for (name, text) in &cell.files {
        fs::write(folder.join(name), text).map_err(wrong)?;
    }
    Ok(folder)
}

/// A cell's task.
///
/// # Errors
///
/// If its files cannot be written, or make no task.
pub fn task(cell: &Cell, column: &Column, out: &Path) -> Result<Task, Trouble> {
    Ok(load::task(&lay(cell, column, out)?)?)
}

/// A task with another kernel in its reference's place.
#[must_use]
pub fn against(task: &Task, kernel: &str) -> Task {
    let mut task = task.clone();
    if let Source::Context(context) = &mut task.source {
        kernel.clone_into(&mut context.reference);
        context.initial = None;
    }
    task
}

/// What names a cell as it is: a hash of all its files.
#[must_use]
pub fn identity(cell: &Cell) -> Hash {
    let texts: Vec<&str> = cell.files.iter().flat_map(|(name, text)| [name.as_str(), text.as_str()]).collect();
    Hash::of(texts.join("\0").as_bytes())
}

#[cfg(test)]
mod tests;
