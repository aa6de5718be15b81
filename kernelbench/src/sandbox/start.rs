//! Starting a child process: this program again, as the child that is asked for, confined.

use super::{
    entry::Child,
    process::{self, Process},
    socket,
    spawn::SpawnThread,
};
use crate::result::{error::fault, failure::Fault};
use nix::unistd::geteuid;
use std::{
    ffi::{OsStr, OsString},
    fs,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::fs::{PermissionsExt, chown, lchown},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

/// Where children come from.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// The program whose hidden sub-command a child is: as a rule, this very one.
    pub(crate) program: PathBuf,
    /// The arguments that lead to it.
    pub(crate) arguments: Vec<OsString>,
    pub(crate) spawner: SpawnThread,
    /// Whether Landlock is left out: a driver was seen not to start behind it.
    landlock_disabled: AtomicBool,
}

/// A child that was just started.
pub(crate) struct Started {
    pub(crate) process: Process,
    /// Our end of its line.
    pub(crate) control: OwnedFd,
    /// What it prints.
    pub(crate) output: std::io::PipeReader,
    /// The user that is its own.
    pub(crate) user: Option<u32>,
}

/// The environment of a child, its folder, and the descriptors that it gets beside its end of the line.
#[derive(Default)]
pub(crate) struct Dress<'a> {
    pub(crate) environment: Vec<(String, OsString)>,
    pub(crate) folder: Option<&'a Path>,
    pub(crate) files: Vec<RawFd>,
    pub(crate) user: Option<u32>,
}

impl Sandbox {
    /// Children of this program.
    pub(crate) fn new(program: PathBuf, arguments: Vec<OsString>) -> Self {
        Self { program, arguments, spawner: SpawnThread::new(), landlock_disabled: false.into() }
    }

    /// Whether Landlock is applied.
    pub(crate) fn has_landlock(&self) -> bool {
        !self.landlock_disabled.load(Ordering::Relaxed)
    }

    /// Leaves Landlock out from here on; whether it was applied before.
    pub(crate) fn disable_landlock(&self) -> bool {
        !self.landlock_disabled.swap(true, Ordering::Relaxed)
    }

    /// The command line of a child.
    pub(crate) fn line(&self, child: &Child) -> Result<Vec<OsString>, Fault> {
        let json = serde_json::to_string(child).map_err(|e| Fault::Machine(e.to_string()))?;
        let program = [self.program.clone().into_os_string()].into_iter();
        Ok(program.chain(self.arguments.iter().cloned()).chain([json.into()]).collect())
    }

    /// A command that becomes a child in a group of its own, without our environment. These descriptors stay open.
    pub(crate) fn command(&self, child: &Child, keep: Vec<RawFd>) -> Result<Command, Fault> {
        let line = self.line(child)?;
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).env_clear();
        process::detach(&mut command, keep);
        Ok(command)
    }

    /// Starts a child. It is told the descriptor of its end of the line.
    pub(crate) fn start(&self, child: impl FnOnce(RawFd) -> Child, dress: &Dress<'_>) -> Result<Started, Fault> {
        let (control, theirs) = socket::pair().map_err(fault("cannot make a socket pair"))?;
        let line = self.line(&child(theirs.as_raw_fd()))?;
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]);
        self.run(command, control, &theirs, dress)
    }

    /// Starts a program as it is, unconfined, with its end of the line.
    pub(crate) fn start_trusted(
        &self,
        command: impl FnOnce(RawFd) -> Command,
        dress: &Dress<'_>,
    ) -> Result<Started, Fault> {
        let (control, theirs) = socket::pair().map_err(fault("cannot make a socket pair"))?;
        self.run(command(theirs.as_raw_fd()), control, &theirs, dress)
    }

    fn run(
        &self,
        mut command: Command,
        control: OwnedFd,
        theirs: &OwnedFd,
        dress: &Dress<'_>,
    ) -> Result<Started, Fault> {
        let (output, print) = std::io::pipe().map_err(fault("cannot make a pipe"))?;
        let errors = print.try_clone().map_err(fault("cannot make a pipe"))?;
        command.env_clear().envs(dress.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(dress.folder.unwrap_or(Path::new("/")));
        command.stdin(Stdio::null()).stdout(print).stderr(errors);
        let mut keep = dress.files.clone();
        keep.push(theirs.as_raw_fd());
        process::detach(&mut command, keep);
        let child = self.spawner.spawn(command)?;
        Ok(Started { process: Process::of(&child), control, output, user: dress.user })
    }
}

/// Whether this program runs as root.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// Variables of ours that a child keeps.
pub(crate) fn kept(names: &[&str]) -> Vec<(String, OsString)> {
    names.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?))).collect()
}

/// One variable.
pub(crate) fn variable(name: &str, value: impl AsRef<OsStr>) -> (String, OsString) {
    (name.to_owned(), value.as_ref().to_owned())
}

/// Where programs are looked for.
pub(crate) fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

/// A folder that goes away with its handle, which other users may pass through.
pub(crate) fn open_folder(prefix: &str) -> Result<tempfile::TempDir, Fault> {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir().map_err(fault("cannot make a folder"))?;
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), open).map_err(fault("cannot open a folder"))?;
    Ok(folder)
}

/// Gives a folder and what lies in it to a user. With `from`, only what is that user's, and no file that has another name
/// elsewhere: it may lie outside. Nobody writes there meanwhile.
pub(crate) fn give(folder: &Path, from: Option<u32>, to: u32) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_dir() {
            give(&entry.path(), from, to)?;
        } else if about.nlink() == 1 && from.is_none_or(|from| about.uid() == from) {
            lchown(entry.path(), Some(to), Some(to))?;
        }
    }
    chown(folder, Some(to), Some(to))
}
