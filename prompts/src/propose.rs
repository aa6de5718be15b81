//! The page that asks which transformation comes next, where a model plans a workflow (after PEAK §3.4; the choice by a model
//! is this project's own).

use crate::{PlanLine, Prompt, Prompts, catalogue, transform::backend, words};
use kernelbench::{Candidate, Space, Task, region};
use metrics::Machine;
use minijinja::{Value, context};
use serde::{Deserialize, Serialize};

/// Where a workflow stands, and what can be applied there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposing {
    /// What the head is called, such as `c2`.
    pub head: String,
    /// The head's context, with what is open left open.
    pub context: Candidate,
    /// The head's tuning parameters.
    pub tuning: Space,
    /// How fast the head is, in words: "1.42x [1.40, 1.44] of the reference's speed".
    pub speedup: String,
    /// What was applied so far, in order, and what came of it.
    pub history: Vec<PlanLine>,
    /// What can be applied to the head.
    pub open: Vec<OpenTransformation>,
    /// Whether it may propose to stop.
    pub may_stop: bool,
}

/// A transformation that can be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTransformation {
    /// Its name.
    pub name: String,
    /// What it does.
    pub summary: String,
    /// The tuning parameters that it adds, by name.
    pub adds: Vec<String>,
    /// The kernels that it is for; any where there is none.
    pub kernels: Vec<String>,
}

impl Prompts {
    /// Planner: the next transformation of a workflow. The reply is read by [`crate::read_plan`].
    #[must_use]
    pub fn propose(&self, task: &Task, machine: &Machine, proposing: &Proposing) -> Prompt {
        self.page("propose", &values(task, machine, proposing))
    }
}

pub(crate) fn values(task: &Task, machine: &Machine, proposing: &Proposing) -> Value {
    let named = |(thing, name): (String, String)| context! { thing, name };
    let list =
        |values: &[kernelbench::Parameter]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let parameter = |(name, values): (&String, &Vec<_>)| context! { name, values => list(values) };
    let line = |line: &PlanLine| {
        context! { step => words::one_line(&line.step), outcome => words::one_line(&line.outcome) }
    };
    let open = |one: &OpenTransformation| {
        context! {
            name => words::one_line(&one.name),
            summary => words::one_line(&one.summary),
            adds => one.adds.join(", "),
            kernels => one.kernels.join(", "),
        }
    };
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        words => catalogue::words(backend(task)).into_iter().map(named).collect::<Vec<_>>(),
        head => words::one_line(&proposing.head),
        source => region::marked(proposing.context.parts()),
        speedup => words::one_line(&proposing.speedup),
        parameters => proposing.tuning.grid.iter().map(parameter).collect::<Vec<_>>(),
        history => proposing.history.iter().map(line).collect::<Vec<_>>(),
        open => proposing.open.iter().map(open).collect::<Vec<_>>(),
        may_stop => proposing.may_stop,
    }
}
