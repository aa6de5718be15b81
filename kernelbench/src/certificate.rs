//! What exactly is claimed of the best candidate, and what could not be checked?

use crate::{candidate::CandidateId, evaluation::Timed, failure::Failure, native::Layer};
use serde::{Deserialize, Serialize};

/// How a certification ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The candidate is right and this fast: this is the number to report.
    Certified(Timed),
    /// It passed in the loop and not here.
    Refused(Failure),
}

/// One thing that was looked at, or could not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// What: "outputs on 3 further shapes, fresh seeds".
    pub what: String,
    /// Whether it was done. A check that was done and failed makes the certificate `Refused`.
    pub done: bool,
    /// How, or why not.
    pub how: String,
}

impl Checked {
    /// Something that was looked at.
    pub(crate) fn done(what: &str, how: &str) -> Self {
        Self { what: what.to_owned(), done: true, how: how.to_owned() }
    }

    /// Something that was not looked at, and why.
    pub(crate) fn not_done(what: &str, why: &str) -> Self {
        Self { what: what.to_owned(), done: false, how: why.to_owned() }
    }

    /// Whether the GPU was left alone at its full clocks while something was timed, as far as it says.
    pub(crate) fn undisturbed(asked: bool, disturbed: &[String]) -> Self {
        let what = "a GPU left alone at its full clocks";
        match (asked, disturbed) {
            (false, _) => Self::not_done(what, "NVML could not be asked"),
            (true, []) => Self::done(what, "NVML was asked before and after each timed block"),
            (true, told) => Self::not_done(what, &told.join("; ")),
        }
    }

    /// How one layer of the confinement came out.
    pub(crate) fn layer(layer: &Layer) -> Self {
        Self { what: format!("confined: {}", layer.name), done: layer.in_force, how: layer.why.clone() }
    }
}

/// The claim about the best candidate: rebuilt from its source alone, in a fresh process, with fresh seeds and further shapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Which candidate.
    pub candidate: CandidateId,
    /// How it ended.
    pub verdict: Verdict,
    /// What was checked, and what could not be.
    pub checked: Vec<Checked>,
    /// The compiler and its flags, as a command line.
    pub build: String,
    /// The machine's name.
    pub machine: String,
}
