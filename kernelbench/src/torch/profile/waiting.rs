//! A Python process under a profiler: started ahead of need, and standing still until it is given its job.
//!
//! It waits for its job on a pipe in its folder; then the candidate's folder is handed over to it, and handed back when it
//! has ended.

use super::tool::{Room, Tool};
use crate::{failure::Fault, native::trouble::fault, torch::launch};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How often it is looked whether a process is ready.
const LOOK: Duration = Duration::from_millis(2);

/// A process that waits.
pub(crate) struct Waiting {
    tool: Tool,
    pipe: File,
    candidate: PathBuf,
    folder: tempfile::TempDir,
    /// Whether the first launch that the profiler reads is its own.
    pub(super) primed: bool,
}

impl Waiting {
    /// Starts it under the profiler with this command line, for the candidate in this folder. Primed, it has its profiler
    /// read one launch of its own: the first reading takes long.
    pub(crate) fn start(
        room: &Room<'_>,
        mut wrapper: Vec<String>,
        primed: bool,
        candidate: &Path,
    ) -> Result<Self, Fault> {
        let (folder, user) = room.folder()?;
        let pipe = folder.path().join("job");
        launch::fifo(&pipe).map_err(fault("cannot make a pipe"))?;
        let script = room.harness.profiled().display().to_string();
        wrapper.extend(room.python.script(&script, &folder.path().display().to_string()));
        wrapper.extend([if primed { "primed" } else { "unprimed" }.to_owned(), room.python.device.clone()]);
        let tool = room.start(wrapper, folder.path(), user, candidate)?;
        let pipe = File::options().read(true).write(true).open(pipe).map_err(fault("cannot open a pipe"))?;
        Ok(Self { tool, pipe, candidate: candidate.to_owned(), folder, primed })
    }

    /// Its process's id, and the file that is there once it stands still.
    pub(crate) fn sign(&self) -> (i32, PathBuf) {
        (self.tool.id(), self.folder.path().join("ready"))
    }

    /// Waits until it stands still, or is gone, or this much time has passed.
    pub(crate) fn settle(&mut self, patience: Duration) {
        let (start, ready) = (Instant::now(), self.folder.path().join("ready"));
        while !ready.exists() && start.elapsed() < patience && self.tool.runs() {
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
        hand_over(&folder, owner, self.tool.user()).map_err(|e| format!("its folder cannot be handed over: {e}"))?;
        let said = self.pipe.write_all(format!("{job}\n").as_bytes());
        let said = said.map_err(|e| format!("it cannot be told its job: {e}")).and_then(|()| self.tool.hear(deadline));
        drop(self);
        hand_over(&folder, None, owner).map_err(|e| format!("its folder cannot be handed back: {e}"))?;
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
