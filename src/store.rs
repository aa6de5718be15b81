//! Where is a run kept?
//!
//! In a folder: `run.toml` says what ran, `batch.toml` on which tasks if on several, `tasks/<task>/events.jsonl` what happened, `blobs/<aa>/<hash>` every text by
//! its content. A folder from elsewhere is not trusted: names and hashes cannot lead out of it, sizes have a cap, and
//! every text is compared with its name when it is read. docs/FORMAT.md has the format.

mod batch;
mod blobs;
mod folder;
mod follow;
mod fork;
mod header;
mod lock;
mod log;
mod mend;
mod names;

pub use batch::{BatchList, Listed, Unreadable};
pub use blobs::Blobs;
pub use folder::RunFolder;
pub use follow::{Follow, Grown};
pub use header::RunHeader;
pub use lock::Lock;
pub use log::{End, Record, TaskLog, timed};
pub use mend::Mended;
pub use names::{find, runs};

use agents::log::LogError;
use std::path::{Path, PathBuf};

/// Why a record could not be read or written. Every message says where and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system would not do it.
    #[error("{path}: cannot {what}: {source}{hint}")]
    System {
        /// What was tried, as a verb phrase.
        what: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// What to do about it, if that is known.
        hint: &'static str,
    },
    /// There is something, and it is not what this program wrote.
    #[error("{path}{}: {why}", .line.map(|line| format!(":{line}")).unwrap_or_default())]
    Damaged {
        /// Which file or folder.
        path: PathBuf,
        /// Which line, from 1, in a file of lines.
        line: Option<usize>,
        /// What is wrong, what was expected, and what to do.
        why: String,
    },
    /// Another process writes to it.
    #[error("{path}: {why}")]
    Locked {
        /// The run.
        path: PathBuf,
        /// Who holds it and what to do.
        why: String,
    },
}

impl StoreError {
    fn system(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let hint = match source.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => {
                "; make room and resume the run: what is on disk so far is whole"
            }
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => {
                "; choose another folder with --out, or change its permissions"
            }
            _ => "",
        };
        Self::System { what, path: path.to_owned(), source, hint }
    }

    fn damaged(path: &Path, why: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), line: None, why: why.into() }
    }

    fn damaged_at(path: &Path, line: usize, why: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), line: Some(line), why: why.into() }
    }
}

impl From<StoreError> for LogError {
    fn from(error: StoreError) -> Self {
        Self(error.to_string())
    }
}

/// Whether this can be the name of a task's folder: letters, digits, `.`, `_` and `-`, at most 100, no leading dot.
fn is_a_plain_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=100).contains(&name.len()) && !name.starts_with('.') && name.chars().all(plain)
}
