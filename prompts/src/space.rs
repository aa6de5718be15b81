//! The page that has the actions of a new node named, from everything that was tried (QiMeng-TensorOp §3.3).

use crate::{
    Prompt, Prompts, Taken, Unreadable,
    reply::{read_list, within},
    sketch::factors,
    words::{self, clean, one_line},
};
use kernelbench::{Space, Task};
use metrics::{Machine, factors::Factors};
use minijinja::{Value, context};
use std::collections::BTreeMap;

/// The longest history that is told line by line, in characters: about 4,000 tokens. A longer one is grouped.
const LONGEST: usize = 16_000;

/// A node whose actions are to be found.
#[derive(Clone, Debug, PartialEq)]
pub struct Offering {
    /// Where it stands, in words.
    pub point: String,
    /// How fast it is.
    pub came: String,
    /// The parameters and their constraints.
    pub tuning: Space,
    /// Its blocks of instructions: the name, and the instructions by place.
    pub blocks: Vec<(String, Vec<String>)>,
    /// Some swaps that are legal.
    pub swaps: Vec<String>,
    /// Every action that was taken in the tree, with what came of it and by which factor the rate changed, where it is known;
    /// none where the model is not told.
    pub history: Option<Vec<(Taken, Option<f64>)>>,
    /// How many actions are asked for, at most.
    pub most: usize,
}

impl Prompts {
    /// Planner: the actions of a new node.
    #[must_use]
    pub fn space(&self, task: &Task, machine: &Machine, offering: &Offering) -> Prompt {
        self.page("space", &values(task, machine, offering))
    }
}

pub(crate) fn values(task: &Task, machine: &Machine, offering: &Offering) -> Value {
    let list =
        |values: &[kernelbench::Parameter]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let parameter = |(name, values): (&String, &Vec<_>)| context! { name, values => list(values) };
    let block = |(name, instructions): &(String, Vec<String>)| {
        let lines = instructions.iter().enumerate().map(|(at, text)| format!("{at}: {text}"));
        context! { name => one_line(name), text => clean(&lines.collect::<Vec<_>>().join("\n")) }
    };
    context! {
        task => words::task(task),
        factors => factors(&Factors::of(machine)),
        parameters => offering.tuning.grid.iter().map(parameter).collect::<Vec<_>>(),
        constraints => offering.tuning.constraints.iter().map(|text| one_line(text)).collect::<Vec<_>>(),
        point => one_line(&offering.point),
        came => one_line(&offering.came),
        blocks => offering.blocks.iter().map(block).collect::<Vec<_>>(),
        swaps => offering.swaps.join(", "),
        history => offering.history.is_some(),
        lines => offering.history.as_deref().map(lines).unwrap_or_default(),
        most => offering.most,
    }
}

/// A line for each action, or for each kind where there are too many.
fn lines(history: &[(Taken, Option<f64>)]) -> Vec<String> {
    let line = |(taken, factor): &(Taken, Option<f64>)| {
        let factor = factor.map(|factor| format!(" ({factor:.3}x of the node before)")).unwrap_or_default();
        one_line(&format!("{}: {}{factor}", taken.action, taken.came))
    };
    let all: Vec<String> = history.iter().map(line).collect();
    if all.iter().map(String::len).sum::<usize>() <= LONGEST {
        return all;
    }
    let mut kinds: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
    for (taken, factor) in history {
        let words: Vec<&str> = taken.action.split_whitespace().collect();
        // Swaps of one block are of one kind.
        let kind =
            if words.first() == Some(&"swap") { words[..words.len().min(2)].join(" ") } else { taken.action.clone() };
        kinds.entry(kind).or_default().push(*factor);
    }
    let told = |(kind, factors): (&String, &Vec<Option<f64>>)| {
        let known: Vec<f64> = factors.iter().flatten().copied().collect();
        let (best, gained) = (known.iter().copied().fold(0.0, f64::max), known.iter().filter(|f| **f > 1.0).count());
        let mean = if known.is_empty() { 0.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        let failed = factors.len() - known.len();
        format!("{kind}: {} times, {gained} gained, {failed} failed; mean {mean:.3}x, best {best:.3}x", factors.len())
    };
    kinds.iter().map(told).collect()
}

/// Reads the actions, as they were written.
///
/// # Errors
/// Where the reply is not one JSON object `{"candidates": [...]}` with at least one short string.
pub fn read_space(reply: &str) -> Result<Vec<String>, Unreadable> {
    let list = read_list(reply, "candidates")?;
    if list.is_empty() {
        return Err(Unreadable("it names no candidate".into()));
    }
    let item = |(at, value): (usize, &serde_json::Value)| within(&format!("candidate {}", at + 1), value, 8);
    list.iter().take(64).enumerate().map(item).collect::<Result<_, String>>().map_err(Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_read_and_an_empty_list_is_none() {
        let read = |reply: &str| read_space(reply).map_err(|why| why.0);
        assert_eq!(read(r#"{"candidates": ["BN+32", "swap load 0 1"]}"#).unwrap(), ["BN+32", "swap load 0 1"]);
        assert_eq!(read(r#"{"candidates": []}"#).unwrap_err(), "it names no candidate");
        assert!(read(r#"{"candidates": [1]}"#).unwrap_err().contains("`candidate 1`"));
    }

    #[test]
    fn a_history_of_more_than_four_thousand_tokens_is_grouped() {
        let one = |action: &str, factor| (Taken { action: action.into(), came: "112.3 GFLOPS".into() }, factor);
        assert_eq!(lines(&[one("BN+32", Some(1.25))]), ["BN+32: 112.3 GFLOPS (1.250x of the node before)"]);
        let many: Vec<_> =
            (0..1000).map(|at| one(if at % 2 == 0 { "BN+32" } else { "swap load 0 1" }, Some(1.1))).collect();
        let grouped = lines(&many);
        assert_eq!(grouped.len(), 2);
        assert_eq!(grouped[1], "swap load: 500 times, 500 gained, 0 failed; mean 1.100x, best 1.100x");
    }
}
