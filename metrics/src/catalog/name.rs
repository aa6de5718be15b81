//! What does a metric's name tell of it?
//!
//! Names are built as `unit__words.rollup.submetric`, perhaps behind a group of counters that are sampled together
//! (`SM_A.TriageCompute.`). What the parts mean is data: `metrics/catalog/words.toml`.

use serde::Deserialize;
use std::{collections::HashMap, sync::LazyLock};

/// Words of a name that may mean something together.
const LONGEST: usize = 6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Grammar {
    units: HashMap<String, String>,
    words: HashMap<String, String>,
    rollups: HashMap<String, String>,
    submetrics: HashMap<String, String>,
}

static GRAMMAR: LazyLock<Grammar> = LazyLock::new(|| {
    toml::from_str(include_str!("../../catalog/words.toml"))
        .expect("the words that come with the program are well-formed")
});

/// What is known of a metric by its name alone; never empty for a name that is not.
pub(super) fn told(name: &str) -> String {
    let parts: Vec<&str> = name.trim().split('.').collect();
    let counter = parts.iter().position(|part| part.contains("__")).unwrap_or(0);
    let (unit, words) = parts[counter].split_once("__").unwrap_or(("", parts[counter]));
    let unit = GRAMMAR.units.get(unit).map_or(unit, String::as_str);
    let what = if unit.is_empty() { spelled(words) } else { format!("{unit}: {}", spelled(words)) };
    let how: Vec<&str> = parts[counter + 1..].iter().map(|part| how(part)).filter(|how| !how.is_empty()).collect();
    let sampled = if counter > 0 { "by sampling" } else { "" };
    [what, how.join(", "), sampled.to_owned()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

/// The words of a counter, the longest known run first.
fn spelled(counter: &str) -> String {
    let mut left: Vec<&str> = counter.split('_').filter(|word| !word.is_empty()).collect();
    let mut spelled = vec![];
    while !left.is_empty() {
        let known = (1..=left.len().min(LONGEST)).rev().find_map(|count| {
            let run = left[..count].join("_");
            GRAMMAR.words.get(&run).map(|meaning| (count, meaning.clone()))
        });
        let (count, meaning) = known.unwrap_or_else(|| (1, left[0].to_owned()));
        left.drain(..count);
        if !meaning.is_empty() {
            spelled.push(meaning);
        }
    }
    spelled.join(" ")
}

fn how(part: &str) -> &str {
    let known = GRAMMAR.rollups.get(part).or_else(|| GRAMMAR.submetrics.get(part));
    known.map_or(part, String::as_str)
}
