//! What exactly is claimed of the best candidate, and what could not be checked?

use crate::{
    backend::native::Layer,
    result::{candidate::CandidateId, evaluation::Timed, failure::Failure},
};
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

    /// Whether every block of samples stood as it was taken first, or some were taken anew because they would have been refused.
    pub(crate) fn at_once(anew: &[String]) -> Self {
        let what = "no times taken anew on suspicion";
        match anew {
            [] => Self::done(what, "in every block the clocks agreed, and the time was possible"),
            told => Self::not_done(what, &told.join("; ")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspicion_is_told_whether_or_not_the_gpu_could_be_asked() {
        let refused = "timed once more, for the time before would have been refused: its clock says 1 ns".to_owned();
        let row = Checked::at_once(std::slice::from_ref(&refused));
        assert!(!row.done && row.how == refused);
        assert!(Checked::at_once(&[]).done);
        assert!(!Checked::undisturbed(false, &[]).done && Checked::undisturbed(true, &[]).done);
    }
}
