//! Which files make a run?

use super::{
    StoreError,
    batch::{self, BatchList},
    blobs::{Blobs, sync},
    follow::Follow,
    header::RunHeader,
    is_a_plain_name,
    lock::Lock,
    log::{End, Record, TaskLog},
    mend::{self, Mended},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folder of one run: `run.toml`, for several tasks `batch.toml`, `tasks/<task>/events.jsonl`, `blobs/`, `report.html`, `warpsmith.log`.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Makes the folder of a new run, whole or not at all: it is made beside and then renamed. It must not exist yet, or
    /// be empty.
    ///
    /// # Errors
    ///
    /// If it holds something, or cannot be made.
    pub fn create(path: &Path, header: &RunHeader) -> Result<Self, StoreError> {
        Self::create_filled(path, header, |_| Ok(()))
    }

    /// The same for a run of several tasks: `list` keeps their texts and gives the list of them.
    ///
    /// # Errors
    ///
    /// If it holds something, or cannot be made.
    pub fn create_batch(
        path: &Path,
        header: &RunHeader,
        list: impl FnOnce(&Blobs) -> Result<BatchList, StoreError>,
    ) -> Result<Self, StoreError> {
        Self::create_filled(path, header, |made| list(&Blobs::at(made.join("blobs")))?.write(&made.join(batch::FILE)))
    }

    /// The same with more in it, which is put into the folder that is given.
    pub(super) fn create_filled(
        path: &Path,
        header: &RunHeader,
        more: impl FnOnce(&Path) -> Result<(), StoreError>,
    ) -> Result<Self, StoreError> {
        if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            let why = "there is something in this folder already; name an empty or a new one, or continue a run with `warpsmith resume`";
            return Err(StoreError::damaged(path, why));
        }
        let whole = std::path::absolute(path).map_err(|e| StoreError::system("make the run's folder", path, e))?;
        let name = whole.file_name().unwrap_or_default().to_string_lossy();
        let beside = whole.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let made = Self::fill(&beside, header)
            .and_then(|()| more(&beside))
            .and_then(|()| fs::rename(&beside, path).map_err(|e| StoreError::system("make the run's folder", path, e)));
        if made.is_err() {
            let _ = fs::remove_dir_all(&beside);
        }
        made?;
        [Some(whole.as_path()), whole.parent()].into_iter().flatten().try_for_each(sync)?;
        Ok(Self { path: path.to_owned() })
    }

    fn fill(path: &Path, header: &RunHeader) -> Result<(), StoreError> {
        for folder in ["tasks", "blobs"].map(|name| path.join(name)) {
            fs::create_dir_all(&folder).map_err(|e| StoreError::system("make the folder", &folder, e))?;
        }
        header.write(&path.join("run.toml"))
    }

    /// A free name for a run in `root`, after the time (UTC) and the task: `20261120-151203-silu_and_mul`.
    #[must_use]
    pub fn free_name(root: &Path, task: &str) -> PathBuf {
        let time = jiff::Zoned::now().with_time_zone(jiff::tz::TimeZone::UTC).strftime("%Y%m%d-%H%M%S").to_string();
        let numbered = (2..).map(|again| root.join(format!("{time}-{task}-{again}")));
        let free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
        let first = root.join(format!("{time}-{task}"));
        std::iter::once(first.clone()).chain(numbered).find(free).unwrap_or(first)
    }

    /// Opens the folder of a run that exists.
    ///
    /// # Errors
    ///
    /// If it is not the folder of a run.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if !path.is_dir() {
            return Err(StoreError::damaged(
                path,
                "there is no such folder; expected the folder of a run, as `warpsmith run` prints it",
            ));
        }
        if !path.join("run.toml").exists() {
            return Err(StoreError::damaged(path, "this is not the folder of a run: it holds no run.toml"));
        }
        for folder in ["tasks", "blobs"].map(|name| path.join(name)) {
            if fs::symlink_metadata(&folder).is_ok_and(|about| !about.is_dir()) {
                return Err(StoreError::damaged(&folder, "expected a folder, not a link or a file"));
            }
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its header, `run.toml`.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn header(&self) -> Result<RunHeader, StoreError> {
        RunHeader::read(&self.path.join("run.toml"))
    }

    /// Its list of tasks, if it is a run of several.
    ///
    /// # Errors
    ///
    /// If there is one and it cannot be read.
    pub fn batch(&self) -> Result<Option<BatchList>, StoreError> {
        let path = self.path.join(batch::FILE);
        if path.exists() { BatchList::read(&path).map(Some) } else { Ok(None) }
    }

    /// The texts of all its tasks.
    #[must_use]
    pub fn blobs(&self) -> Blobs {
        Blobs::at(self.path.join("blobs"))
    }

    /// The names of its tasks, sorted.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read, or holds what no run has put there.
    pub fn tasks(&self) -> Result<Vec<String>, StoreError> {
        let folder = self.path.join("tasks");
        let entries = fs::read_dir(&folder).map_err(|e| StoreError::system("look into it", &folder, e))?;
        let mut names = vec![];
        for entry in entries {
            let entry = entry.map_err(|e| StoreError::system("look into it", &folder, e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !is_a_plain_name(&name) || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                return Err(StoreError::damaged(&entry.path(), "this is not a task's folder: remove it"));
            }
            names.push(name);
        }
        names.sort();
        Ok(names)
    }

    /// The record of one task.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be read.
    pub fn record(&self, task: &str) -> Result<Record, StoreError> {
        Record::read(&self.events(task)?, self.blobs())
    }

    /// Whether this task has a record: whether its turn has come.
    #[must_use]
    pub fn has_record(&self, task: &str) -> bool {
        self.events(task).is_ok_and(|events| fs::symlink_metadata(events).is_ok())
    }

    /// The record of one task, to be read while it grows.
    ///
    /// # Errors
    ///
    /// If a task cannot be called so, or its folder is a link.
    pub fn follow(&self, task: &str) -> Result<Follow, StoreError> {
        let events = self.events(task)?;
        let folder = events.parent().unwrap_or(&self.path);
        if fs::symlink_metadata(folder).is_ok_and(|about| !about.is_dir()) {
            return Err(StoreError::damaged(folder, "expected a task's folder, not a link or a file"));
        }
        Ok(Follow::new(events))
    }

    /// The record of the run's only task.
    ///
    /// # Errors
    ///
    /// If there is none or there are several, or it cannot be read.
    pub fn only_record(&self) -> Result<Record, StoreError> {
        self.record(&self.only_task()?)
    }

    /// The name of the run's only task.
    ///
    /// # Errors
    ///
    /// If there is none or there are several.
    pub fn only_task(&self) -> Result<String, StoreError> {
        let mut names = self.tasks()?;
        match (names.pop(), names.len()) {
            (Some(name), 0) => Ok(name),
            (None, _) => Err(StoreError::damaged(
                &self.path,
                "the run has no task yet: it was ended before its first event; run it anew",
            )),
            (_, others) => {
                Err(StoreError::damaged(&self.path, format!("the run has {} tasks: name one with --task", others + 1)))
            }
        }
    }

    /// Who writes to this run now, as far as the lock says: a process that was killed leaves its name.
    #[must_use]
    pub fn writer(&self) -> Option<String> {
        Lock::owner(&self.path)
    }

    /// When whoever writes to it took the right to, in milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn written_since(&self) -> Option<i64> {
        let taken = fs::metadata(self.path.join("lock")).ok()?.modified().ok()?;
        Some(taken.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis() as i64)
    }

    /// Takes the right to write to this run; see [`Lock::take`].
    ///
    /// # Errors
    ///
    /// If another process has it.
    pub fn lock(&self) -> Result<(Lock, Option<String>), StoreError> {
        let taken = Lock::take(&self.path)?;
        self.blobs().sweep();
        Ok(taken)
    }

    /// Opens the record of one task for appending; the word is for the user. Only for whoever holds the lock.
    ///
    /// # Errors
    ///
    /// If it cannot be read or written.
    pub fn append(&self, task: &str, _held: &Lock) -> Result<(TaskLog, Option<String>), StoreError> {
        let events = self.events(task)?;
        let folder = events.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder).map_err(|e| StoreError::system("make the folder", folder, e))?;
        TaskLog::open(&events, self.blobs())
    }

    /// Opens a task's record for appending behind what was read of it; none where it has grown since. Only for whoever holds
    /// the lock.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn append_unchanged(&self, task: &str, read: &End, _held: &Lock) -> Result<Option<TaskLog>, StoreError> {
        TaskLog::open_unchanged(&self.events(task)?, self.blobs(), read)
    }

    /// Takes out of a task's record what rests on texts that are damaged; see [`Mended`]. Only for whoever holds the lock.
    ///
    /// # Errors
    ///
    /// If the record itself cannot be read, or nothing can be written.
    pub fn mend(&self, task: &str, _held: &Lock) -> Result<Mended, StoreError> {
        mend::mend(&self.events(task)?, &self.blobs())
    }

    pub(super) fn events(&self, task: &str) -> Result<PathBuf, StoreError> {
        if !is_a_plain_name(task) {
            let why =
                format!("{task:?} cannot be the name of a task: letters, digits, '.', '_' and '-', not more than 100");
            return Err(StoreError::damaged(&self.path, why));
        }
        Ok(self.path.join("tasks").join(task).join("events.jsonl"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use metrics::{Machine, MachineKind};

    fn header() -> RunHeader {
        let machine = Machine {
            kind: MachineKind::Simulated,
            name: "none".into(),
            arch: metrics::Arch::Cpu("none".into()),
            facts: vec![],
            bandwidths: vec![],
            peak_flops: None,
        };
        RunHeader {
            format: agents::event::FORMAT,
            warpsmith: "0".into(),
            began: String::new(),
            task: "t".into(),
            model: "m".into(),
            policy: "p".into(),
            simulated: true,
            compilers: [].into(),
            templates: [].into(),
            machine,
            configuration: Config::default(),
        }
    }

    #[test]
    fn a_folder_that_holds_something_is_not_taken_for_a_new_run() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.tex"), "x").unwrap();
        assert!(
            RunFolder::create(folder.path(), &header()).unwrap_err().to_string().contains("something in this folder")
        );
        assert!(RunFolder::open(folder.path()).unwrap_err().to_string().contains("no run.toml"));
    }

    #[test]
    fn a_new_run_has_its_header_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::create(&folder.path().join("run"), &header()).unwrap();
        assert_eq!(run.header().unwrap(), header());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_name_of_a_task_cannot_lead_out_of_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::create(&folder.path().join("run"), &header()).unwrap();
        for name in ["../x", "a/b", "", ".", "..", "x\0"] {
            assert!(run.record(name).unwrap_err().to_string().contains("cannot be the name of a task"), "{name:?}");
        }
    }

    #[test]
    fn two_runs_of_one_second_have_two_names() {
        let root = tempfile::tempdir().unwrap();
        let one = RunFolder::free_name(root.path(), "t");
        fs::create_dir(&one).unwrap();
        assert_ne!(one, RunFolder::free_name(root.path(), "t"));
    }
}
