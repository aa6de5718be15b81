//! Which tasks are in a run of several, and which problems could not be read?

use super::{
    StoreError,
    blobs::{read_plain_file, sync},
};
use kernelbench::Hash;
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// The file that makes a run a batch.
pub(super) const FILE: &str = "batch.toml";
/// The largest that is read, in bytes.
const LARGEST: u64 = 16 << 20;

/// `batch.toml`: the tasks of a run of several, written once when the run is made. The tasks themselves are texts of the
/// run, so that it needs no other folder to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchList {
    /// The run's name when it was made: letters in a mailbox bear it, wherever the folder is copied to.
    pub name: String,
    /// Where the tasks come from, as it was given: a folder, or a suite.
    pub source: String,
    /// How every task is worked on: the policy as TOML, by hash.
    pub policy: Hash,
    /// The tasks, in the order in which their turn comes.
    #[serde(default, rename = "task")]
    pub tasks: Vec<Listed>,
    /// What looked like a task and could not be read.
    #[serde(default)]
    pub unreadable: Vec<Unreadable>,
}

/// A task of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// Its name, which its folder in the run has too.
    pub name: String,
    /// The file or folder that it was read from.
    pub path: String,
    /// The whole task as JSON, by hash.
    pub task: Hash,
}

/// A file that is no task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unreadable {
    /// Which file or folder.
    pub path: String,
    /// Why it cannot be read, in words.
    pub why: String,
}

impl BatchList {
    pub(super) fn read(path: &Path) -> Result<Self, StoreError> {
        let text = read_plain_file(path, LARGEST)?;
        toml::from_str(&text).map_err(|e| {
            let line = e.span().map(|span| text[..span.start].matches('\n').count() + 1);
            StoreError::Damaged { path: path.to_owned(), line, why: e.message().to_owned() }
        })
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), StoreError> {
        let text =
            toml::to_string_pretty(self).map_err(|e| StoreError::damaged(path, format!("cannot be written: {e}")))?;
        fs::write(path, text).map_err(|e| StoreError::system("write the list of tasks", path, e))?;
        sync(path)
    }
}
