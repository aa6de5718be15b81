//! Which shapes is a candidate tried on?

use crate::{hash::Hash, task::Case};
use serde::{Deserialize, Serialize};

/// Who chose the shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provenance {
    /// The task's author.
    Task,
    /// A model, asked once (CudaForge, Appendix B; Astra §3.2).
    Model,
}

/// The shapes of one run. Made once, then frozen (Astra, Algorithm 1; CudaForge, Appendix B).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// Who chose them.
    pub provenance: Provenance,
    /// A candidate is right when it is right on all of these.
    pub cases: Vec<Case>,
    /// Names of the cases that are timed.
    pub timed: Vec<String>,
}

impl Suite {
    /// What names this suite: the hash of its content.
    #[must_use]
    pub fn id(&self) -> Hash {
        Hash::of(serde_json::to_string(self).unwrap_or_default().as_bytes())
    }
}
