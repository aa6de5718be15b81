//! How are suggestions asked for, and how is the answer read? (Astra §3.2.)

use crate::{
    Prompt, Prompts, Suggestions, Unreadable, refine,
    reply::{read_list, within},
};
use kernelbench::{Candidate, Evaluation, Task};
use metrics::{Machine, Profile};

/// Suggestions that are taken at most.
const MOST: usize = 5;
/// Words of one suggestion.
const MOST_WORDS: usize = 40;

impl Prompts {
    /// Planner: what to change next, from the code, whether it passed, and its performance on each case. No shape is
    /// named as the goal (Astra §6.1).
    #[must_use]
    pub fn suggest(
        &self,
        task: &Task,
        machine: &Machine,
        candidate: &Candidate,
        evaluation: &Evaluation,
        profile: Option<&Profile>,
    ) -> Prompt {
        self.page("suggest", &refine::values(task, machine, candidate, evaluation, profile))
    }
}

/// Reads the Planner's suggestions.
///
/// # Errors
/// Where the reply is not one JSON object `{"suggestions": [...]}` with one to five strings of at most 40 words.
pub fn read_suggestions(reply: &str) -> Result<Suggestions, Unreadable> {
    let list = read_list(reply, "suggestions")?;
    if list.is_empty() || list.len() > MOST {
        return Err(Unreadable(format!("it holds {} suggestions; one to {MOST} were asked for", list.len())));
    }
    let item = |(i, value): (usize, &serde_json::Value)| within(&format!("suggestion {}", i + 1), value, MOST_WORDS);
    let items: Result<Vec<String>, String> = list.iter().enumerate().map(item).collect();
    items.map(|items| Suggestions { items }).map_err(Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_to_five_suggestions_are_read() {
        let read = read_suggestions("Here:\n```json\n{\"suggestions\": [\"Unroll.\", \"Hoist\\nthe division.\"]}\n```")
            .unwrap();
        assert_eq!(read.items, ["Unroll.", "Hoist the division."]);
    }

    #[test]
    fn what_are_no_suggestions_is_refused_with_its_reason() {
        let long = format!("{{\"suggestions\": [\"a\", \"{}\"]}}", vec!["word"; 49].join(" "));
        let cases = [
            ("{\"suggestions\": []}", "holds 0 suggestions"),
            ("{\"suggestions\": [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]}", "holds 6 suggestions"),
            ("{\"suggestions\": [\"a\", {\"b\": 1}]}", "`suggestion 2` is no string"),
            ("{\"suggestions\": \"a\"}", "`suggestions` is no list"),
            ("{\"suggestions\": [\"a\"], \"why\": \"b\"}", "other keys than `suggestions`"),
            ("[\"a\"]", "no JSON object"),
            (&long, "`suggestion 2` has 49 words; at most 40"),
        ];
        for (reply, reason) in cases {
            let why = read_suggestions(reply).unwrap_err().0;
            assert!(why.contains(reason), "{reply:?}: {why}");
        }
    }
}
