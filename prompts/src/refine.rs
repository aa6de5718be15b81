//! How does the Coder go on by itself, with all the evidence? (CudaForge §3.2, self-refine.)

use crate::{Prompt, Prompts, words};
use kernelbench::{Candidate, Evaluation, Task};
use metrics::{Machine, Profile};
use minijinja::{Value, context};

impl Prompts {
    /// Coder: go on from this candidate; the error log, or the times and the profile, are shown.
    #[must_use]
    pub fn refine(
        &self,
        task: &Task,
        machine: &Machine,
        candidate: &Candidate,
        evaluation: &Evaluation,
        profile: Option<&Profile>,
    ) -> Prompt {
        self.page("refine", &values(task, machine, candidate, evaluation, profile))
    }
}

/// Also what [`Prompts::suggest`] shows.
pub(crate) fn values(
    task: &Task,
    machine: &Machine,
    candidate: &Candidate,
    evaluation: &Evaluation,
    profile: Option<&Profile>,
) -> Value {
    let (failure, timed) = match evaluation {
        Evaluation::Failed(failure) => (Some(words::failure(failure)), None),
        Evaluation::Passed(timed) => (None, Some(words::timed(timed))),
        Evaluation::Counted(_) | Evaluation::Compiled(_) => (None, None),
    };
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        candidate => words::candidate(candidate),
        failure => failure,
        timed => timed,
        products => words::products(task, machine),
        profile => profile.map(|profile| words::profile(profile, machine)),
    }
}
