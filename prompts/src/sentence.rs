//! The page that has a sentence read which is beyond the grammar, and what of the reply is believed (QiMeng-TensorOp §3.1).

use crate::{Prompt, Prompts, Unreadable, reply::read_list, words::one_line};
use minijinja::{Value, context};

/// What a sentence may say: a name, and what it stands for.
pub type Sayable = (String, String);

/// What a sentence says, by name.
pub type Fact = (String, String);

/// The longest value, in characters: a number, or a name.
const LONGEST: usize = 40;

impl Prompts {
    /// Planner: what a sentence says.
    #[must_use]
    pub fn sentence(&self, sentence: &str, wanted: &[Sayable]) -> Prompt {
        self.page("sentence", &values(sentence, wanted))
    }
}

pub(crate) fn values(sentence: &str, wanted: &[Sayable]) -> Value {
    let wanted = wanted.iter().map(|(name, what)| context! { name => name.as_str(), what => what.as_str() });
    context! { sentence => one_line(sentence), wanted => wanted.collect::<Vec<_>>() }
}

/// Reads what a sentence says, by name. What has another name, or words that do not stand in the sentence, is dropped: what is
/// left, and in words what was dropped.
///
/// # Errors
/// Where the reply is not one JSON object with a list `facts`.
pub fn read_facts(reply: &str, sentence: &str, wanted: &[Sayable]) -> Result<(Vec<Fact>, Vec<String>), Unreadable> {
    let (mut facts, mut dropped) = (vec![], vec![]);
    let sentence = one_line(sentence).to_lowercase();
    for item in read_list(reply, "facts")? {
        let text = |key: &str| match item.get(key) {
            Some(serde_json::Value::String(text)) => one_line(text),
            Some(number @ serde_json::Value::Number(_)) => number.to_string(),
            _ => String::new(),
        };
        let (name, value, quote) = (text("name"), text("value"), text("quote"));
        let why = if !wanted.iter().any(|(known, _)| *known == name) {
            "nothing of this name was asked for"
        } else if quote.is_empty() || !sentence.contains(&quote.to_lowercase()) {
            "its words do not stand in the sentence"
        } else if value.is_empty() || value.chars().count() > LONGEST {
            "it has no value"
        } else {
            facts.push((name, value));
            continue;
        };
        dropped.push(format!("{name} = {value}: {why}"));
    }
    Ok((facts, dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_words_of_the_sentence_is_believed_and_the_rest_is_dropped() {
        let wanted = ["m", "hardware"].map(|name| (name.to_owned(), String::new()));
        let reply = r#"{"facts": [
            {"name": "m", "value": 1024, "quote": "1k rows"},
            {"name": "hardware", "value": "this cpu", "quote": "on my laptop"},
            {"name": "hardware", "value": "a100", "quote": "an A100"},
            {"name": "colour", "value": "red", "quote": "1k rows"},
            {"name": "m", "value": "", "quote": "1k rows"}]}"#;
        let (facts, dropped) = read_facts(reply, "Something with 1K rows\non my laptop", &wanted).unwrap();
        let said: Vec<(&str, &str)> = facts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(said, [("m", "1024"), ("hardware", "this cpu")]);
        let whys = ["a100: its words do not stand", "colour = red: nothing of this name", "m = : it has no value"];
        assert_eq!(dropped.len(), whys.len());
        for (line, why) in dropped.iter().zip(whys) {
            assert!(line.contains(why), "{line}");
        }
        assert!(read_facts("I do not know.", "x", &wanted).is_err());
    }
}
