//! What has happened, kept twice: in the record and in mind, never one without the other.

use crate::event::{self, Event};
use crate::log::{Log, LogError};
use crate::trajectory::Trajectory;
use kernelbench::{Candidate, CandidateId, Certificate, Hash};

/// The record of one task and what it adds up to. Note first, then believe.
pub struct Notebook {
    log: Box<dyn Log>,
    so_far: Trajectory,
}

impl Notebook {
    /// A notebook that goes on from here.
    #[must_use]
    pub fn new(log: Box<dyn Log>, so_far: Trajectory) -> Self {
        Self { log, so_far }
    }

    /// What has happened.
    #[must_use]
    pub fn so_far(&self) -> &Trajectory {
        &self.so_far
    }

    /// Writes an event down, then takes it in.
    ///
    /// # Errors
    ///
    /// If it could not be written; then it is not taken in either.
    pub fn note(&mut self, event: Event) -> Result<(), LogError> {
        self.log.note(&event)?;
        self.so_far.apply(event);
        Ok(())
    }

    /// Keeps a text.
    ///
    /// # Errors
    ///
    /// If it could not be kept.
    pub fn keep(&mut self, text: &str) -> Result<Hash, LogError> {
        self.log.keep(text)
    }

    /// Reads a text that was kept.
    ///
    /// # Errors
    ///
    /// If it is missing or damaged.
    pub fn fetch(&self, hash: &Hash) -> Result<String, LogError> {
        self.log.fetch(hash)
    }

    /// What a certificate that is noted next rests on.
    #[must_use]
    pub fn evidence(&self, certificate: &Certificate) -> Hash {
        event::evidence(self.log.digest(), certificate)
    }

    /// A candidate by its name.
    ///
    /// # Errors
    ///
    /// If its source is missing or damaged.
    pub fn candidate(&self, id: &CandidateId) -> Result<Candidate, LogError> {
        self.fetch(id).map(|text| Candidate::of_canonical(&text))
    }
}
