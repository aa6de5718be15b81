//! The `warpsmith` that does the work: where it is, and what it says.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
};
use tokio::process::Command;

/// The most bytes of one answer that are given on.
const LONGEST: usize = 4 << 20;

/// Where it is.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
}

/// What it said, and how it ended.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Program {
    /// The one that is named, else beside this program, else in PATH.
    pub(crate) fn find(named: Option<PathBuf>) -> Result<Self, String> {
        if let Some(path) = named {
            return if path.is_file() {
                Ok(Self { path })
            } else {
                Err(format!("--program: {} is no file", path.display()))
            };
        }
        let beside = env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
        let path = env::var_os("PATH").unwrap_or_default();
        let mut folders = beside.into_iter().chain(env::split_paths(&path));
        let found = folders.find_map(|folder| Some(folder.join("warpsmith")).filter(|path| path.is_file()));
        let missing = "there is no warpsmith beside this program or in PATH: name it with --program";
        found.map(|path| Self { path }).ok_or_else(|| missing.to_owned())
    }

    /// It with these words. It is ended with whoever waits for it: a run that is cut off can be resumed.
    pub(crate) fn with(&self, words: &[String]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// What it says to these words.
    pub(crate) async fn say(&self, words: &[String]) -> Result<Said, String> {
        let ended = self.with(words).output().await.map_err(|e| format!("{}: {e}", self.path.display()))?;
        let (out, err) = (text(&ended.stdout), text(&ended.stderr));
        Ok(Said { code: ended.status.code(), out, err })
    }
}

impl Said {
    /// Its answer, or its complaint.
    pub(crate) fn answer(self) -> Result<String, String> {
        if self.code == Some(0) {
            return Ok(self.out);
        }
        let code = self.code.map_or("a signal".to_owned(), |code| code.to_string());
        Err(format!("{} (it ended with {code})", self.err.trim().trim_start_matches("warpsmith: ")))
    }
}

/// Its first part, where it is long.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned()
}
