//! What goes on in a run, seen in a browser while it happens?
//!
//! A page on 127.0.0.1 that only reads: it follows the records, whoever writes them, and sends a browser first how things
//! stand and then what changes. Nothing that a model or a compiler wrote becomes markup, and no address leads to a file: a
//! task and a round are numbers.

mod device;
mod http;
mod row;
mod stream;
mod task;
mod watch;

#[cfg(test)]
mod tests;

pub use http::{Served, serve};

use crate::{exit::Trouble, store::RunFolder};
use bytes::Bytes;
use serde_json::Value;
use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::broadcast;
use watch::Watch;

/// How often the records are looked at while somebody looks at the page.
const EVERY: Duration = Duration::from_millis(500);
/// So many changes may wait for a browser; one that is slower is told anew how things stand.
const WAITING: usize = 64;

/// A run, a batch or an ablation that is looked at.
pub struct Live {
    watch: Mutex<Watch>,
    changes: broadcast::Sender<Bytes>,
}

impl Live {
    /// The one in this folder, a run's or an ablation's. Nothing of its records is read yet.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn of(path: &Path) -> Result<Arc<Self>, Trouble> {
        Ok(Arc::new(Self { watch: Mutex::new(Watch::of(path)?), changes: broadcast::Sender::new(WAITING) }))
    }

    /// Looks at the records, and tells whoever follows what has changed.
    fn look(&self) {
        let changed = self.lock().look();
        self.tell(changed.as_ref());
    }

    /// How things stand now.
    fn state(&self) -> Value {
        let mut watch = self.lock();
        self.tell(watch.look().as_ref());
        watch.state()
    }

    /// How things stand now, and all changes from here on.
    fn follow(&self) -> (Value, broadcast::Receiver<Bytes>) {
        let mut watch = self.lock();
        self.tell(watch.look().as_ref());
        (watch.state(), self.changes.subscribe())
    }

    /// The folder of a run among those that are looked at.
    fn run(&self, number: usize) -> Option<RunFolder> {
        self.lock().run(number)
    }

    /// The folder of a task's run, and its name there.
    fn task(&self, number: usize) -> Option<(RunFolder, String)> {
        self.lock().task(number)
    }

    fn tell(&self, changed: Option<&Value>) {
        if let Some(changed) = changed {
            // Nobody need be there to hear it.
            let _ = self.changes.send(stream::told("change", changed));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks again and again, as long as somebody is there to see it.
async fn keep_looking(live: Arc<Live>) {
    loop {
        tokio::time::sleep(EVERY).await;
        if live.changes.receiver_count() > 0 {
            let live = live.clone();
            let _ = tokio::task::spawn_blocking(move || live.look()).await;
        }
    }
}
