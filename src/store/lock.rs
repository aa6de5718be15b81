//! Who writes to this run?
//!
//! The file `lock` names the process and its machine, and is held by the system's own file lock, which ends with the
//! process however it ends. Reading a run needs no lock.

use super::StoreError;
use std::{
    fs::{self, File, TryLockError},
    io::{Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

/// How often a lock that is held is tried again, before somebody is said to work on the run.
const LOOKS: u32 = 3;

/// The right to write to a run, for as long as it lives.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _held: File,
}

impl Lock {
    /// Takes the lock of the run in this folder. The word is for the user: whose place was taken.
    ///
    /// # Errors
    ///
    /// If a living process holds it, or one on another machine may.
    pub fn take(run: &Path) -> Result<(Self, Option<String>), StoreError> {
        let path = run.join("lock");
        let mut looks = 0;
        loop {
            let mut file = open(&path)?;
            let owner = owner_in(&mut file);
            match file.try_lock() {
                Ok(()) => {}
                // Whoever looks at who holds it does so for an instant, too.
                Err(TryLockError::WouldBlock) if looks < LOOKS => {
                    looks += 1;
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Err(locked(run, &owner, "; wait for it or end it")),
                Err(TryLockError::Error(e)) => return Err(StoreError::system("lock the run", &path, e)),
            }
            if !still_there(&file, &path) {
                continue;
            }
            let word = judge_previous_owner(run, &path, &owner)?;
            write_owner(&file, &path)?;
            return Ok((Self { path, _held: file }, word));
        }
    }
}

impl Lock {
    /// Who holds the lock of the run in this folder, if anybody does: `process 123 on host`.
    #[must_use]
    pub fn owner(run: &Path) -> Option<String> {
        let mut file = File::open(run.join("lock")).ok()?;
        let owner = owner_in(&mut file);
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)).then_some(owner)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> Result<File, StoreError> {
    if fs::symlink_metadata(path).is_ok_and(|about| !about.is_file()) {
        return Err(StoreError::damaged(path, "it is not a plain file: remove it"));
    }
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
    opened.map_err(|e| StoreError::system("open the lock", path, e))
}

/// `process 123 on host`, as the last owner wrote it; empty if nobody did.
fn owner_in(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.take(300).read_to_string(&mut text);
    text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect()
}

fn write_owner(mut file: &File, path: &Path) -> Result<(), StoreError> {
    let owner = format!("process {} on {}\n", std::process::id(), host());
    file.set_len(0)
        .and_then(|()| write_at_start(&mut file, &owner))
        .map_err(|e| StoreError::system("write the lock", path, e))
}

fn write_at_start(file: &mut &File, text: &str) -> std::io::Result<()> {
    use std::io::Seek;
    file.rewind()?;
    file.write_all(text.as_bytes())
}

/// The file lock is ours. A name left in it is that of a process that was killed, if it ran on this machine.
fn judge_previous_owner(run: &Path, path: &Path, owner: &str) -> Result<Option<String>, StoreError> {
    if owner.is_empty() {
        return Ok(None);
    }
    if !owner.ends_with(&format!(" on {}", host())) {
        let advice = format!(", another machine; if that process is gone, remove {}", path.display());
        return Err(locked(run, owner, &advice));
    }
    Ok(Some(format!("{owner} wrote to this run before and is gone; going on in its place")))
}

fn locked(run: &Path, owner: &str, advice: &str) -> StoreError {
    let owner = if owner.is_empty() { "another process" } else { owner };
    StoreError::Locked { path: run.to_owned(), why: format!("{owner} is writing to this run{advice}") }
}

/// Whether the path still names the file that was locked: its last owner may have removed it in between.
#[cfg(unix)]
fn still_there(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let same = |a: &fs::Metadata, b: &fs::Metadata| a.ino() == b.ino() && a.dev() == b.dev();
    matches!((&file.metadata(), &fs::symlink_metadata(path)), (Ok(a), Ok(b)) if same(a, b))
}

#[cfg(not(unix))]
fn still_there(_file: &File, path: &Path) -> bool {
    path.exists()
}

/// This machine's name.
fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| fs::read_to_string("/etc/hostname"));
    name.map_or_else(|_| "this machine".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_owners_at_once_are_one_too_many() {
        let run = tempfile::tempdir().unwrap();
        let (held, word) = Lock::take(run.path()).unwrap();
        assert_eq!(word, None);
        let error = Lock::take(run.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(held);
        assert!(!run.path().join("lock").exists());
        assert!(Lock::take(run.path()).is_ok());
    }

    #[test]
    fn the_lock_of_a_killed_process_is_taken_over_with_a_word() {
        let run = tempfile::tempdir().unwrap();
        fs::write(run.path().join("lock"), format!("process 999999999 on {}\n", host())).unwrap();
        let (_held, word) = Lock::take(run.path()).unwrap();
        assert!(word.unwrap().contains("999999999"));
    }

    #[test]
    fn the_lock_of_another_machine_is_not() {
        let run = tempfile::tempdir().unwrap();
        fs::write(run.path().join("lock"), "process 1 on elsewhere.example\n").unwrap();
        let error = Lock::take(run.path()).unwrap_err().to_string();
        assert!(error.contains("elsewhere.example") && error.contains("remove"), "{error}");
    }
}
