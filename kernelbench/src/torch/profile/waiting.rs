//! A Python process under a profiler: started ahead of need, and standing still until it is given its job.
//!
//! It is confined as candidates are, and is a user of its own. It waits for its job on a pipe in a folder of its own; then
//! the candidate's folder is handed over to it, and handed back when it has ended.

use crate::{
    failure::Fault,
    native::{
        process::{self, Process},
        trouble::fault,
    },
    torch::{
        company::Company,
        harness::Harness,
        launch::{self, Launch},
        python::{self, Facts, Python},
    },
};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

/// What a profiler may print, in bytes.
const MOST_PRINTED: u64 = 32 << 20;
/// How often it is looked whether a process is ready.
const LOOK: Duration = Duration::from_millis(2);

/// What a process under a profiler is started with.
pub(crate) struct Plan<'a> {
    pub(crate) python: &'a Python,
    pub(crate) harness: &'a Harness,
    pub(crate) facts: &'a Facts,
    /// The profiler's command line, which Python's is appended to.
    pub(crate) wrapper: Vec<String>,
    /// Whether it has its profiler read one launch of its own first: the first reading takes long.
    pub(crate) primed: bool,
    /// Whether landlock is tried.
    pub(crate) landlock: bool,
}

/// A process that waits.
pub(crate) struct Waiting {
    process: Process,
    company: Company,
    pipe: File,
    printed: Receiver<String>,
    candidate: PathBuf,
    folder: tempfile::TempDir,
    _control: std::os::fd::OwnedFd,
    /// Whether the first launch that the profiler reads is its own.
    pub(crate) primed: bool,
}

impl Waiting {
    /// Starts it, for the candidate in this folder.
    pub(crate) fn start(plan: &Plan<'_>, candidate: &Path) -> Result<Self, Fault> {
        let Plan { python, harness, facts, .. } = plan;
        let folder = tempfile::tempdir().map_err(fault("cannot make a folder"))?;
        std::fs::create_dir(folder.path().join("tmp")).map_err(fault("cannot make a folder"))?;
        let pipe = folder.path().join("job");
        launch::fifo(&pipe).map_err(fault("cannot make a pipe"))?;
        let user = python.a_user();
        if let Some(user) = user {
            python::give(folder.path(), user).map_err(fault("cannot give a folder away"))?;
        }
        let (control, theirs) = process::socket_pair().map_err(fault("cannot make a socket pair"))?;
        let mut line = plan.wrapper.clone();
        line.extend(python.script(&harness.profiled().display().to_string(), &folder.path().display().to_string()));
        line.push(if plan.primed { "primed" } else { "unprimed" }.to_owned());
        line.push(python.device.clone());
        let launch = Launch {
            parent: std::process::id(),
            user,
            control: launch::number(&theirs),
            readable: python::readable(&facts.folders, harness),
            writable: vec![folder.path().to_owned(), candidate.to_owned(), "/proc".into()],
            landlock: plan.landlock,
            command: line,
            memory_bytes: None,
        };
        let mut command = python.confined(&launch)?;
        let (output, print) = std::io::pipe().map_err(fault("cannot make a pipe"))?;
        let errors = print.try_clone().map_err(fault("cannot make a pipe"))?;
        python.dress(&mut command, folder.path(), print, errors);
        process::detach(&mut command, vec![launch::number(&theirs)]);
        let child = python.nursery.spawn(command)?;
        let company = Company::of(child.id().cast_signed(), user);
        let pipe = File::options().read(true).write(true).open(pipe).map_err(fault("cannot open a pipe"))?;
        Ok(Self {
            process: Process::of(&child),
            company,
            pipe,
            printed: collect(output),
            candidate: candidate.to_owned(),
            folder,
            _control: control,
            primed: plan.primed,
        })
    }

    /// Waits until it stands still, or is gone, or this much time has passed.
    pub(crate) fn settle(&mut self, patience: Duration) {
        let (start, ready) = (Instant::now(), self.folder.path().join("ready"));
        while !ready.exists() && start.elapsed() < patience && matches!(self.process.ended(), Ok(None)) {
            std::thread::sleep(LOOK);
        }
    }

    /// Gives it its job; what it and its profiler printed until they ended, or in words why they did not end.
    pub(crate) fn work(mut self, owner: Option<u32>, job: &Value, deadline: Duration) -> Result<String, String> {
        let folder = self.candidate.clone();
        let mut job = job.clone();
        job["environment"] = json!({
            "TORCH_EXTENSIONS_DIR": folder.join("extensions"), "TRITON_CACHE_DIR": folder.join("triton"),
            "TORCHINDUCTOR_CACHE_DIR": folder.join("inductor"), "CUDA_CACHE_PATH": folder.join("cuda"),
        });
        hand_over(&folder, owner, self.company.user).map_err(|e| format!("its folder cannot be handed over: {e}"))?;
        let said = self.pipe.write_all(format!("{job}\n").as_bytes());
        let said = said.map_err(|e| format!("it cannot be told its job: {e}")).and_then(|()| self.hear(deadline));
        drop(self);
        hand_over(&folder, None, owner).map_err(|e| format!("its folder cannot be handed back: {e}"))?;
        said
    }

    fn hear(&self, deadline: Duration) -> Result<String, String> {
        self.printed.recv_timeout(deadline).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("it did not end within {} s", deadline.as_secs()),
            RecvTimeoutError::Disconnected => "what it printed cannot be read".to_owned(),
        })
    }
}

impl Drop for Waiting {
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

/// Gives a folder and what lies in it to another user, as far as it is its owner's alone: a name of a file that lies
/// elsewhere too stays as it is. Nobody writes there meanwhile.
fn hand_over(folder: &Path, from: Option<u32>, to: Option<u32>) -> std::io::Result<()> {
    use std::os::unix::fs::{MetadataExt, chown, lchown};
    let Some(to) = to else { return Ok(()) };
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_dir() {
            hand_over(&entry.path(), from, Some(to))?;
        } else if about.nlink() == 1 && from.is_none_or(|from| about.uid() == from) {
            lchown(entry.path(), Some(to), Some(to))?;
        }
    }
    chown(folder, Some(to), Some(to))
}
