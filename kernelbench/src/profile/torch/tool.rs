//! How is a tool started that reads what a candidate built, or runs it: a profiler, a disassembler, a sanitizer?
//!
//! Confined as candidates are, as a user of its own, in a folder of its own.

use crate::{
    backend::torch::{
        harness::Harness,
        python::{self, Python},
    },
    result::{error::fault, failure::Fault},
    sandbox::{
        launch::{self, Launch},
        process::{self, Process},
        tree::Company,
    },
};
use std::{
    io::Read,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

/// What a tool may print, in bytes.
const MOST_PRINTED: u64 = 32 << 20;

/// What tools are started with.
#[derive(Clone, Copy)]
pub(crate) struct Room<'a> {
    pub(crate) python: &'a Python,
    pub(crate) harness: &'a Harness,
    /// Whether landlock is tried.
    pub(crate) landlock: bool,
}

/// A tool that runs. Ended, with all that it started, when dropped.
pub(crate) struct Tool {
    process: Process,
    company: Company,
    printed: Receiver<String>,
    _control: OwnedFd,
}

impl Room<'_> {
    /// A folder for a tool, and the user that it will be given to.
    pub(crate) fn folder(&self) -> Result<(tempfile::TempDir, Option<u32>), Fault> {
        let folder = tempfile::tempdir().map_err(fault("cannot make a folder"))?;
        std::fs::create_dir(folder.path().join("tmp")).map_err(fault("cannot make a folder"))?;
        Ok((folder, self.python.a_user()))
    }

    /// The command line of Nsight Compute, with the program that the settings name.
    pub(crate) fn ncu(&self, mut line: Vec<String>) -> Vec<String> {
        if let (Some(program), Some(first)) = (&self.python.ncu, line.first_mut()) {
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
        beside: &Path,
    ) -> Result<Tool, Fault> {
        if let Some(user) = user {
            python::give(folder, user).map_err(fault("cannot give a folder away"))?;
        }
        let (control, theirs) = process::socket_pair().map_err(fault("cannot make a socket pair"))?;
        let named = self.python.ncu.as_deref().and_then(Path::parent).map(Path::to_owned);
        let launch = Launch {
            parent: std::process::id(),
            user,
            control: launch::number(&theirs),
            readable: python::readable(&self.python.folders, self.harness).into_iter().chain(named).collect(),
            // A driver names the threads of a process that a profiler starts there.
            writable: vec![folder.to_owned(), beside.to_owned(), PathBuf::from("/proc")],
            landlock: self.landlock,
            command: line,
            memory_bytes: None,
        };
        let mut command = self.python.confined(&launch)?;
        let (output, print) = std::io::pipe().map_err(fault("cannot make a pipe"))?;
        let errors = print.try_clone().map_err(fault("cannot make a pipe"))?;
        self.python.dress(&mut command, folder, print, errors);
        process::detach(&mut command, vec![launch::number(&theirs)]);
        let child = self.python.nursery.spawn(command)?;
        let company = Company::of(child.id().cast_signed(), user);
        Ok(Tool { process: Process::of(&child), company, printed: collect(output), _control: control })
    }
}

impl Tool {
    /// The user that it is.
    pub(crate) fn user(&self) -> Option<u32> {
        self.company.user
    }

    /// Its process's id, which is that of its group.
    pub(crate) fn id(&self) -> i32 {
        self.company.leader
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.process.ended(), Ok(None))
    }

    /// What it and all that it started printed until they ended; in words why there is no such thing.
    pub(crate) fn hear(&self, deadline: Duration) -> Result<String, String> {
        self.printed.recv_timeout(deadline).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("it did not end within {} s", deadline.as_secs()),
            RecvTimeoutError::Disconnected => "what it printed cannot be read".to_owned(),
        })
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.process.end();
        self.company.end();
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
