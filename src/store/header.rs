//! What was run, with what, and where?

use super::{
    StoreError,
    blobs::{read_plain_file, sync},
};
use crate::config::Config;
use metrics::Machine;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, path::Path};

/// The largest `run.toml` that is read, in bytes.
const LARGEST: u64 = 4 << 20;

/// `run.toml`: all that is known before the first event. It holds no key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// The format of the run folder.
    pub format: u32,
    /// The version of the program.
    pub warpsmith: String,
    /// When the run began, RFC 3339.
    pub began: String,
    /// The task's path, as it was given.
    pub task: String,
    /// What answers in the model's place.
    pub model: String,
    /// The policy's name.
    pub policy: String,
    /// Whether the machine was a simulation.
    #[serde(default)]
    pub simulated: bool,
    /// Compilers by name, with the version that they print.
    #[serde(default)]
    pub compilers: BTreeMap<String, String>,
    /// Hashes of the prompt templates, by name.
    #[serde(default)]
    pub templates: BTreeMap<String, String>,
    /// The machine that candidates ran on.
    pub machine: Machine,
    /// The merged configuration, without keys.
    pub configuration: Config,
}

/// What every version of the header holds.
#[derive(Deserialize)]
struct Opening {
    format: u32,
}

impl RunHeader {
    /// These templates as they stand in a header.
    pub(crate) fn templates_of(prompts: &prompts::Prompts) -> BTreeMap<String, String> {
        prompts.hashes().into_iter().map(|(name, hash)| (name, hash.to_string())).collect()
    }

    pub(super) fn read(path: &Path) -> Result<Self, StoreError> {
        let text = read_plain_file(path, LARGEST)?;
        let not_ours = |e: &toml::de::Error| {
            StoreError::damaged(path, format!("this is not the header of a run: {}", e.message()))
        };
        let opening: Opening = toml::from_str(&text).map_err(|e| not_ours(&e))?;
        agents::event::readable(opening.format).map_err(|why| StoreError::damaged(path, why))?;
        toml::from_str(&text).map_err(|e| {
            let line = e.span().map(|span| text[..span.start].matches('\n').count() + 1);
            StoreError::Damaged { path: path.to_owned(), line, why: e.message().to_owned() }
        })
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), StoreError> {
        let text =
            toml::to_string_pretty(self).map_err(|e| StoreError::damaged(path, format!("cannot be written: {e}")))?;
        let beside = path.with_extension("toml.part");
        fs::write(&beside, text).map_err(|e| StoreError::system("write the header", path, e))?;
        sync(&beside)?;
        fs::rename(&beside, path).map_err(|e| StoreError::system("write the header", path, e))
    }
}
