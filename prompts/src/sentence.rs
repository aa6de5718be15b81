//! The page that has a sentence read which is beyond the grammar, and what of the reply is believed (QiMeng-TensorOp §3.1).

use crate::{
    Prompt, Prompts, Unreadable,
    reply::{quoted, read_list},
    words::one_line,
};
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

/// Reads what a sentence says, by name. What has another name, whole words that do not stand in the sentence, or for a number
/// words without a digit, is dropped, and so is what is said twice in two ways: what is left, and in words what was dropped.
///
/// # Errors
/// Where the reply is not one JSON object with a list `facts`.
pub fn read_facts(reply: &str, sentence: &str, wanted: &[Sayable]) -> Result<(Vec<Fact>, Vec<String>), Unreadable> {
    let (mut facts, mut dropped): (Vec<Fact>, Vec<String>) = (vec![], vec![]);
    let sentence = as_words(sentence);
    for item in read_list(reply, "facts")? {
        let text = |key: &str| match item.get(key) {
            Some(serde_json::Value::String(text)) => one_line(text),
            Some(number @ serde_json::Value::Number(_)) => number.to_string(),
            _ => String::new(),
        };
        let (name, value, quote) = (text("name"), text("value"), text("quote"));
        let why = if !wanted.iter().any(|(known, _)| *known == name) {
            "nothing of this name was asked for"
        } else if as_words(&quote).trim().is_empty() || !sentence.contains(&as_words(&quote)) {
            "its words do not stand in the sentence"
        } else if value.is_empty() {
            "it has no value"
        } else if value.chars().count() > LONGEST {
            "its value is too long"
        } else if value.parse::<i64>().is_ok() && !quote.contains(|c: char| c.is_ascii_digit()) {
            "its words have no number"
        } else {
            facts.push((name, value));
            continue;
        };
        dropped.push(format!("{} = {}: {why}", quoted(&name), quoted(&value)));
    }
    let (once, twice): (Vec<Fact>, Vec<Fact>) = facts
        .iter()
        .cloned()
        .partition(|(name, value)| facts.iter().all(|(other, said)| other != name || said == value));
    dropped.extend(twice.iter().map(|(name, value)| format!("{name} = {value}: it is said in two ways")));
    Ok((once, dropped))
}

/// A text's words, in small letters, with a blank around each: a part of a word stands in no other text.
fn as_words(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |all, word| all + &word.to_lowercase() + " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_words_of_the_sentence_is_believed_and_the_rest_is_dropped() {
        let wanted = ["m", "k", "hardware"].map(|name| (name.to_owned(), String::new()));
        let reply = r#"{"facts": [
            {"name": "m", "value": 1024, "quote": "1k rows"},
            {"name": "hardware", "value": "this cpu", "quote": "on my laptop"},
            {"name": "hardware", "value": "a100", "quote": "an A100"},
            {"name": "colour", "value": "red", "quote": "1k rows"},
            {"name": "m", "value": "", "quote": "1k rows"},
            {"name": "m", "value": "7", "quote": "rows"},
            {"name": "m", "value": "8", "quote": "1k ro"},
            {"name": "m", "value": "9", "quote": "..."},
            {"name": "k", "value": "3", "quote": "1k"},
            {"name": "k", "value": "4", "quote": "1k"}]}"#;
        let (facts, dropped) = read_facts(reply, "Something with 1K rows\non my laptop", &wanted).unwrap();
        let said: Vec<(&str, &str)> = facts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(said, [("m", "1024"), ("hardware", "this cpu")]);
        let whys = [
            "a100: its words do not stand",
            "colour = red: nothing of this name",
            "m = : it has no value",
            "m = 7: its words have no number",
            "m = 8: its words do not stand",
            "m = 9: its words do not stand",
            "k = 3: it is said in two ways",
            "k = 4: it is said in two ways",
        ];
        assert_eq!(dropped.len(), whys.len());
        for (line, why) in dropped.iter().zip(whys) {
            assert!(line.contains(why), "{line}");
        }
        assert!(read_facts("I do not know.", "x", &wanted).is_err());
    }
}
