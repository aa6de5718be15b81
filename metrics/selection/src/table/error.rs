//! What is wrong with a table, where, and what was expected?

use std::path::{Path, PathBuf};

/// Why a table could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file system refused.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The file is no Parquet file, or only a part of one.
    #[error("{path}: {why}; expected a table of profiles (Parquet), as `warpsmith metrics sample` writes it", path = path.display())]
    NoTable {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        why: String,
    },
    /// A column is missing or of another type, or holds what it may not.
    #[error("{path}: column {column}: {why}", path = path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// What is wrong, in which row, and what was expected.
        why: String,
    },
    /// A profile cannot be a part of a table.
    #[error("{kernel} of {task}: {why}")]
    Profile {
        /// The task.
        task: String,
        /// The kernel.
        kernel: String,
        /// What is wrong with it.
        why: String,
    },
}

impl TableError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Io { path: path.to_owned(), error }
    }

    pub(super) fn no_table(path: &Path, why: impl Into<String>) -> Self {
        Self::NoTable { path: path.to_owned(), why: why.into() }
    }

    pub(super) fn column(path: &Path, column: &str, why: impl Into<String>) -> Self {
        Self::Column { path: path.to_owned(), column: column.to_owned(), why: why.into() }
    }

    pub(super) fn profile(task: &str, kernel: &str, why: impl Into<String>) -> Self {
        Self::Profile { task: task.to_owned(), kernel: kernel.to_owned(), why: why.into() }
    }
}
