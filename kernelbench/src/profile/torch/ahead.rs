//! The process that waits under Nsight Compute for whichever candidate is profiled next.
//!
//! One at most, for a device in this program. To start it takes seconds, and nobody's code is in it until it is given its
//! job; then it is that candidate's alone, and ends with it.

use crate::{engine::sessions::lock, profile::waiting::Waiting};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

/// How long a reading that has begun may take to end.
const READING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(2);

/// Those of all workshops in this program.
static ALL: Mutex<Vec<Weak<Ahead>>> = Mutex::new(vec![]);

/// The place where it waits.
#[derive(Default)]
pub(super) struct Ahead {
    device: String,
    waiting: Mutex<Option<Waiting>>,
}

impl Ahead {
    /// An empty place, for a device.
    pub(super) fn new(device: &str) -> Arc<Self> {
        let ahead = Arc::new(Self { device: device.to_owned(), waiting: Mutex::default() });
        let mut all = lock(&ALL);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&ahead));
        ahead
    }

    /// Whether one waits.
    pub(super) fn is_taken(&self) -> bool {
        lock(&self.waiting).is_some()
    }

    /// Whether one is ready, or has ended before it was.
    pub(super) fn is_settled(&self) -> bool {
        lock(&self.waiting).as_mut().is_some_and(|waiting| waiting.is_ready() || waiting.has_ended())
    }

    /// Starts it where none waits; its id and the file that is there once it is ready.
    pub(super) fn begin(&self, start: impl FnOnce() -> Option<Waiting>) -> Option<(i32, PathBuf)> {
        let mut place = lock(&self.waiting);
        if place.is_some() {
            return None;
        }
        *place = start();
        place.as_ref().map(Waiting::sign)
    }

    /// It, if one waits that may be given the candidate in this folder.
    pub(super) fn take(&self, candidate: &Path) -> Option<Waiting> {
        lock(&self.waiting).take().filter(|waiting| waiting.reaches(candidate))
    }

    /// Ends those that wait for other workshops on this device.
    pub(super) fn end_others(self: &Arc<Self>) {
        let all: Vec<_> = lock(&ALL).iter().filter_map(Weak::upgrade).collect();
        let others = all.iter().filter(|one| one.device == self.device && !Arc::ptr_eq(one, self));
        for other in others {
            drop(lock(&other.waiting).take());
        }
    }

    /// Waits while it reads its own launch: it is not to be stopped with the counters in its hand.
    pub(super) fn let_reading_end(&self) {
        let start = Instant::now();
        while lock(&self.waiting).as_ref().is_some_and(Waiting::reads) && start.elapsed() < READING {
            std::thread::sleep(LOOK);
        }
    }
}
