//! Which files make a run?

use super::{
    StoreError,
    blobs::Blobs,
    header::RunHeader,
    is_a_plain_name,
    lock::Lock,
    log::{Record, TaskLog},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folder of one run: `run.toml`, `tasks/<task>/events.jsonl`, `blobs/`, `report.html`, `warpsmith.log`.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Makes the folder of a new run. It must not exist yet, or be empty.
    ///
    /// # Errors
    ///
    /// If it holds something, or cannot be made.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(path).map_err(|e| StoreError::system("make the run's folder", path, e))?;
        let mut entries = fs::read_dir(path).map_err(|e| StoreError::system("look into it", path, e))?;
        if entries.next().is_some() {
            let why = "there is something in this folder already; name an empty or a new one, or continue a run with `warpsmith resume`";
            return Err(StoreError::damaged(path, why));
        }
        for folder in ["tasks", "blobs"] {
            let folder = path.join(folder);
            fs::create_dir(&folder).map_err(|e| StoreError::system("make the folder", &folder, e))?;
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Makes the folder of a new run in `root`, named after the time (UTC) and the task: `20261120-151203-silu_and_mul`.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn create_in(root: &Path, name: &str) -> Result<Self, StoreError> {
        let time = jiff::Zoned::now().with_time_zone(jiff::tz::TimeZone::UTC).strftime("%Y%m%d-%H%M%S").to_string();
        let mut path = root.join(format!("{time}-{name}"));
        for again in 2.. {
            if fs::symlink_metadata(&path).is_err() {
                break;
            }
            path = root.join(format!("{time}-{name}-{again}"));
        }
        Self::create(&path)
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

    /// Writes its header.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn set_header(&self, header: &RunHeader) -> Result<(), StoreError> {
        header.write(&self.path.join("run.toml"))
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
                Err(StoreError::damaged(&self.path, format!("the run has {} tasks, expected one", others + 1)))
            }
        }
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

    fn events(&self, task: &str) -> Result<PathBuf, StoreError> {
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

    #[test]
    fn a_folder_that_holds_something_is_not_taken_for_a_new_run() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.tex"), "x").unwrap();
        assert!(RunFolder::create(folder.path()).unwrap_err().to_string().contains("something in this folder"));
        assert!(RunFolder::open(folder.path()).unwrap_err().to_string().contains("no run.toml"));
    }

    #[test]
    fn the_name_of_a_task_cannot_lead_out_of_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::create(&folder.path().join("run")).unwrap();
        for name in ["../x", "a/b", "", ".", "..", "x\0"] {
            assert!(run.record(name).unwrap_err().to_string().contains("cannot be the name of a task"), "{name:?}");
        }
    }

    #[test]
    fn two_runs_of_one_second_have_two_folders() {
        let root = tempfile::tempdir().unwrap();
        let (one, two) =
            (RunFolder::create_in(root.path(), "t").unwrap(), RunFolder::create_in(root.path(), "t").unwrap());
        assert_ne!(one.path(), two.path());
    }
}
