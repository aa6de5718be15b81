//! How is the next step asked for, and how is the answer read?

use crate::{
    Prompt, Prompts, Unreadable,
    reply::{Field, quoted, read_fields},
    words,
};
use kernelbench::Task;
use minijinja::{Value, context};
use serde::{Deserialize, Serialize};

/// One round as the Planner is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLine {
    /// The round's number.
    pub round: u32,
    /// The step's name.
    pub step: String,
    /// The candidate's short name; empty where none came of it.
    pub candidate: String,
    /// What came of it, in words: "passed, 1.42x", "failed: it does not build".
    pub outcome: String,
}

/// What a model that plans proposes; the policy decides whether it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanProposal {
    /// The step's name, one of those allowed.
    pub step: String,
    /// Why, in at most 40 words.
    pub why: String,
}

const FIELDS: [Field; 2] =
    [Field { key: "step", most_words: 5, single: true }, Field { key: "why", most_words: 40, single: false }];

impl Prompts {
    /// Planner: the next step, from what was done so far and the names of the steps that the policy allows.
    #[must_use]
    pub fn plan(&self, task: &Task, history: &[PlanLine], allowed: &[String]) -> Prompt {
        self.page("plan", &values(task, history, allowed))
    }
}

pub(crate) fn values(task: &Task, history: &[PlanLine], allowed: &[String]) -> Value {
    let line = |line: &PlanLine| {
        context! {
            round => line.round,
            step => words::one_line(&line.step),
            candidate => words::one_line(&line.candidate),
            outcome => words::one_line(&line.outcome),
        }
    };
    context! {
        task => words::task(task),
        history => history.iter().map(line).collect::<Vec<_>>(),
        allowed => allowed.iter().map(|step| words::one_line(step)).collect::<Vec<_>>(),
    }
}

/// Reads the Planner's proposal.
///
/// # Errors
/// Where the reply is not one JSON object with `step` and `why`, or the step is not allowed.
pub fn read_plan(reply: &str, allowed: &[String]) -> Result<PlanProposal, Unreadable> {
    let [step, why] = read_fields(reply, &FIELDS, &[], "", &[])?;
    if !allowed.contains(&step) {
        return Err(Unreadable(format!("the step \"{}\" is not open; open are {}", quoted(&step), allowed.join(", "))));
    }
    Ok(PlanProposal { step, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reply: &str) -> Result<PlanProposal, String> {
        read_plan(reply, &["current".into(), "best".into()]).map_err(|why| why.0)
    }

    #[test]
    fn a_proposal_is_read() {
        let proposal = read(r#"{"step": "best", "why": "The newest one crashes."}"#).unwrap();
        assert_eq!((proposal.step.as_str(), proposal.why.as_str()), ("best", "The newest one crashes."));
    }

    #[test]
    fn a_proposal_that_is_not_open_is_refused_with_its_reason() {
        let cases = [
            (r#"{"step": "restart", "why": "a"}"#, "the step \"restart\" is not open; open are current, best"),
            (r#"{"step": "best", "base": "first", "why": "a"}"#, "`base` was not asked for"),
            (r#"{"step": "best"}"#, "`why` is missing"),
        ];
        for (reply, reason) in cases {
            let why = read(reply).unwrap_err();
            assert!(why.contains(reason), "{reply:?}: {why}");
        }
    }
}
