//! Which process waits under Nsight Compute for whichever candidate is profiled next?
//!
//! One at most, for a device in this program. To start it takes seconds, and nobody's code is in it until it is given its
//! job; then it is that candidate's alone, and ends with it.

use super::Waiting;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

/// How long a reading that has begun is let come to its end.
const READING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(2);

/// Those of all workshops in this program.
static ALL: Mutex<Vec<Weak<Ahead>>> = Mutex::new(vec![]);

/// The place where it waits.
#[derive(Default)]
pub(crate) struct Ahead {
    device: String,
    waiting: Mutex<Option<Waiting>>,
}

impl Ahead {
    /// An empty place, for a device.
    pub(crate) fn new(device: &str) -> Arc<Self> {
        let ahead = Arc::new(Self { device: device.to_owned(), waiting: Mutex::default() });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&ahead));
        ahead
    }

    /// Starts it where none waits; its id and the file that is there once it stands still.
    pub(crate) fn begin(&self, start: impl FnOnce() -> Option<Waiting>) -> Option<(i32, PathBuf)> {
        let mut place = self.lock();
        if place.is_some() {
            return None;
        }
        *place = start();
        place.as_ref().map(Waiting::sign)
    }

    /// It, if one waits that may be given the candidate in this folder.
    pub(crate) fn take(&self, candidate: &Path) -> Option<Waiting> {
        self.lock().take().filter(|waiting| waiting.serves(candidate))
    }

    /// Ends those that wait for other workshops on this device.
    pub(crate) fn others_give_way(self: &Arc<Self>) {
        let all: Vec<_> = ALL.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
        let others = all.iter().filter(|one| one.device == self.device && !Arc::ptr_eq(one, self));
        for other in others {
            drop(other.lock().take());
        }
    }

    /// Waits while it reads its own launch: it is not to be stopped with the counters in its hand.
    pub(crate) fn come_to_rest(&self) {
        let start = Instant::now();
        while self.lock().as_ref().is_some_and(Waiting::reads) && start.elapsed() < READING {
            std::thread::sleep(LOOK);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
