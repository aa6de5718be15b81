//! How does a kernel that was made faster go back into SGLang?

#[cfg(feature = "flashinfer-bench")]
pub mod bench;
pub mod found;
pub mod interface;
pub mod kernels;
pub mod library;
pub mod patch;
pub mod plugin;
mod script;
pub mod swap;

use crate::Error;
use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path},
};

/// Files by their path in the folder that is to be made, and what is to be said of them.
#[derive(Debug, Default)]
pub struct Layout {
    /// Path and text, whole.
    pub files: BTreeMap<String, String>,
    /// What whoever uses it must know.
    pub notes: Vec<String>,
    /// What to do with it, line by line.
    pub next: Vec<String>,
}

impl Layout {
    /// Adds a file.
    pub fn file(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.files.insert(path.into(), text.into());
    }

    /// Writes the files into this folder.
    ///
    /// # Errors
    ///
    /// If there is something in it already, or it cannot be written.
    pub fn write(&self, out: &Path) -> Result<(), Error> {
        if fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
            let why = "there is something in this folder already; name another";
            return Err(Error::request(format!("{}: {why}", out.display())));
        }
        let leaves = |path: &&String| !Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        if let Some(path) = self.files.keys().find(leaves) {
            let path = kernelbench::plain(path);
            return Err(Error::files(format!("a file of this export would not stay in its folder: {path}")));
        }
        for (path, text) in &self.files {
            let path = out.join(path);
            let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
            made.map_err(|e| Error::files(format!("{}: cannot write it: {e}", path.display())))?;
        }
        Ok(())
    }
}
