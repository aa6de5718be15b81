//! How is the one optimization asked for, and how is the answer read? (CudaForge, Appendix D.2.)

use crate::{
    Optimization, Prompt, Prompts, Unreadable,
    reply::{Field, read_fields},
    words,
};
use kernelbench::{Candidate, Task, Timed};
use metrics::{Machine, Profile};
use minijinja::{Value, context};

/// What the reply must hold.
pub(crate) const FIELDS: [Field; 3] = [
    Field { key: "bottleneck", most_words: 30, single: true },
    Field { key: "optimization method", most_words: 35, single: true },
    Field { key: "modification plan", most_words: 35, single: false },
];

impl Prompts {
    /// Judge: the one bottleneck of this candidate and the one method against it, from its own measurements.
    #[must_use]
    pub fn advise(
        &self,
        task: &Task,
        machine: &Machine,
        candidate: &Candidate,
        timed: &Timed,
        profile: Option<&Profile>,
    ) -> Prompt {
        self.page("advise", &values(task, machine, candidate, timed, profile))
    }
}

pub(crate) fn values(
    task: &Task,
    machine: &Machine,
    candidate: &Candidate,
    timed: &Timed,
    profile: Option<&Profile>,
) -> Value {
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        candidate => words::candidate(candidate),
        timed => words::timed(timed),
        profile => profile.map(words::profile),
    }
}

/// Reads the Judge's one optimization. The keys may be spelt with `s` or `z`, with a space or an underscore.
///
/// # Errors
/// Where the reply is not one JSON object with the three keys, each a string within its limit of 30, 35 and 35 words;
/// or holds two verdicts, or a fix.
pub fn read_optimization(reply: &str) -> Result<Optimization, Unreadable> {
    let [bottleneck, method, plan] =
        read_fields(reply, FIELDS, &crate::diagnose::FIELDS, "a fix came where an optimization was asked for")?;
    Ok(Optimization { bottleneck, method, plan })
}
