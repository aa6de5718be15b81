//! Where is an ablation kept?

use super::spec::Spec;
use crate::{exit::Trouble, store::Lock};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The file that makes a folder an ablation's.
const FILE: &str = "ablation.toml";
/// The largest that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// The format that this program writes.
const FORMAT: u32 = 1;

/// The folder: `ablation.toml` and a run folder a variant under `runs/`.
#[derive(Clone, Debug)]
pub struct AblationFolder {
    path: PathBuf,
}

/// `ablation.toml`: what was asked for, written once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The format of this file.
    format: u32,
    /// Flags of `warpsmith batch` that every variant gets.
    pub arguments: Vec<String>,
    /// The variants.
    pub spec: Spec,
}

impl AblationFolder {
    /// Makes the folder, which must not exist or be empty.
    ///
    /// # Errors
    ///
    /// If it holds something, or cannot be made.
    pub fn create(path: &Path, spec: Spec, arguments: Vec<String>) -> Result<Self, Trouble> {
        if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            let path = path.display();
            let why = "there is something in this folder already; name another, or go on with";
            return Err(Trouble::usage(format!("{path}: {why} `warpsmith resume {path}`")));
        }
        let asked = Asked { format: FORMAT, arguments, spec };
        let text = toml::to_string_pretty(&asked).map_err(|e| Trouble::record(format!("{FILE}: {e}")))?;
        let beside = path.join(format!("{FILE}.part"));
        let made = fs::create_dir_all(path.join("runs"))
            .and_then(|()| fs::write(&beside, text))
            .and_then(|()| fs::rename(&beside, path.join(FILE)));
        made.map_err(|e| Trouble::record(format!("{}: cannot make the ablation's folder: {e}", path.display())))?;
        Ok(Self { path: path.to_owned() })
    }

    /// The ablation in this folder, if it is one.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        path.join(FILE).is_file().then(|| Self { path: path.to_owned() })
    }

    /// What was asked for.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn asked(&self) -> Result<Asked, Trouble> {
        let path = self.path.join(FILE);
        let wrong = |why: String| Trouble::record(format!("{}: {why}", path.display()));
        let size = fs::metadata(&path).map_err(|e| wrong(e.to_string()))?.len();
        if size > LARGEST {
            return Err(wrong("it is larger than 1 MiB: no ablation is".into()));
        }
        let text = fs::read_to_string(&path).map_err(|e| wrong(e.to_string()))?;
        let asked: Asked = toml::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        if asked.format != FORMAT {
            return Err(wrong(format!("it has format {}, this program reads {FORMAT}", asked.format)));
        }
        // The same rules as for a file that a user names.
        let spec = toml::to_string(&asked.spec).unwrap_or_default();
        Ok(Asked { spec: Spec::parse(&path.display().to_string(), &spec)?, ..asked })
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run folder of this name.
    #[must_use]
    pub fn run(&self, name: &str) -> PathBuf {
        self.path.join("runs").join(name)
    }

    /// Takes the right to work on it.
    ///
    /// # Errors
    ///
    /// If another process has it.
    pub fn lock(&self) -> Result<Lock, Trouble> {
        Ok(Lock::take(&self.path)?.0)
    }
}
