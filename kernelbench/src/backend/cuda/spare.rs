//! Is a process ready before it is needed?
//!
//! A process with a context on the GPU takes a third of a second to start. One is started ahead, while a compiler works; a
//! crash costs a spare and not a wait.

use super::{
    driver::HANDLE,
    runner::{Launcher, Runner},
};
use crate::result::failure::Fault;
use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

/// A child that is being started.
type Starting = JoinHandle<Result<Runner, Fault>>;

/// The next candidate's process.
#[derive(Debug)]
pub(crate) struct Spare {
    launcher: Arc<Launcher>,
    arena: [u8; HANDLE],
    next: Mutex<Option<Starting>>,
}

impl Spare {
    /// None yet.
    pub(crate) fn new(launcher: Arc<Launcher>, arena: [u8; HANDLE]) -> Self {
        Self { launcher, arena, next: Mutex::default() }
    }

    fn next(&self) -> std::sync::MutexGuard<'_, Option<Starting>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one, where none is there.
    pub(crate) fn prepare(&self) {
        let (launcher, arena) = (Arc::clone(&self.launcher), self.arena);
        let start = move || launcher.start(arena);
        self.next().get_or_insert_with(|| std::thread::spawn(start));
    }

    /// The one that is there, once it is ready, or a new one.
    pub(crate) fn take(&self) -> Result<Runner, Fault> {
        let next = self.next().take();
        match next.map(JoinHandle::join) {
            Some(Ok(Ok(runner))) => Ok(runner),
            _ => self.launcher.start(self.arena),
        }
    }

    /// Waits until the one that is being started stands still.
    pub(crate) fn settle(&self) {
        while self.next().as_ref().is_some_and(|starting| !starting.is_finished()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
