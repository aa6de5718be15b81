//! The processes that wait to read counters of whichever candidate is profiled next.
//!
//! To start one takes seconds, and nobody's code is in it until it is given its job; then it is that candidate's alone, and
//! ends with it. Several may wait side by side: none reads counters meanwhile.

use crate::{
    engine::sessions::lock,
    profile::waiting::{Sign, Waiting},
};
use std::{
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

/// How long a reading that has begun may take to end.
const READING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(2);

/// The place where they wait, the oldest first.
#[derive(Default)]
pub(super) struct Ahead(Mutex<Vec<Waiting>>);

impl Ahead {
    /// How many wait or are being started.
    pub(super) fn count(&self) -> usize {
        lock(&self.0).len()
    }

    /// Starts one more where fewer than so many wait; what tells of it.
    pub(super) fn begin(&self, wanted: usize, start: impl FnOnce() -> Option<Waiting>) -> Option<Sign> {
        let mut all = lock(&self.0);
        if all.len() >= wanted {
            return None;
        }
        let one = start()?;
        let sign = one.sign();
        all.push(one);
        Some(sign)
    }

    /// One that is ready, or that has ended before it was, of those that may be given the candidate in this folder; those that
    /// may not end.
    pub(super) fn take_settled(&self, candidate: &Path) -> Option<Waiting> {
        let mut all = lock(&self.0);
        all.retain(|waiting| waiting.reaches(candidate));
        let ready = all.iter().position(Waiting::is_ready);
        let place = ready.or_else(|| all.iter_mut().position(Waiting::has_ended))?;
        Some(all.remove(place))
    }

    /// The oldest of these, ready or not.
    pub(super) fn take(&self, candidate: &Path) -> Option<Waiting> {
        let mut all = lock(&self.0);
        let place = all.iter().position(|waiting| waiting.reaches(candidate))?;
        Some(all.remove(place))
    }

    /// Ends the one with this id.
    pub(super) fn end_one(&self, id: i32) {
        let mut all = lock(&self.0);
        let gone = all.iter().position(|waiting| waiting.sign().id == id).map(|place| all.remove(place));
        drop(all);
        drop(gone);
    }

    /// Ends all that wait.
    pub(super) fn end(&self) {
        let gone = std::mem::take(&mut *lock(&self.0));
        drop(gone);
    }

    /// Waits while one of them reads its own launch: it is not to be stopped with the counters in its hand.
    pub(super) fn let_reading_end(&self) {
        let start = Instant::now();
        while lock(&self.0).iter().any(Waiting::reads) && start.elapsed() < READING {
            std::thread::sleep(LOOK);
        }
    }
}
