//! Tools around candidates: profilers, disassemblers, sanitizers. Confined as candidates are, each as a user of its own, in
//! a folder of its own.

use crate::{
    result::{error::fault, failure::Fault},
    sandbox::{
        confine::{Confinement, Files, Limits, User},
        entry::{Child, Program},
        process::Process,
        start::{Dress, Sandbox, Started, give, open_folder},
        tree::{ProcessTree, own_user},
    },
};
use std::{
    ffi::OsString,
    io::Read,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};

/// What a tool may print, in bytes.
const MOST_PRINTED: u64 = 32 << 20;

/// How often it is looked whether one has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What a process that a GPU's driver works in may use up.
pub(crate) const DRIVER_LIMITS: Limits =
    Limits { address_space: None, cpu_seconds: None, file_bytes: 4 << 30, processes: Some(1024), files: 4096 };

/// The environment of a process in its folder.
pub(crate) type Environment = dyn Fn(&Path) -> Vec<(String, OsString)> + Send + Sync;

/// What tools are started with.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) sandbox: Arc<Sandbox>,
    /// What they may read beside the system's libraries.
    pub(crate) readable: Vec<PathBuf>,
    /// Their environment in a folder.
    pub(crate) environment: Arc<Environment>,
    /// Whether each has a user of its own.
    pub(crate) own_users: bool,
    /// Nsight Compute's program, where it is not `ncu` as the path finds it.
    pub(crate) ncu: Option<PathBuf>,
}

/// A tool that runs. Ended, with all that it started, when dropped.
pub(crate) struct Tool {
    process: Process,
    tree: ProcessTree,
    printed: Receiver<String>,
    _control: OwnedFd,
}

impl Tools {
    /// A folder for a tool, and the user that it will be given to.
    pub(crate) fn folder(&self) -> Result<(tempfile::TempDir, Option<u32>), Fault> {
        let folder = open_folder("tool-")?;
        std::fs::create_dir(folder.path().join("tmp")).map_err(fault("cannot make a folder"))?;
        Ok((folder, self.own_users.then(own_user)))
    }

    /// The command line of Nsight Compute, with the program that the settings name.
    pub(crate) fn ncu(&self, mut line: Vec<String>) -> Vec<String> {
        if let (Some(program), Some(first)) = (&self.ncu, line.first_mut()) {
            *first = program.display().to_string();
        }
        line
    }

    /// Starts this command line in its folder, which is given to its user; it may write `beside`, too.
    pub(crate) fn start(
        &self,
        line: Vec<String>,
        folder: &Path,
        user: Option<u32>,
        beside: Option<&Path>,
        landlock: bool,
    ) -> Result<Tool, Fault> {
        if let Some(user) = user {
            give(folder, None, user).map_err(fault("cannot give a folder away"))?;
        }
        let named = self.ncu.as_deref().and_then(Path::parent).map(Path::to_owned);
        let read = self.readable.iter().cloned().chain(named).collect();
        // A driver names the threads of a process that a profiler starts in /proc.
        let write = [Some(folder), beside, Some("/proc".as_ref())].into_iter().flatten().map(Path::to_owned).collect();
        let files = landlock.then_some(Files { read, write, devices: true });
        let parent = std::process::id().cast_signed();
        let own = user.map_or(User::Same, User::Own);
        let confinement = Confinement { parent, user: own, limits: DRIVER_LIMITS, files, shares_ipc: true };
        let dress = Dress { environment: (self.environment)(folder), folder: Some(folder), user, ..Dress::default() };
        let child = |control| {
            Child::Program(Program { confinement, control: Some(control), wraps: None, unstarted: None, line })
        };
        let Started { process, control, output, user } = self.sandbox.start(child, &dress)?;
        let tree = ProcessTree::of(process.id(), user);
        Ok(Tool { process, tree, printed: collect(output), _control: control })
    }
}

impl Tool {
    /// The user that it is.
    pub(crate) fn user(&self) -> Option<u32> {
        self.tree.user
    }

    /// Its process's id, which is that of its group.
    pub(crate) fn id(&self) -> i32 {
        self.tree.leader
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.process.ended(), Ok(None))
    }

    /// Waits until it has ended, so long at most, and ends what it started.
    pub(crate) fn end_within(&mut self, deadline: Duration) {
        let start = Instant::now();
        while self.runs() && start.elapsed() < deadline {
            std::thread::sleep(LOOK);
        }
        let _ = self.process.end();
        self.tree.end();
    }

    /// What it and all that it started printed until they ended; in words why there is no such thing.
    pub(crate) fn output(&self, deadline: Duration) -> Result<String, String> {
        self.printed.recv_timeout(deadline).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("it did not end within {} s", deadline.as_secs()),
            RecvTimeoutError::Disconnected => "what it printed cannot be read".to_owned(),
        })
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.process.end();
        self.tree.end();
    }
}

fn collect(output: std::io::PipeReader) -> Receiver<String> {
    let (done, ready) = channel();
    std::thread::spawn(move || {
        let mut text = vec![];
        let _ = output.take(MOST_PRINTED).read_to_end(&mut text);
        let _ = done.send(String::from_utf8_lossy(&text).into_owned());
    });
    ready
}
