//! Which Python runs, and on which text of the harness?

use crate::{failure::Fault, hash::Hash};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

const FILES: [(&str, &str); 8] = [
    ("candidate.py", include_str!("../../harness/candidate.py")),
    ("compare.py", include_str!("../../harness/compare.py")),
    ("draw.py", include_str!("../../harness/draw.py")),
    ("memory.py", include_str!("../../harness/memory.py")),
    ("outputs.py", include_str!("../../harness/outputs.py")),
    ("profile.py", include_str!("../../harness/profile.py")),
    ("reference.py", include_str!("../../harness/reference.py")),
    ("wire.py", include_str!("../../harness/wire.py")),
];

/// The harness's text, written where nobody but us may change it.
#[derive(Debug)]
pub(crate) struct Harness {
    folder: PathBuf,
    hash: Hash,
}

impl Harness {
    /// Writes the harness into a fresh folder.
    pub(crate) fn write(under: &Path) -> Result<Self, Fault> {
        let folder = under.join("harness");
        let failed = |e: std::io::Error| Fault(format!("cannot write the harness into {}: {e}", folder.display()));
        fs::create_dir_all(&folder).map_err(failed)?;
        let mut whole = String::new();
        for (name, text) in FILES {
            let path = folder.join(name);
            fs::write(&path, text).map_err(failed)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).map_err(failed)?;
            whole.push_str(name);
            whole.push_str(text);
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).map_err(failed)?;
        Ok(Self { folder, hash: Hash::of(whole.as_bytes()) })
    }

    /// What names this version of the harness.
    pub(crate) fn hash(&self) -> &Hash {
        &self.hash
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The script of the trusted side.
    pub(crate) fn reference(&self) -> PathBuf {
        self.folder.join("reference.py")
    }

    /// The script that calls a candidate once under a profiler.
    pub(crate) fn profile(&self) -> PathBuf {
        self.folder.join("profile.py")
    }

    /// The script of the untrusted side.
    pub(crate) fn candidate(&self) -> PathBuf {
        self.folder.join("candidate.py")
    }
}
