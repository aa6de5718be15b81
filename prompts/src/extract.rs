//! The page that has factors taken out of manuals, the passages that it shows, and what of the reply is believed.

use crate::{
    Prompt, Prompts, Unreadable,
    hints::{For, Hints},
    reply::read_list,
    sketch::hinted,
    words::one_line,
};
use metrics::{
    Machine,
    factors::{Factor, Factors, NAMES, Rank},
};
use minijinja::{Value, context};

/// A manual: its file's name and its text.
pub type Manual = (String, String);

/// Passages that are shown, at most.
const PASSAGES: usize = 12;
/// Lines of a passage.
const LINES: usize = 8;
/// The longest line that is shown, in characters.
const LONGEST: usize = 400;
/// Words by which passages are found, beside the hardware's name.
const WORDS: [&str; 26] = [
    "cache",
    "l1",
    "l2",
    "l3",
    "line",
    "kb",
    "kib",
    "mib",
    "mb",
    "vector",
    "register",
    "registers",
    "simd",
    "neon",
    "rvv",
    "vlen",
    "width",
    "bits",
    "shared",
    "memory",
    "multiprocessor",
    "multiprocessors",
    "sm",
    "cores",
    "tensor",
    "prefetch",
];

/// A passage of a manual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The file and the line that it begins at.
    pub source: String,
    /// Its lines.
    pub text: String,
}

/// The passages that say most about factors, by the words in them, the best first.
///
/// # Errors
/// In words: a manual is empty, or is no text.
pub fn passages(hardware: &str, manuals: &[Manual]) -> Result<Vec<Passage>, String> {
    let mut found: Vec<(usize, Passage)> = vec![];
    let own: Vec<String> = hardware.to_lowercase().split_whitespace().map(ToOwned::to_owned).collect();
    for (file, text) in manuals {
        if text.trim().is_empty() {
            return Err(format!("{file}: this manual is empty"));
        }
        if text.contains('\0') {
            return Err(format!("{file}: this manual is no plain text: convert it first (of a PDF: pdftotext)"));
        }
        let lines: Vec<&str> = text.lines().collect();
        for (at, chunk) in lines.chunks(LINES).enumerate() {
            let lower = chunk.join("\n").to_lowercase();
            let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            let score = words.filter(|word| WORDS.contains(word) || own.iter().any(|name| name == word)).count();
            let has_number = lower.contains(|c: char| c.is_ascii_digit());
            let cut = |line: &&str| line.chars().take(LONGEST).collect::<String>();
            let text = chunk.iter().map(cut).collect::<Vec<_>>().join("\n");
            if score > 0 && has_number {
                found.push((score, Passage { source: format!("{file}, line {}", at * LINES + 1), text }));
            }
        }
    }
    found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    Ok(found.into_iter().take(PASSAGES).map(|(_, passage)| passage).collect())
}

impl Prompts {
    /// Planner: the factors of a hardware, from passages of manuals.
    #[must_use]
    pub fn extract(&self, hardware: &str, machine: &Machine, passages: &[Passage]) -> Prompt {
        self.page("extract", &values(hardware, machine, self.hints(), passages))
    }
}

pub(crate) fn values(hardware: &str, machine: &Machine, hints: &Hints, passages: &[Passage]) -> Value {
    let none = Factors::default();
    let wanted = NAMES.iter().map(|(_, name, what)| context! { name => *name, what => *what });
    let hints = [For::Sketch, For::Primitives].map(|part| hinted(hints, part, machine, &none)).concat();
    let passage = |passage: &Passage| context! { source => one_line(&passage.source), text => passage.text.as_str() };
    context! {
        hardware => one_line(hardware),
        wanted => wanted.collect::<Vec<_>>(),
        hints,
        passages => passages.iter().map(passage).collect::<Vec<_>>(),
    }
}

/// Reads factors. One whose value does not stand in its quote, or whose quote does not stand in a manual, is dropped, and so
/// is one of an unknown name: what is left, and in words what was dropped.
///
/// # Errors
/// Where the reply is not one JSON object with a list `factors`.
pub fn read_factors(reply: &str, manuals: &[Manual]) -> Result<(Vec<Factor>, Vec<String>), Unreadable> {
    let (mut factors, mut dropped) = (vec![], vec![]);
    for item in read_list(reply, "factors")? {
        let text = |key: &str| item.get(key).and_then(serde_json::Value::as_str).map(one_line).unwrap_or_default();
        let (name, value, quote) = (text("name"), text("value"), text("quote"));
        match believed(&name, &value, &quote, manuals) {
            Ok(source) => {
                factors.push(Factor { name, value, source, rank: Rank::Manual, quote: Some(quote) });
            }
            Err(why) => dropped.push(format!("{name} = {value}: {why}")),
        }
    }
    Ok((factors, dropped))
}

/// The file that a quote stands in.
fn believed(name: &str, value: &str, quote: &str, manuals: &[Manual]) -> Result<String, String> {
    if !NAMES.iter().any(|(_, known, _)| *known == name) {
        return Err("there is no factor of this name".to_owned());
    }
    if value.is_empty() || !squeezed(quote).contains(&squeezed(value)) {
        return Err("the value does not stand in its quote".to_owned());
    }
    let holds = |(_, text): &&Manual| squeezed(text).contains(&squeezed(quote));
    let found = manuals.iter().find(holds).map(|(file, _)| file.clone());
    found.ok_or_else(|| "the quote does not stand in any manual".to_owned())
}

/// A text with each run of white space as one blank.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = "The C910\nThe L1 data cache has 64KB, in lines\nof 64 bytes.\nThe shared L2 cache is 1MB.\n";

    fn manuals() -> Vec<Manual> {
        vec![("c910.txt".to_owned(), MANUAL.to_owned())]
    }

    #[test]
    fn a_forged_quote_a_value_outside_its_quote_and_an_unknown_name_are_dropped() {
        let reply = r#"{"factors": [
            {"name": "l1d", "value": "64KB", "quote": "L1 data cache has 64KB"},
            {"name": "line", "value": "64 bytes", "quote": "in lines of 64 bytes"},
            {"name": "l2", "value": "2MB", "quote": "The shared L2 cache is 2MB."},
            {"name": "l2", "value": "2MB", "quote": "The shared L2 cache is 1MB."},
            {"name": "colour", "value": "1MB", "quote": "The shared L2 cache is 1MB."}]}"#;
        let (factors, dropped) = read_factors(reply, &manuals()).unwrap();
        let kept: Vec<(&str, &str)> = factors.iter().map(|f| (f.name.as_str(), f.source.as_str())).collect();
        assert_eq!(kept, [("l1d", "c910.txt"), ("line", "c910.txt")]);
        let expected = [
            "l2 = 2MB: the quote does not stand in any manual",
            "l2 = 2MB: the value does not stand in its quote",
            "colour = 1MB: there is no factor of this name",
        ];
        assert_eq!(dropped, expected);
    }

    #[test]
    fn passages_are_those_with_the_most_words_and_what_is_no_manual_is_told() {
        let filler = "Nothing of interest stands here.\n".repeat(80);
        let manual = ("m.txt".to_owned(), format!("{filler}{MANUAL}{filler}"));
        let found = passages("C910", &[manual]).unwrap();
        assert!(found[0].text.contains("64KB") && found[0].source.starts_with("m.txt, line 81"), "{found:?}");
        for (text, why) in [("", "m: this manual is empty"), ("%PDF\0", "m: this manual is no plain text")] {
            let told = passages("C910", &[("m".to_owned(), text.to_owned())]).unwrap_err();
            assert!(told.starts_with(why), "{told}");
        }
    }
}
