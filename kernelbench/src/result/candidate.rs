//! What is offered, and how far it has come.
//!
//! `Candidate -> Built -> Verified`: only a [`Verified`] is timed or profiled, and only a workshop makes one.

use crate::hash::Hash;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A candidate's name: the hash of its source.
pub type CandidateId = Hash;

/// An answer to a task. Its identity is its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    source: String,
}

impl Candidate {
    /// A candidate of this source text.
    #[must_use]
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into() }
    }

    /// The source text.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What it is called.
    #[must_use]
    pub fn id(&self) -> CandidateId {
        Hash::of(self.source.as_bytes())
    }
}

/// A candidate that compiled. Only a workshop makes one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    pub(crate) candidate: Candidate,
    /// The shared object; empty in a simulation.
    pub(crate) artifact: PathBuf,
}

impl Built {
    /// What was built.
    #[must_use]
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// The shared object; empty in a simulation.
    #[must_use]
    pub fn artifact(&self) -> &Path {
        &self.artifact
    }
}

/// A built candidate that gave the right answer on every case of its suite. Only a workshop makes one.
#[derive(Clone, Debug)]
pub struct Verified {
    pub(crate) built: Built,
}

impl Verified {
    /// What was verified.
    #[must_use]
    pub fn candidate(&self) -> &Candidate {
        &self.built.candidate
    }

    /// The build that was verified.
    #[must_use]
    pub fn built(&self) -> &Built {
        &self.built
    }
}
