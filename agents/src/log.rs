//! Where is it written down?

use crate::event::Event;
use kernelbench::{Hash, Hashing};
use std::{collections::HashMap, sync::Arc, sync::Mutex};

/// The record could not be written or read: where, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LogError(pub String);

/// The record of one task: events in order, and blobs by content.
pub trait Log: Send + 'static {
    /// Appends one event; once this returns, a killed program does not lose it.
    ///
    /// # Errors
    ///
    /// If it could not be kept.
    fn note(&mut self, event: &Event) -> Result<(), LogError>;

    /// Keeps a text and gives its name. Keeping the same text twice keeps it once.
    ///
    /// # Errors
    ///
    /// If it could not be kept.
    fn keep(&mut self, text: &str) -> Result<Hash, LogError>;

    /// Reads a text that was kept.
    ///
    /// # Errors
    ///
    /// If it is missing, or its content is not what its name says.
    fn fetch(&self, hash: &Hash) -> Result<String, LogError>;

    /// What was noted so far, as a hash of its lines.
    fn digest(&self) -> Hashing;
}

/// A record in memory: for tests and simulations. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryLog(Arc<Mutex<Memory>>);

#[derive(Default)]
struct Memory {
    events: Vec<Event>,
    blobs: HashMap<Hash, String>,
}

impl MemoryLog {
    /// What was noted so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// A record of its own that holds only the first events of this one, as if the program had been killed after them.
    #[must_use]
    pub fn killed_after(&self, events: usize) -> Self {
        let memory = self.lock();
        let kept = Memory { events: memory.events[..events].to_vec(), blobs: memory.blobs.clone() };
        Self(Arc::new(Mutex::new(kept)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Log for MemoryLog {
    fn note(&mut self, event: &Event) -> Result<(), LogError> {
        self.lock().events.push(event.clone());
        Ok(())
    }

    fn keep(&mut self, text: &str) -> Result<Hash, LogError> {
        let hash = Hash::of(text.as_bytes());
        self.lock().blobs.insert(hash.clone(), text.to_owned());
        Ok(hash)
    }

    fn fetch(&self, hash: &Hash) -> Result<String, LogError> {
        self.lock().blobs.get(hash).cloned().ok_or_else(|| LogError(format!("no text {hash} was kept")))
    }

    fn digest(&self) -> Hashing {
        let mut digest = Hashing::default();
        for event in &self.lock().events {
            digest.take(serde_json::to_string(event).unwrap_or_default().as_bytes());
        }
        digest
    }
}
