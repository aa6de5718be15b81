//! What came of the run?

use agents::trajectory::{Round, Trajectory};
use kernelbench::{CertificateVerdict, CodeObject, Counts, Evaluation};
use metrics::Claim;
use serde::Serialize;

/// The outcome of a run, for scripts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The task's name.
    pub task: String,
    /// Rounds that are over.
    pub rounds: usize,
    /// Candidates that were correct.
    pub correct: usize,
    /// The best candidate's hash, if one was correct.
    pub best: Option<String>,
    /// The certified speedup: how many times as fast as the reference.
    pub speedup: Option<f64>,
    /// The baseline that it is over, where that is not the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Its interval.
    pub interval: Option<[f64; 2]>,
    /// What may be claimed: `faster`, `slower` or `no-difference`.
    pub claim: Option<Claim>,
    /// Instructions of the right candidate, where its processor is emulated: there is no speedup then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counts>,
    /// What the compiler says of the last candidate that compiles, where its GPU is not here: there is no speedup then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiled: Option<CodeObject>,
    /// What the model's answers cost in dollars, where every price is known.
    pub usd: Option<f64>,
}

impl Outcome {
    /// Of this story.
    #[must_use]
    pub fn of(story: &Trajectory) -> Self {
        let certified = story.certified().and_then(|certificate| match &certificate.verdict {
            CertificateVerdict::Certified(timed) => {
                Some((certificate.candidate.clone(), timed.speedup, timed.against.clone()))
            }
            CertificateVerdict::Refused(_) => None,
        });
        let correct = |round: &&Round| round.evaluation.as_ref().is_some_and(Evaluation::is_right);
        let (counted, compiled) = (story.counted(), story.compiled());
        let best = certified.as_ref().map(|(candidate, ..)| candidate.clone());
        Self {
            task: story.name.clone(),
            rounds: story.finished().count(),
            correct: story.finished().filter(correct).count(),
            best: best
                .or_else(|| story.best().map(|best| best.candidate))
                .or_else(|| counted.map(|(candidate, _)| candidate.clone()))
                .or_else(|| compiled.map(|(candidate, _)| candidate.clone()))
                .map(|candidate| candidate.to_string()),
            speedup: certified.as_ref().map(|(_, speedup, _)| speedup.ratio),
            against: certified.as_ref().and_then(|(.., against)| against.clone()),
            interval: certified.as_ref().map(|(_, speedup, _)| [speedup.interval.low, speedup.interval.high]),
            claim: certified.as_ref().map(|(_, speedup, _)| speedup.claim()),
            counted: counted.map(|(_, counts)| counts.clone()),
            compiled: compiled.map(|(_, code)| code.clone()),
            usd: story.answers().map(|answer| answer.usd).sum(),
        }
    }
}
