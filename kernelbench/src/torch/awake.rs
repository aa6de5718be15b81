//! How are cores kept from falling asleep while something is timed?
//!
//! A core with nothing to do stops, and in a virtual machine its host may give it away: the process that is let go next
//! then starts later, and not always as much later. Threads that yield to everything keep the cores awake meanwhile.

use super::launch;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

/// The most cores that are kept awake.
const MOST: usize = 32;

/// While it lives, no core sleeps.
pub(crate) struct Awake {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Keeps the cores awake, where that is wanted and they are few enough.
    pub(crate) fn new(wanted: bool) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let cores = if wanted && cores <= MOST { cores } else { 0 };
        let spin = |_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                // Without the lowest priority it would disturb what it is to help.
                while launch::yields_to_all() && !over.load(Ordering::Relaxed) {
                    for _ in 0..10_000 {
                        std::hint::spin_loop();
                    }
                }
            })
        };
        let threads = (0..cores).map(spin).collect();
        Self { over, threads }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
