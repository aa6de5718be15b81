//! The harness: the Python scripts of both sides, written where they can be read and not changed.

use super::slim;
use crate::{build::nvcc::HALVES, hash::Hash, result::failure::Fault};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The rule of comparison in Python, for whoever compares outputs there: `wrong(right, got, atol, rtol)` says which elements of
/// two tensors are.
pub const TOLERANCE: &str = include_str!("../../../harness/tolerance.py");

const FILES: [(&str, &str); 21] = [
    ("aside.py", include_str!("../../../harness/aside.py")),
    ("candidate.py", include_str!("../../../harness/candidate.py")),
    ("compare.py", include_str!("../../../harness/compare.py")),
    ("confine.py", include_str!("../../../harness/confine.py")),
    ("counters.py", include_str!("../../../harness/counters.py")),
    ("draw.py", include_str!("../../../harness/draw.py")),
    ("extension.py", include_str!("../../../harness/extension.py")),
    ("facts.py", include_str!("../../../harness/facts.py")),
    ("kernelbench_eval.py", include_str!("../../../harness/kernelbench_eval.py")),
    ("memory.py", include_str!("../../../harness/memory.py")),
    ("nvcc.py", include_str!("../../../harness/nvcc.py")),
    ("nvcc_halves.sh", HALVES),
    ("outputs.py", include_str!("../../../harness/outputs.py")),
    ("profiled.py", include_str!("../../../harness/profiled.py")),
    ("scatter.py", include_str!("../../../harness/scatter.py")),
    ("signature.py", include_str!("../../../harness/signature.py")),
    ("tolerance.py", TOLERANCE),
    ("tracing.py", include_str!("../../../harness/tracing.py")),
    ("verifier.py", include_str!("../../../harness/verifier.py")),
    ("wire.py", include_str!("../../../harness/wire.py")),
    ("zygote.py", include_str!("../../../harness/zygote.py")),
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
        let failed =
            |e: std::io::Error| Fault::Machine(format!("cannot write the harness into {}: {e}", folder.display()));
        fs::create_dir_all(&folder).map_err(failed)?;
        let mut whole = String::new();
        for (name, text) in files() {
            let path = folder.join(&name);
            fs::create_dir_all(path.parent().unwrap_or(&folder)).map_err(failed)?;
            fs::write(&path, &text).map_err(failed)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).map_err(failed)?;
            whole.push_str(&name);
            whole.push_str(&text);
        }
        close(&folder).map_err(failed)?;
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

    /// The script that imports torch once and forks either side.
    pub(crate) fn zygote(&self) -> PathBuf {
        self.folder.join("zygote.py")
    }

    /// The script of the trusted side.
    pub(crate) fn verifier(&self) -> PathBuf {
        self.folder.join("verifier.py")
    }

    /// The script that calls a candidate once under a profiler.
    pub(crate) fn profiled(&self) -> PathBuf {
        self.folder.join("profiled.py")
    }

    /// The script that runs KernelBench's own evaluation.
    pub(crate) fn kernelbench_eval(&self) -> PathBuf {
        self.folder.join("kernelbench_eval.py")
    }

    /// The script of the untrusted side.
    pub(crate) fn candidate(&self) -> PathBuf {
        self.folder.join("candidate.py")
    }
}

/// Every file of the harness, the slim headers in a folder of their own.
fn files() -> impl Iterator<Item = (String, String)> {
    let scripts = FILES.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    scripts.chain(slim::files().into_iter().map(|(name, text)| (format!("slim/{name}"), text)))
}

/// Leaves a folder and those in it to be read alone.
fn close(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            close(&path)?;
        }
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o555))
}
