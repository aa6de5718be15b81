//! How does the Coder go on by itself, knowing only whether the candidate passed? (CudaForge §3.2, the one-sided ablations.)

use crate::{Prompt, Prompts, words};
use kernelbench::{Candidate, Task};
use metrics::Machine;
use minijinja::{Value, context};

impl Prompts {
    /// Coder: go on from this candidate, of which only `passed` is told.
    #[must_use]
    pub fn retry(&self, task: &Task, machine: &Machine, candidate: &Candidate, passed: bool) -> Prompt {
        self.page("retry", &values(task, machine, candidate, passed))
    }
}

pub(crate) fn values(task: &Task, machine: &Machine, candidate: &Candidate, passed: bool) -> Value {
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        candidate => words::candidate(candidate),
        passed => passed,
    }
}
