//! A Python process under a profiler: started ahead of need, and standing still until it is given its job.
//!
//! It waits for its job on a pipe in its folder; then the candidate's folder is handed over to it, and handed back when it
//! has ended.

use super::tool::{Room, Tool};
use crate::{
    profile::ncu::Permit,
    result::{error::fault, failure::Fault},
    sandbox::launch,
};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How often it is looked whether a process is ready.
const LOOK: Duration = Duration::from_millis(2);
/// What begins a line that says how long a stage took.
const STAGE: &str = "warpsmith stage ";

/// What is started, and for whom.
pub(crate) struct Plan<'a> {
    /// The profiler's command line.
    pub(crate) wrapper: Vec<String>,
    /// Whether it has its profiler read one launch of its own: the first reading takes long.
    pub(crate) primed: bool,
    /// The folder of the candidate, or one that candidates' folders lie in.
    pub(crate) beside: &'a Path,
    /// Where it will read counters.
    pub(crate) permit: Option<Permit>,
}

/// A process that waits.
pub(crate) struct Waiting {
    tool: Tool,
    pipe: File,
    beside: PathBuf,
    folder: tempfile::TempDir,
    /// Whether the first launch that the profiler reads is its own.
    pub(super) primed: bool,
    started: Instant,
    _permit: Option<Permit>,
}

impl Waiting {
    /// Starts it.
    pub(crate) fn start(room: &Room<'_>, plan: Plan<'_>) -> Result<Self, Fault> {
        let Plan { mut wrapper, primed, beside, permit } = plan;
        let (folder, user) = room.folder()?;
        let pipe = folder.path().join("job");
        launch::fifo(&pipe).map_err(fault("cannot make a pipe"))?;
        let script = room.harness.profiled().display().to_string();
        wrapper.extend(room.python.script(&script, &folder.path().display().to_string()));
        wrapper.extend([if primed { "primed" } else { "unprimed" }.to_owned(), room.python.device.clone()]);
        let tool = room.start(wrapper, folder.path(), user, beside)?;
        let pipe = File::options().read(true).write(true).open(pipe).map_err(fault("cannot open a pipe"))?;
        let (beside, started) = (beside.to_owned(), Instant::now());
        Ok(Self { tool, pipe, beside, folder, primed, started, _permit: permit })
    }

    /// Whether it may reach the folder of this candidate.
    pub(crate) fn serves(&self, candidate: &Path) -> bool {
        candidate.starts_with(&self.beside)
    }

    /// Whether it has its profiler read a launch of its own just now.
    pub(crate) fn reads(&self) -> bool {
        self.folder.path().join("reading").exists() && !self.is_ready()
    }

    /// Whether it stands still, and waits for its job.
    pub(crate) fn is_ready(&self) -> bool {
        self.folder.path().join("ready").exists()
    }

    /// Its process's id, and the file that is there once it stands still.
    pub(crate) fn sign(&self) -> (i32, PathBuf) {
        (self.tool.id(), self.folder.path().join("ready"))
    }

    /// Waits until it stands still or is gone; in words where neither came to pass within this time.
    pub(crate) fn settle(&mut self, patience: Duration) -> Result<(), String> {
        let start = Instant::now();
        while !self.is_ready() && self.tool.runs() {
            if start.elapsed() > patience {
                let waits = if self.reads() {
                    "it waits for the GPU's counters, which another may hold"
                } else {
                    "it still starts"
                };
                return Err(format!(
                    "the profiler was not ready after {:.0} s: {waits}",
                    self.started.elapsed().as_secs_f64()
                ));
            }
            std::thread::sleep(LOOK);
        }
        tracing::debug!(waited = ?start.elapsed(), age = ?self.started.elapsed(), ready = self.is_ready(), "under a profiler");
        Ok(())
    }

    /// Gives it its job, a call of the candidate in this folder, which is its owner's; what it and its profiler printed until
    /// they ended, or in words why they did not end.
    pub(crate) fn work(
        mut self,
        folder: &Path,
        owner: Option<u32>,
        job: &Value,
        deadline: Duration,
    ) -> Result<String, String> {
        let start = Instant::now();
        let mut job = job.clone();
        job["environment"] = json!({
            "TORCH_EXTENSIONS_DIR": folder.join("extensions"), "TRITON_CACHE_DIR": folder.join("triton"),
            "TORCHINDUCTOR_CACHE_DIR": folder.join("inductor"), "CUDA_CACHE_PATH": folder.join("cuda"),
        });
        hand_over(folder, owner, self.tool.user()).map_err(|e| format!("its folder cannot be handed over: {e}"))?;
        let said = self.pipe.write_all(format!("{job}\n").as_bytes());
        let said = said.map_err(|e| format!("it cannot be told its job: {e}")).and_then(|()| self.tool.hear(deadline));
        let worked = start.elapsed();
        drop(self);
        hand_over(folder, None, owner).map_err(|e| format!("its folder cannot be handed back: {e}"))?;
        let stages: Vec<&str> =
            said.iter().flat_map(|said| said.lines()).filter(|line| line.starts_with(STAGE)).collect();
        tracing::debug!(?worked, buried = ?start.elapsed().saturating_sub(worked), ?stages, "profiled");
        said
    }
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
