//! The page that asks for a failed candidate to be fixed (CudaForge, Appendix D.3).

use crate::{Fix, Prompt, Prompts, features::guided, words};
use kernelbench::{Candidate, Failure, Task};
use metrics::Machine;
use minijinja::{Value, context};

impl Prompts {
    /// Coder: fix this candidate, with the error log and the Judge's one fix; `None` where there is no readable one.
    #[must_use]
    pub fn fix(
        &self,
        task: &Task,
        machine: &Machine,
        candidate: &Candidate,
        failure: &Failure,
        fix: Option<&Fix>,
    ) -> Prompt {
        let guides = self.guides(machine, fix.map_or(&[], |fix| &fix.features));
        self.page("fix", &guided(guides, &values(task, machine, candidate, failure, fix)))
    }
}

pub(crate) fn values(
    task: &Task,
    machine: &Machine,
    candidate: &Candidate,
    failure: &Failure,
    fix: Option<&Fix>,
) -> Value {
    let fix = fix.map(|fix| {
        context! {
            critical_issue => words::one_line(&fix.critical_issue),
            why_it_matters => words::one_line(&fix.why_it_matters),
            minimal_fix_hint => words::one_line(&fix.minimal_fix_hint),
        }
    });
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        candidate => words::candidate(candidate),
        failure => words::failure(failure),
        fix => fix,
        guides => Vec::<Value>::new(),
    }
}
