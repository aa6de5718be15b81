//! The page that asks for one call of a transformation: one region, rewritten as a pass of it says (PEAK §3.2, §4.1).

use crate::{Prompt, Prompts, catalogue, words};
use kernelbench::{Candidate, Failure, Language, Space, Task, region};
use metrics::Machine;
use minijinja::{Value, context};
use serde::{Deserialize, Serialize};

/// One call of a transformation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rewriting {
    /// The context as it is before this call.
    pub context: Candidate,
    /// The transformation's name.
    pub transformation: String,
    /// What it does.
    pub summary: String,
    /// Which pass this call belongs to, from 1, and of how many.
    pub passes: (usize, usize),
    /// What the pass is for.
    pub aim: String,
    /// The region that is rewritten.
    pub region: String,
    /// How.
    pub text: String,
    /// The tuning parameters of the context, those of the transformation among them.
    pub tuning: Space,
    /// Those that the transformation retires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<String>,
    /// What a person says beside the transformation.
    pub say: Option<String>,
    /// How the last try of the same transformation failed, and what this region was then, where it is to be seen.
    pub last: Option<(Failure, Option<String>)>,
}

/// The backend of a task, by its name in transformations.
#[must_use]
pub fn backend(task: &Task) -> &'static str {
    match task.language() {
        Language::Cuda => "cuda",
        Language::Hip => "hip",
        Language::Hlsl => "hlsl",
        Language::C | Language::Cpp | Language::Python => "cpu",
    }
}

impl Prompts {
    /// Coder: rewrite one region.
    #[must_use]
    pub fn transform(&self, task: &Task, machine: &Machine, rewriting: &Rewriting) -> Prompt {
        self.page("transform", &values(task, machine, rewriting))
    }
}

pub(crate) fn values(task: &Task, machine: &Machine, rewriting: &Rewriting) -> Value {
    let Rewriting { context, tuning, last, .. } = rewriting;
    let named = |(thing, name): (String, String)| context! { thing, name };
    let list =
        |values: &[kernelbench::Parameter]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let parameter = |(name, values): (&String, &Vec<_>)| context! { name, values => list(values) };
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        words => catalogue::words(backend(task)).into_iter().map(named).collect::<Vec<_>>(),
        source => region::marked(context.parts()),
        transformation => rewriting.transformation.as_str(),
        summary => rewriting.summary.as_str(),
        pass => rewriting.passes.0,
        passes => rewriting.passes.1,
        last_pass => rewriting.passes.0 == rewriting.passes.1,
        aim => rewriting.aim.as_str(),
        region => rewriting.region.as_str(),
        text => rewriting.text.trim(),
        parameters => tuning.grid.iter().map(parameter).collect::<Vec<_>>(),
        constraints => tuning.constraints.clone(),
        retired => rewriting.retired.clone(),
        say => rewriting.say.as_deref().map(words::clean),
        failure => last.as_ref().map(|(failure, _)| words::failure(failure)),
        failed => last.as_ref().and_then(|(_, text)| text.clone()),
    }
}
