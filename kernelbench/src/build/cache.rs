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
    io::Write,
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
        if is_whole(&kept) {
            return Ok(kept);
        }
        fs::create_dir_all(&self.0).map_err(fault(format_args!("cannot make {}", self.0.display())))?;
        let folder = private_folder(&self.0)?;
        let built = make(folder.path())?;
        keep(&built, &kept).map_err(fault(format_args!("cannot write {}", kept.display())))?;
        Ok(kept)
    }
}

/// Puts a build under its name. What is in it is on the disk before its name is, and its hash lies beside it: a cut of power
/// leaves a whole build, or one that is seen to be none.
fn keep(built: &Path, kept: &Path) -> std::io::Result<()> {
    let (sum, beside) = (sum_of(kept), built.with_extension("sha256"));
    let mut file = fs::File::create(&beside)?;
    file.write_all(Hash::of(&fs::read(built)?).as_str().as_bytes())?;
    file.sync_all()?;
    fs::File::open(built)?.sync_all()?;
    fs::rename(beside, sum)?;
    fs::rename(built, kept)
}

/// Whether a build is there, and is what it was when it was kept.
fn is_whole(kept: &Path) -> bool {
    let (Ok(content), Ok(sum)) = (fs::read(kept), fs::read_to_string(sum_of(kept))) else { return false };
    Hash::of(&content).as_str() == sum
}

fn sum_of(kept: &Path) -> PathBuf {
    let name = kept.file_name().unwrap_or_default().to_string_lossy();
    kept.with_file_name(format!("{name}.sha256"))
}

/// A folder that goes away with its handle, readable by this user alone.
pub(crate) fn private_folder(parent: &Path) -> Result<TempDir, Fault> {
    tempfile::Builder::new().prefix("build-").tempdir_in(parent).map_err(fault("cannot make a folder to build in"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_build_that_a_cut_of_power_left_empty_or_short_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, count) = (Cache::new(folder.path().join("builds")), Cell::new(0));
        let get = || {
            let make = |folder: &Path| {
                count.set(count.get() + 1);
                let path = folder.join("kernel.so");
                fs::write(&path, "machine code").unwrap();
                Ok(path)
            };
            cache.get_or_make(&["source"], "so", make).map_err(|_| "it was not made").unwrap()
        };
        assert_eq!((fs::read_to_string(get()).unwrap().as_str(), count.get()), ("machine code", 1));
        get();
        assert_eq!(count.get(), 1, "it was made twice");
        for damage in ["", "machine"] {
            let before = count.get();
            fs::write(get(), damage).unwrap();
            assert_eq!(fs::read_to_string(get()).unwrap(), "machine code");
            assert_eq!(count.get(), before + 1);
        }
    }
}
