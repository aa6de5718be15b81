//! How are approaches asked for before the first candidate, and how is the answer read? (Hawkeye, Figs. 47-48: a plan of
//! approaches A, B and C, of which A is carried out first.)

use crate::{
    Approaches, Prompt, Prompts, Unreadable,
    reply::{read_list, within},
    seed,
};
use kernelbench::Task;
use metrics::Machine;
use minijinja::{Value, context};

/// The letters that they are called by, and so how many there are.
const LETTERS: [&str; 3] = ["A", "B", "C"];
/// Words of one of them.
const MOST_WORDS: usize = 60;

impl Prompts {
    /// Planner: three approaches in order, from the task and the machine alone.
    #[must_use]
    pub fn approaches(&self, task: &Task, machine: &Machine) -> Prompt {
        self.page("approaches", &seed::values(task, machine, false))
    }
}

/// The values with the approaches that were ranked; none where none were.
pub(crate) fn with_approaches(approaches: Option<&Approaches>, values: &Value) -> Value {
    let texts = approaches.map_or(&[][..], |ranked| &ranked.items);
    let one = |(letter, text): (&&str, &String)| context! { letter => *letter, text };
    let approaches: Vec<Value> = LETTERS.iter().zip(texts).map(one).collect();
    context! { approaches, ..values.clone() }
}

/// The same with the one that is to be carried out, counted from 0, and those before it, which came to nothing.
pub(crate) fn to_carry_out((approaches, at): (&Approaches, usize), values: &Value) -> Value {
    let (given_up, approach) = (LETTERS[..at.min(LETTERS.len())].join(" and "), LETTERS.get(at).copied());
    context! { approach, given_up, ..with_approaches(Some(approaches), values) }
}

/// Reads the Planner's three approaches.
///
/// # Errors
/// Where the reply is not one JSON object `{"approaches": [...]}` with three strings of at most 60 words.
pub fn read_approaches(reply: &str) -> Result<Approaches, Unreadable> {
    let list = read_list(reply, "approaches")?;
    if list.len() != LETTERS.len() {
        return Err(Unreadable(format!("it holds {} approaches; {} were asked for", list.len(), LETTERS.len())));
    }
    let item = |(letter, value): (&&str, &serde_json::Value)| within(&format!("approach {letter}"), value, MOST_WORDS);
    let items: Result<Vec<String>, String> = LETTERS.iter().zip(&list).map(item).collect();
    items.map(|items| Approaches { items }).map_err(Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_approaches_are_read_in_their_order() {
        let read =
            read_approaches("{\"approaches\": [\"Tiles by\\nTMA.\", \"Split the sum.\", \"Recompute.\"]}").unwrap();
        assert_eq!(read.items, ["Tiles by TMA.", "Split the sum.", "Recompute."]);
    }

    #[test]
    fn what_are_not_three_approaches_is_refused_with_its_reason() {
        let long = format!("{{\"approaches\": [\"a\", \"b\", \"{}\"]}}", vec!["word"; 73].join(" "));
        let cases = [
            ("{\"approaches\": [\"a\", \"b\"]}", "it holds 2 approaches; 3 were asked for"),
            ("{\"approaches\": [\"a\", \"b\", \"c\", \"d\"]}", "it holds 4 approaches"),
            ("{\"approaches\": [\"a\", \"\", \"c\"]}", "`approach B` is empty"),
            ("{\"approaches\": [\"a\", \"b\", \"c\"], \"why\": \"d\"}", "other keys than `approaches`"),
            (&long, "`approach C` has 73 words; at most 60"),
        ];
        for (reply, reason) in cases {
            let why = read_approaches(reply).unwrap_err().0;
            assert!(why.contains(reason), "{reply:?}: {why}");
        }
    }
}
