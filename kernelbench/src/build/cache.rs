//! The content cache of builds: what was built once from the same texts by the same tools is not built again.

use crate::{
    hash::Hash,
    result::{
        error::{Attempt, fault},
        failure::Fault,
    },
};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// A folder of builds, each named by the hash of what it was made from.
#[derive(Clone, Debug)]
pub(crate) struct Cache(PathBuf);

impl Cache {
    /// The cache in this folder.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// What was made from these parts, or is made now in a private folder.
    pub(crate) fn get_or_make(
        &self,
        parts: &[&str],
        ending: &str,
        make: impl FnOnce(&Path) -> Attempt<PathBuf>,
    ) -> Attempt<PathBuf> {
        let measured = parts.iter().map(|part| format!("{}\n{part}\n", part.len())).collect::<Vec<_>>().concat();
        let kept = self.0.join(format!("{}.{ending}", Hash::of(measured.as_bytes())));
        if kept.is_file() {
            return Ok(kept);
        }
        fs::create_dir_all(&self.0).map_err(fault(format_args!("cannot make {}", self.0.display())))?;
        let folder = private_folder(&self.0)?;
        let built = make(folder.path())?;
        fs::rename(&built, &kept).map_err(fault(format_args!("cannot write {}", kept.display())))?;
        Ok(kept)
    }
}

/// A folder that goes away with its handle, readable by this user alone.
pub(crate) fn private_folder(parent: &Path) -> Result<TempDir, Fault> {
    tempfile::Builder::new().prefix("build-").tempdir_in(parent).map_err(fault("cannot make a folder to build in"))
}
