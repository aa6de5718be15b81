//! How is a whole tool confined that reads a candidate's text or runs its code: a compiler, a sanitizer, a profiler?
//!
//! It is started through the hidden sub-command, which confines itself and then becomes the tool.

use super::{
    confine::{self, Limits},
    process,
};
use crate::backend::native::worker::Launch;
use serde::{Deserialize, Serialize};
use std::{
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Command,
};

/// What leads the hidden sub-command here.
const MARK: &str = "--enclose";

/// What a tool may do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Enclosure {
    /// What it may read and run, beside the system's libraries.
    pub(crate) read: Vec<PathBuf>,
    /// What it may write.
    pub(crate) write: Vec<PathBuf>,
    /// Whether it has to do without our user's rights.
    pub(crate) nobody: bool,
    /// Its limits.
    pub(crate) limits: Limits,
}

impl Enclosure {
    /// A command that runs `program` in here, without our environment, in a group of its own.
    pub(crate) fn command(&self, launch: &Launch, program: &OsStr) -> Command {
        let mut command = Command::new(&launch.program);
        let spec = serde_json::to_string(self).unwrap_or_default();
        command.args(&launch.arguments).args([MARK, &spec]).arg(program);
        command.env_clear().env("LC_ALL", "C");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()));
        process::detach(&mut command, vec![]);
        command
    }
}

/// Where the arguments of this process ask for an enclosed tool, becomes it; an error says why that failed.
pub(crate) fn become_the_tool() -> Option<String> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let at = arguments.iter().position(|a| a == MARK)?;
    let [spec, program, rest @ ..] = &arguments[at + 1..] else { return Some("expected a tool to run".to_owned()) };
    let spec = serde_json::from_slice::<Enclosure>(spec.as_encoded_bytes());
    Some(match spec {
        Err(e) => e.to_string(),
        Ok(enclosure) => {
            confine::enclose(&enclosure);
            let error = Command::new(program).args(rest).exec();
            format!("cannot run {}: {error}", program.to_string_lossy())
        }
    })
}
