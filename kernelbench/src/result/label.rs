//! Labels: what a reader of a result is to know that is no failure.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of thing a label says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// A known defect of the task, or what its reference lets pass.
    Task,
    /// An error far above the reference's own.
    LowerPrecision,
    /// No error could be measured in double precision.
    NoOracle,
    /// It differs on inputs that the task does not draw.
    BeyondDrawn,
    /// Such inputs could not be tried.
    NotTried,
    /// How its extensions were built.
    Headers,
    /// Something disturbed the machine while it was timed.
    Disturbed,
    /// It was timed again.
    TimedAgain,
    /// Its launches could not be recorded.
    NotRecorded,
    /// The same code was timed before, and the samples are joined.
    SameCode,
    /// Its memory grows from call to call.
    GrowingMemory,
    /// Its machine code lets a place in shared memory be filled anew while it is read.
    PossibleRace,
    /// No kernel that its source brings runs: its time is torch's and libraries'.
    NoOwnKernel,
    /// It takes what the reference takes, within 5 %.
    NearReference,
    /// A label of a record made before labels had kinds.
    Other,
}

/// What a reader is to know, of a kind that programs can tell, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Recorded")]
pub struct Label {
    /// Of which kind.
    pub kind: Kind,
    /// In words.
    pub text: String,
}

/// A label as records hold it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Recorded {
    Words(String),
    Whole { kind: Kind, text: String },
}

impl From<Recorded> for Label {
    fn from(recorded: Recorded) -> Self {
        match recorded {
            Recorded::Words(text) => Self::new(Kind::Other, text),
            Recorded::Whole { kind, text } => Self { kind, text },
        }
    }
}

impl Label {
    /// A label of this kind.
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Whether something could not be looked at for want of memory.
    pub(crate) fn is_of_memory(&self) -> bool {
        let about = matches!(self.kind, Kind::BeyondDrawn | Kind::NoOracle | Kind::NotTried);
        about && (self.text.contains("out of memory") || self.text.contains("it asked for more than"))
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::failure::Failure;

    #[test]
    fn a_check_that_memory_left_a_label_on_was_short_of_it_and_one_with_other_labels_was_not() {
        let failure = Failure::Memory { case: "default".to_owned(), limit_mib: 81_000 };
        let beyond = format!("beyond what the task draws: {failure}");
        assert!(Label::new(Kind::BeyondDrawn, beyond).is_of_memory());
        let oracle = "its error could not be measured in double precision: OutOfMemoryError: CUDA out of memory.";
        assert!(Label::new(Kind::NoOracle, oracle).is_of_memory());
        assert!(!Label::new(Kind::LowerPrecision, "lower precision: its error is 1e-2").is_of_memory());
    }

    #[test]
    fn a_label_of_an_old_record_is_read_by_its_words() {
        let old: Label = serde_json::from_str("\"zeros pass for its output\"").unwrap();
        assert_eq!((old.kind, old.text.as_str()), (Kind::Other, "zeros pass for its output"));
        let new = Label::new(Kind::Task, "x");
        assert_eq!(serde_json::from_str::<Label>(&serde_json::to_string(&new).unwrap()).unwrap(), new);
    }
}
