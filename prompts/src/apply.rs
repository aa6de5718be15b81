//! How are the Planner's suggestions handed to the Coder? (Astra §3.2.)

use crate::{Prompt, Prompts, Suggestions, words};
use kernelbench::{Candidate, Task};
use metrics::Machine;
use minijinja::{Value, context};

impl Prompts {
    /// Coder: apply these suggestions to this candidate; `None` where there are no readable ones.
    #[must_use]
    pub fn apply(
        &self,
        task: &Task,
        machine: &Machine,
        candidate: &Candidate,
        passed: bool,
        suggestions: Option<&Suggestions>,
    ) -> Prompt {
        self.page("apply", &values(task, machine, candidate, passed, suggestions))
    }
}

pub(crate) fn values(
    task: &Task,
    machine: &Machine,
    candidate: &Candidate,
    passed: bool,
    suggestions: Option<&Suggestions>,
) -> Value {
    let suggestions = suggestions.map(|s| s.items.iter().map(|item| words::one_line(item)).collect::<Vec<_>>());
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        candidate => words::candidate(candidate),
        passed => passed,
        suggestions => suggestions,
    }
}
