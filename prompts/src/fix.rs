//! How is a candidate's mending asked for? (CudaForge, Appendix D.3.)

use crate::{Fix, Prompt, Prompts, words};
use kernelbench::{Candidate, Failure, Task};
use minijinja::{Value, context};

impl Prompts {
    /// Coder: mend this candidate, with the error log and the Judge's one fix; `None` where there is no readable one.
    #[must_use]
    pub fn fix(&self, task: &Task, candidate: &Candidate, failure: &Failure, fix: Option<&Fix>) -> Prompt {
        self.page("fix", &values(task, candidate, failure, fix))
    }
}

pub(crate) fn values(task: &Task, candidate: &Candidate, failure: &Failure, fix: Option<&Fix>) -> Value {
    let fix = fix.map(|fix| {
        context! {
            critical_issue => words::one_line(&fix.critical_issue),
            why_it_matters => words::one_line(&fix.why_it_matters),
            minimal_fix_hint => words::one_line(&fix.minimal_fix_hint),
        }
    });
    context! {
        task => words::task(task),
        candidate => words::candidate(candidate),
        failure => words::failure(failure),
        fix => fix,
    }
}
