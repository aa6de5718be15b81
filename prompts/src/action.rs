//! The page that has one of a node's actions chosen, from what led to that node (QiMeng-TensorOp §3.3).

use crate::{
    Prompt, Prompts, Unreadable,
    reply::{Field, quoted, read_fields},
    words::{self, one_line},
};
use kernelbench::Task;
use minijinja::{Value, context};

/// An action that was taken, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The action, or `first values`.
    pub action: String,
    /// What came of it: "112.3 GFLOPS", "failed: it does not build".
    pub came: String,
}

/// A node at which one action is to be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choosing {
    /// Where it stands, in words.
    pub point: String,
    /// What led there from the root; none where the model is not told.
    pub path: Option<Vec<Taken>>,
    /// The actions to choose from.
    pub candidates: Vec<String>,
}

const FIELDS: [Field; 2] =
    [Field { key: "action", most_words: 8, single: true }, Field { key: "why", most_words: 60, single: false }];

impl Prompts {
    /// Planner: one of a node's actions.
    #[must_use]
    pub fn action(&self, task: &Task, choosing: &Choosing) -> Prompt {
        self.page("action", &values(task, choosing))
    }
}

pub(crate) fn values(task: &Task, choosing: &Choosing) -> Value {
    let line = |taken: &Taken| context! { action => one_line(&taken.action), came => one_line(&taken.came) };
    context! {
        task => words::task(task),
        point => one_line(&choosing.point),
        history => choosing.path.is_some(),
        path => choosing.path.iter().flatten().map(line).collect::<Vec<_>>(),
        candidates => choosing.candidates.iter().map(|action| one_line(action)).collect::<Vec<_>>(),
    }
}

/// Reads the chosen action.
///
/// # Errors
/// Where the reply is not one JSON object with `action` and `why`, or the action is not among the candidates.
pub fn read_action(reply: &str, candidates: &[String]) -> Result<String, Unreadable> {
    let [action, _] = read_fields(reply, &FIELDS, &[], "", &[])?;
    if candidates.contains(&action) {
        return Ok(action);
    }
    Err(Unreadable(format!("the action \"{}\" is not open; open are {}", quoted(&action), candidates.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_of_the_list_is_read_and_another_is_refused() {
        let read = |reply: &str| read_action(reply, &["BN+32".into(), "swap load 0 1".into()]).map_err(|why| why.0);
        assert_eq!(read(r#"{"action": "BN+32", "why": "It gained."}"#).unwrap(), "BN+32");
        let why = read(r#"{"action": "BK+32", "why": "It gained."}"#).unwrap_err();
        assert_eq!(why, "the action \"BK+32\" is not open; open are BN+32, swap load 0 1");
    }
}
