//! How is the one fault asked for, and how is the answer read? (CudaForge, Appendix D.2.)

use crate::{
    Fix, Prompt, Prompts, Unreadable,
    reply::{Field, read_fields},
    words,
};
use kernelbench::{Candidate, Failure, Task};
use minijinja::{Value, context};

/// What the reply must hold.
pub(crate) const FIELDS: [Field; 3] = [
    Field { key: "critical_issue", most_words: 20, single: true },
    Field { key: "why_it_matters", most_words: 35, single: false },
    Field { key: "minimal_fix_hint", most_words: 20, single: true },
];

impl Prompts {
    /// Judge: the one problem that explains why this candidate failed.
    #[must_use]
    pub fn diagnose(&self, task: &Task, candidate: &Candidate, failure: &Failure) -> Prompt {
        self.page("diagnose", &values(task, candidate, failure))
    }
}

pub(crate) fn values(task: &Task, candidate: &Candidate, failure: &Failure) -> Value {
    context! {
        task => words::task(task),
        candidate => words::candidate(candidate),
        failure => words::failure(failure),
    }
}

/// Reads the Judge's one fix.
///
/// # Errors
/// Where the reply is not one JSON object with the three keys, each a string within its limit of 20, 35 and 20 words;
/// or holds two verdicts, or an optimization.
pub fn read_fix(reply: &str) -> Result<Fix, Unreadable> {
    let [critical_issue, why_it_matters, minimal_fix_hint] =
        read_fields(reply, FIELDS, &crate::advise::FIELDS, "an optimization came where a fix was asked for")?;
    Ok(Fix { critical_issue, why_it_matters, minimal_fix_hint })
}
