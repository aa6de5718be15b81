//! Who reads this GPU's counters now?
//!
//! Two processes that read counters at the same time under Nsight Compute keep each other from them, and neither says so. So
//! one may read at a time, of all programs on this machine that ask here: whoever has one read holds a lock on a file. One
//! that has read and waits keeps nobody out (seen with 2025.3 on an H200).

use crate::machine::gpu;
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How often it is asked again.
const AGAIN: Duration = Duration::from_millis(20);

/// Held by whoever has a process read counters. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _locked: Option<File>,
}

impl Permit {
    /// The permit for a device, such as `cuda:0`, if it can be had within this time; in words why not.
    pub(crate) fn take(device: &str, patience: Duration) -> Result<Self, String> {
        Self::of(&place(device), patience)
    }

    /// The same for a GPU by its number.
    pub(crate) fn for_gpu(ordinal: u32, patience: Duration) -> Result<Self, String> {
        Self::take(&format!("cuda:{ordinal}"), patience)
    }

    fn of(path: &Path, patience: Duration) -> Result<Self, String> {
        // Where no file can be locked, nobody is kept out, as if nobody had asked.
        let Ok(file) = open(path) else { return Ok(Self { _locked: None }) };
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _locked: Some(file) }),
                Err(std::fs::TryLockError::Error(_)) => return Ok(Self { _locked: None }),
                Err(std::fs::TryLockError::WouldBlock) if start.elapsed() < patience => std::thread::sleep(AGAIN),
                Err(std::fs::TryLockError::WouldBlock) => {
                    return Err(format!(
                        "another evaluation here reads its counters, by the lock on {}",
                        path.display()
                    ));
                }
            }
        }
    }
}

/// The file for a device among those that this environment shows.
fn place(device: &str) -> PathBuf {
    let device = gpu::ordinal(device).map_or_else(|| device.to_owned(), |ordinal| format!("cuda:{ordinal}"));
    let shown = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let name: String =
        format!("{device}-{shown}").chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    std::env::temp_dir().join(format!("warpsmith-counters-{name}.lock"))
}

/// Opened to be read where it is there, for it may be another user's.
fn open(path: &Path) -> io::Result<File> {
    let plain = |options: &mut OpenOptions| options.custom_flags(libc::O_NOFOLLOW).open(path);
    plain(OpenOptions::new().read(true)).or_else(|_| plain(OpenOptions::new().read(true).write(true).create(true)))
}

#[cfg(test)]
mod tests {
    use super::{Permit, place};
    use std::time::Duration;

    #[test]
    fn one_gpu_by_any_of_its_names_is_one_file() {
        assert_eq!(place("cuda"), place("cuda:0"));
        assert_ne!(place("cuda:0"), place("cuda:1"));
    }

    #[test]
    fn one_holds_it_at_a_time_and_the_next_gets_a_word_and_then_the_permit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = Permit::of(&path, Duration::ZERO).unwrap();
        let why = Permit::of(&path, Duration::from_millis(30)).unwrap_err();
        assert!(why.contains("another evaluation"), "{why}");
        drop(first);
        Permit::of(&path, Duration::ZERO).unwrap();
    }
}
