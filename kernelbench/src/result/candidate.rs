//! Candidates: what is offered, and how far it has come.
//!
//! A candidate has parts, one a region of the kernel, and bindings, a value for each tuning parameter. One part and no
//! bindings is the plain case: a whole source file. `Candidate -> Built -> Verified`: only a [`Verified`] is timed or
//! profiled, and only a workshop makes one.

use crate::{
    hash::Hash,
    task::space::{Bindings, Space, in_words},
};
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

/// A candidate's name: the hash of its canonical form.
pub type CandidateId = Hash;

/// What the canonical form of a candidate with several parts or with bindings begins with. No source in a language that
/// is compiled here does.
const CANONICAL: &str = r#"{"warpsmith-candidate":1,"#;

/// The text of one region of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The region: `source` for a whole file, or one that the task names, such as `device` (PEAK §3.1).
    pub region: String,
    /// Its text.
    pub text: String,
}

/// An answer to a task. Its identity is what it consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Recorded", into = "Recorded")]
pub struct Candidate {
    /// In the order in which they stand in the translation unit; at least one.
    parts: Vec<Part>,
    bindings: Bindings,
}

/// A candidate in a record or a message: a plain one is its source alone.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Recorded {
    Plain { source: String },
    Whole(Whole),
}

#[derive(Serialize, Deserialize)]
struct Whole {
    parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "Bindings::is_empty")]
    bindings: Bindings,
}

/// The canonical form of a candidate that is not plain.
#[derive(Serialize, Deserialize)]
struct Canonical {
    #[serde(rename = "warpsmith-candidate")]
    version: u32,
    #[serde(flatten)]
    whole: Whole,
}

/// Why a source cannot be compiled as it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBound {
    /// A tuning parameter of the task has no value yet.
    #[error("`{{{{{0}}}}}` has no value: bind it, or let a search find one")]
    Open(String),
    /// It is no tuning parameter of the task.
    #[error("`{{{{{name}}}}}` is no tuning parameter of the task; it has {known}")]
    Unknown {
        /// The placeholder.
        name: String,
        /// The task's parameters.
        known: String,
    },
}

impl Candidate {
    /// A candidate of this source text.
    #[must_use]
    pub fn new(source: impl Into<String>) -> Self {
        Self { parts: vec![Part { region: WHOLE.to_owned(), text: source.into() }], bindings: Bindings::new() }
    }

    /// A candidate of these parts, in their order in the translation unit; of an empty source where there is none.
    #[must_use]
    pub fn of_parts(parts: Vec<Part>) -> Self {
        if parts.is_empty() { Self::new("") } else { Self { parts, bindings: Bindings::new() } }
    }

    /// The same with these values for tuning parameters.
    #[must_use]
    pub fn bound(&self, bindings: Bindings) -> Self {
        Self { parts: self.parts.clone(), bindings }
    }

    /// Its parts, in order.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The values of its tuning parameters.
    #[must_use]
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// The whole source as it was written, with placeholders where values of tuning parameters go: its parts, one after
    /// another.
    #[must_use]
    pub fn source(&self) -> Cow<'_, str> {
        match &self.parts[..] {
            [one] => Cow::Borrowed(&one.text),
            parts => Cow::Owned(parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join("\n")),
        }
    }

    /// What it is called.
    #[must_use]
    pub fn id(&self) -> CandidateId {
        Hash::of(self.canonical().as_bytes())
    }

    /// What its name is the hash of: its source, or one line of JSON where it has several parts or bindings.
    #[must_use]
    pub fn canonical(&self) -> Cow<'_, str> {
        match &self.parts[..] {
            [one] if self.is_plain() => Cow::Borrowed(&one.text),
            _ => {
                let whole = Whole { parts: self.parts.clone(), bindings: self.bindings.clone() };
                // Texts and whole numbers always make JSON, so nothing is ever taken in its place.
                Cow::Owned(serde_json::to_string(&Canonical { version: 1, whole }).unwrap_or_default())
            }
        }
    }

    /// The candidate of a canonical form.
    #[must_use]
    pub fn of_canonical(text: &str) -> Self {
        let whole = text.starts_with(CANONICAL).then(|| serde_json::from_str::<Canonical>(text));
        match whole {
            Some(Ok(Canonical { whole, .. })) => Self::of_parts(whole.parts).bound(whole.bindings),
            _ => Self::new(text),
        }
    }

    /// The tuning parameters of a task that it names and has no value for: what a search over bindings has to find.
    #[must_use]
    pub fn open(&self, tuning: &Space) -> Vec<String> {
        let mut open = self.placeholders();
        open.retain(|name| tuning.grid.contains_key(name) && !self.bindings.contains_key(name));
        open
    }

    /// Its parts with values in the place of placeholders. A parameter that it has a value for need not be the task's:
    /// transformations add some. Without parameters and values every text stays as it is.
    ///
    /// # Errors
    /// A placeholder without a value, or one that is no parameter of the task.
    pub fn written_out(&self, tuning: &Space) -> Result<Vec<Part>, NotBound> {
        let write = |part: &Part| {
            let plain = tuning.is_empty() && self.bindings.is_empty();
            let text = if plain { part.text.clone() } else { self.filled(&part.text, tuning)? };
            Ok(Part { region: part.region.clone(), text })
        };
        self.parts.iter().map(write).collect()
    }

    /// Every name that it writes between double braces, once.
    #[must_use]
    pub fn placeholders(&self) -> Vec<String> {
        let source = self.source();
        let mut names: Vec<String> = placeholders(&source).map(|found| found.name.to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Its whole source with values where it has them; placeholders without one stay.
    #[must_use]
    pub fn text(&self) -> String {
        let (source, mut text, mut from) = (self.source(), String::new(), 0);
        for Placeholder { name, at, until } in placeholders(&source) {
            if let Some(value) = self.bindings.get(name) {
                text += &source[from..at];
                text += &value.to_string();
                from = until;
            }
        }
        text + &source[from..]
    }

    fn filled(&self, text: &str, tuning: &Space) -> Result<String, NotBound> {
        let (mut filled, mut from) = (String::with_capacity(text.len()), 0);
        for Placeholder { name, at, until } in placeholders(text) {
            if !tuning.grid.contains_key(name) && !self.bindings.contains_key(name) {
                let known: Vec<&str> = tuning.grid.keys().map(String::as_str).collect();
                return Err(NotBound::Unknown { name: name.to_owned(), known: known.join(", ") });
            }
            let value = self.bindings.get(name).ok_or_else(|| NotBound::Open(name.to_owned()))?;
            filled += &text[from..at];
            filled += &value.to_string();
            from = until;
        }
        Ok(filled + &text[from..])
    }

    /// Its bindings in words; `None` where it has none.
    #[must_use]
    pub fn bindings_in_words(&self) -> Option<String> {
        (!self.bindings.is_empty()).then(|| in_words(&self.bindings))
    }

    fn is_plain(&self) -> bool {
        self.parts.len() == 1 && self.parts[0].region == WHOLE && self.bindings.is_empty()
    }
}

/// The region of a whole file.
const WHOLE: &str = "source";

/// `{{NAME}}` in a text, and where it stands, in bytes.
struct Placeholder<'a> {
    name: &'a str,
    at: usize,
    until: usize,
}

/// The placeholders of a text. A name begins with a capital letter and goes on with capitals, digits and underscores, so that
/// nested braces of an initializer are none.
fn placeholders(text: &str) -> impl Iterator<Item = Placeholder<'_>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let at = from + text[from..].find("{{")?;
            from = at + 2;
            let rest = text[from..].trim_start_matches(' ');
            let length = rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
            let name = &rest[..length.unwrap_or(rest.len())];
            let after = rest[name.len()..].trim_start_matches(' ');
            if name.starts_with(|c: char| c.is_ascii_uppercase()) && after.starts_with("}}") {
                from = text.len() - after.len() + 2;
                return Some(Placeholder { name, at, until: from });
            }
        }
    })
}

impl From<Recorded> for Candidate {
    fn from(recorded: Recorded) -> Self {
        match recorded {
            Recorded::Plain { source } => Self::new(source),
            Recorded::Whole(Whole { parts, bindings }) => Self::of_parts(parts).bound(bindings),
        }
    }
}

impl From<Candidate> for Recorded {
    fn from(candidate: Candidate) -> Self {
        let plain = candidate.is_plain();
        let Candidate { mut parts, bindings } = candidate;
        match parts.pop() {
            Some(Part { text: source, .. }) if plain => Self::Plain { source },
            last => Self::Whole(Whole { parts: parts.into_iter().chain(last).collect(), bindings }),
        }
    }
}

/// A candidate that compiled. Only a workshop makes one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    pub(crate) candidate: Candidate,
    /// The shared object; empty in a simulation.
    pub(crate) artifact: PathBuf,
}

impl Built {
    /// What was built.
    #[must_use]
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// The shared object; empty in a simulation.
    #[must_use]
    pub fn artifact(&self) -> &Path {
        &self.artifact
    }
}

/// A built candidate that gave the right answer on every case of its suite. Only a workshop makes one.
#[derive(Clone, Debug)]
pub struct Verified {
    pub(crate) built: Built,
}

impl Verified {
    /// What was verified.
    #[must_use]
    pub fn candidate(&self) -> &Candidate {
        &self.built.candidate
    }

    /// The build that was verified.
    #[must_use]
    pub fn built(&self) -> &Built {
        &self.built
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::space::Parameter;

    fn tuning() -> Space {
        let values = vec![Parameter::Number(64), Parameter::Number(128)];
        Space { grid: [("TILE".to_owned(), values)].into(), constraints: vec![] }
    }

    fn tile(value: i64) -> Bindings {
        [("TILE".to_owned(), Parameter::Number(value))].into()
    }

    fn part(region: &str, text: &str) -> Part {
        Part { region: region.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn one_part_without_bindings_is_named_and_recorded_as_its_source() {
        let candidate = Candidate::new("int x;\n");
        assert_eq!(candidate.id(), Hash::of(b"int x;\n"));
        assert_eq!(serde_json::to_string(&candidate).unwrap(), r#"{"source":"int x;\n"}"#);
        assert_eq!(Candidate::of_canonical("int x;\n"), candidate);
    }

    #[test]
    fn parts_and_bindings_are_part_of_the_name_and_come_back() {
        let open = Candidate::of_parts(vec![part("device", "a {{TILE}}"), part("host", "b")]);
        let all = [open.clone(), open.bound(tile(64)), open.bound(tile(128)), Candidate::new("a").bound(tile(64))];
        for (at, candidate) in all.iter().enumerate() {
            assert_eq!(Candidate::of_canonical(&candidate.canonical()), *candidate);
            let json = serde_json::to_string(candidate).unwrap();
            assert_eq!(serde_json::from_str::<Candidate>(&json).unwrap(), *candidate, "{json}");
            assert!(all[..at].iter().all(|other| other.id() != candidate.id()));
        }
        assert!(open.canonical().starts_with(CANONICAL));
    }

    #[test]
    fn a_placeholder_takes_the_value_of_its_parameter_and_other_braces_stay() {
        let source = "int a[2][1] = {{1}, {2}}; std::array<int, 1> b{{ N}; int t = {{TILE}} * {{ TILE }};";
        let bound = Candidate::new(source).bound(tile(64));
        let text = &bound.written_out(&tuning()).unwrap()[0].text;
        assert_eq!(text, "int a[2][1] = {{1}, {2}}; std::array<int, 1> b{{ N}; int t = 64 * 64;");
        assert_eq!(Candidate::new(source).open(&tuning()), ["TILE"]);
        assert!(bound.open(&tuning()).is_empty());
    }

    #[test]
    fn a_placeholder_without_a_value_or_a_parameter_is_told() {
        let open = Candidate::new("{{TILE}}").written_out(&tuning()).unwrap_err();
        assert_eq!(open.to_string(), "`{{TILE}}` has no value: bind it, or let a search find one");
        let unknown = Candidate::new("{{BLOCK}}").written_out(&tuning()).unwrap_err();
        assert_eq!(unknown.to_string(), "`{{BLOCK}}` is no tuning parameter of the task; it has TILE");
        assert_eq!(Candidate::new("{{BLOCK}}").written_out(&Space::default()).unwrap()[0].text, "{{BLOCK}}");
    }
}
