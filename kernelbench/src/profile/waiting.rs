//! A process under a profiler or a sanitizer: started ahead of need, and waiting until it is given its job.
//!
//! It waits for its job on a pipe in its folder, and says there when it is ready and while its profiler reads a launch of
//! its own: the first reading takes long, and one process at a time may read.

use super::{
    job::{IMPORTED, JOB, LOADED, READING, READY, WARM},
    tool::{Tool, Tools},
};
use crate::{
    profile::ncu::Permit,
    result::{error::fault, failure::Fault},
    sandbox::tree,
};
use nix::{sys::stat::Mode, unistd::mkfifo};
use serde::Serialize;
use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How often it is looked whether a process is ready.
const LOOK: Duration = Duration::from_millis(2);
/// What is started.
pub(crate) struct Plan<'a> {
    /// The tool's command line; that of the process is appended, made from its folder.
    pub(crate) wrapper: Vec<String>,
    /// The process's command line.
    pub(crate) process: &'a dyn Fn(&Path) -> Result<Vec<String>, Fault>,
    /// Whether one launch of its own is read: the first reading takes long.
    pub(crate) primed: bool,
    /// A folder that it may write to beside its own.
    pub(crate) beside: Option<&'a Path>,
    /// Whether Landlock is applied.
    pub(crate) landlock: bool,
    /// Where it reads counters on its own before it is ready.
    pub(crate) permit: Option<Permit>,
}

/// A process that waits.
pub(crate) struct Waiting {
    tool: Tool,
    pipe: File,
    beside: Option<PathBuf>,
    folder: tempfile::TempDir,
    /// Whether the first launch that is read is its own.
    pub(crate) primed: bool,
    started: Instant,
    permit: Option<Permit>,
}

/// What tells of a process that is being started, and reaches it, for who does not own it.
#[derive(Clone, Debug)]
pub(crate) struct Sign {
    pub(crate) id: i32,
    folder: PathBuf,
}

impl Sign {
    /// Whether it waits for its job.
    pub(crate) fn is_ready(&self) -> bool {
        self.folder.join(READY).exists()
    }

    /// Whether it has imported what it needs before it uses the device, and waits for the word to.
    pub(crate) fn has_imported(&self) -> bool {
        self.folder.join(IMPORTED).exists()
    }

    /// Whether it waits for the word to have its profiler read a launch of its own.
    pub(crate) fn is_warm(&self) -> bool {
        self.folder.join(WARM).exists()
    }

    /// Whether there is such a process still.
    pub(crate) fn lives(&self) -> bool {
        tree::lives(self.id)
    }

    /// Gives it the word.
    pub(crate) fn go_on(&self) -> std::io::Result<()> {
        File::options().read(true).write(true).open(self.folder.join(JOB))?.write_all(b"true\n")
    }
}

impl Waiting {
    /// Starts it.
    pub(crate) fn start(tools: &Tools, plan: Plan<'_>) -> Result<Self, Fault> {
        let Plan { mut wrapper, process, primed, beside, landlock, permit } = plan;
        let (folder, user) = tools.folder()?;
        let pipe = folder.path().join(JOB);
        mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|e| fault("cannot make a pipe")(e.into()))?;
        wrapper.extend(process(folder.path())?);
        let tool = tools.start(wrapper, folder.path(), user, beside, landlock)?;
        let pipe = File::options().read(true).write(true).open(pipe).map_err(fault("cannot open a pipe"))?;
        let (beside, started) = (beside.map(Path::to_owned), Instant::now());
        Ok(Self { tool, pipe, beside, folder, primed, started, permit })
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The user that it is.
    pub(crate) fn user(&self) -> Option<u32> {
        self.tool.user()
    }

    /// Whether it may reach this folder.
    pub(crate) fn reaches(&self, folder: &Path) -> bool {
        self.beside.as_ref().is_some_and(|beside| folder.starts_with(beside))
    }

    /// Whether it has its profiler read a launch of its own just now.
    pub(crate) fn reads(&self) -> bool {
        self.folder.path().join(READING).exists() && !self.is_ready() && tree::lives(self.tool.id())
    }

    /// Whether it waits for its job.
    pub(crate) fn is_ready(&self) -> bool {
        self.folder.path().join(READY).exists()
    }

    /// Whether its process is gone.
    pub(crate) fn has_ended(&mut self) -> bool {
        !self.tool.runs()
    }

    /// What tells of it.
    pub(crate) fn sign(&self) -> Sign {
        Sign { id: self.tool.id(), folder: self.folder.path().to_owned() }
    }

    /// Has it hold a permit while its job is done, where it holds none; in words why not.
    pub(crate) fn with_permit(&mut self, take: impl FnOnce() -> Result<Option<Permit>, String>) -> Result<(), String> {
        if self.permit.is_none() {
            self.permit = take()?;
        }
        Ok(())
    }

    /// Gives its permit back once it is ready or gone: it reads nothing then until it is given its job. Whether it holds none.
    pub(crate) fn let_others_read(&mut self) -> bool {
        if self.is_ready() || self.has_ended() {
            self.permit = None;
        }
        self.permit.is_none()
    }

    /// Waits until it is ready or gone; in words where neither came to pass within this time.
    pub(crate) fn settle(&mut self, patience: Duration) -> Result<(), String> {
        let start = Instant::now();
        while !self.is_ready() && self.tool.runs() {
            if start.elapsed() > patience {
                let waits = if self.reads() {
                    "it waits for the GPU's counters, which another may hold"
                } else {
                    "it still starts"
                };
                let seconds = self.started.elapsed().as_secs_f64();
                return Err(format!("the profiler was not ready after {seconds:.0} s: {waits}"));
            }
            std::thread::sleep(LOOK);
        }
        let (waited, age) = (start.elapsed(), self.started.elapsed());
        tracing::debug!(?waited, ?age, ready = self.is_ready(), "under a profiler");
        self.let_others_read();
        Ok(())
    }

    /// Gives it its job; what it and its tool printed until they ended, or in words why they did not end.
    pub(crate) fn work(mut self, job: &impl Serialize, deadline: Duration) -> Result<String, String> {
        self.tell(job)?;
        self.tool.output(deadline)
    }

    /// Gives it its job, and waits until it has loaded what it is to run, or is gone; in words where neither comes to pass.
    pub(crate) fn load(&mut self, job: &impl Serialize, deadline: Duration) -> Result<(), String> {
        self.tell(job)?;
        let (start, loaded) = (Instant::now(), self.folder.path().join(LOADED));
        while !loaded.exists() && self.tool.runs() {
            if start.elapsed() > deadline {
                return Err(format!("it had not loaded the candidate after {} s", deadline.as_secs()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Has it go on; what it and its tool printed until they ended, or in words why they did not end.
    pub(crate) fn go(mut self, deadline: Duration) -> Result<String, String> {
        self.tell(&true)?;
        self.tool.output(deadline)
    }

    /// Writes a line that it waits for.
    fn tell(&mut self, what: &impl Serialize) -> Result<(), String> {
        let line = serde_json::to_string(what).map_err(|e| e.to_string())?;
        let said = self.pipe.write_all(format!("{line}\n").as_bytes());
        said.map_err(|e| format!("it cannot be told its job: {e}"))
    }
}
