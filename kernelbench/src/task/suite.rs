//! Which shapes is a candidate tried on?

use crate::{
    hash::Hash,
    task::{Case, Source, Task, TimedCases},
};
use serde::{Deserialize, Serialize};

/// The only case of a problem: a problem has one shape, its own.
pub(crate) const DEFAULT: &str = "default";

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
    /// The task's own shapes, timed as the task says.
    #[must_use]
    pub fn of_task(task: &Task) -> Self {
        let bytes = |case: &&Case| match &task.source {
            Source::Context(context) => context.bytes(case).unwrap_or(0),
            Source::Problem(_) => 0,
        };
        let timed = match &task.timed {
            TimedCases::All => task.cases.iter().map(|case| case.name.clone()).collect(),
            TimedCases::Largest => {
                task.cases.iter().max_by_key(bytes).map(|case| case.name.clone()).into_iter().collect()
            }
            TimedCases::Case(name) => vec![name.clone()],
        };
        Self { provenance: Provenance::Task, cases: task.cases.clone(), timed }
    }

    /// What names this suite: the hash of its content.
    #[must_use]
    pub fn id(&self) -> Hash {
        Hash::of(serde_json::to_string(self).unwrap_or_default().as_bytes())
    }
}
