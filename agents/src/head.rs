//! Heads: which candidate goes on where features count, and not time alone (Hawkeye, E.1).
//!
//! A change is weighed once its counters are read. What is faster becomes the head. What is hardly slower becomes it too
//! where the feature that was asked for runs now, because stacks of features pay late. All else is taken back. What failed
//! is mended a few times before it is given up; the fastest candidate is kept apart from all this.

use crate::event::Step;
use crate::trajectory::{Round, Trajectory};
use kernelbench::{CandidateId, Evaluation};
use metrics::{
    Claim, Speedup,
    feature::{Fired, Proof},
};
use serde::{Deserialize, Serialize};

/// What a feature's counters say of a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The feature.
    pub feature: String,
    /// Whether it runs now, by what.
    pub proof: Proof,
}

/// What came of weighing a candidate that passed against the head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weighed {
    /// Which.
    pub candidate: CandidateId,
    /// Its speed over the head's; none where there was no head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_head: Option<Speedup>,
    /// The features that it was to bring in, the one that was meant first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<Shown>,
    /// Whether it is the head from here on.
    pub accepted: bool,
    /// Why, in words.
    pub why: String,
    /// The rounds that are left.
    pub left: u32,
}

impl Weighed {
    /// Whether the feature that was meant runs now; none where none was named.
    #[must_use]
    pub fn fired(&self) -> Option<Fired> {
        self.shown.first().map(|shown| shown.proof.fired)
    }
}

/// Whether a candidate becomes the head, by its speed over the head's and by whether the feature that was meant runs; and
/// why. `slower` is by what part it may be slower where the feature runs.
#[must_use]
pub fn decide(over_head: Option<&Speedup>, fired: Option<Fired>, slower: f64) -> (bool, &'static str) {
    let Some(over_head) = over_head else { return (true, "the first that is right") };
    let faster = over_head.claim() == Claim::Faster;
    let hardly_slower = over_head.ratio >= 1.0 - slower;
    match (faster, fired) {
        (true, Some(Fired::Yes)) => (true, "faster, and the feature fired"),
        (true, Some(Fired::No)) => (true, "faster, feature not fired: it is asked for again"),
        (true, Some(Fired::Unknown)) => (true, "faster; its counters are unknown, so time decides"),
        (true, None) => (true, "faster"),
        (false, Some(Fired::Yes)) if hardly_slower => (true, "the feature fired, and it is hardly slower"),
        (false, Some(Fired::Yes)) => (false, "the feature fired, and it is too much slower"),
        (false, Some(Fired::No)) => (false, "not faster, feature not fired"),
        (false, Some(Fired::Unknown)) => (false, "not faster; its counters are unknown, so time decides"),
        (false, None) => (false, "not faster"),
    }
}

/// A candidate's speed over the head's, by their evaluations; none where there is no head yet.
#[must_use]
pub fn over_head(so_far: &Trajectory, candidate: &CandidateId) -> Option<Speedup> {
    let speed = |id: &CandidateId| so_far.evaluation(id)?.passed().map(|timed| timed.speedup);
    Some(speed(candidate)?.beside(&speed(&head(so_far)?.candidate)?))
}

/// The head: the last candidate that was accepted.
#[must_use]
pub fn head(so_far: &Trajectory) -> Option<&Weighed> {
    accepted(so_far).next_back().and_then(|round| round.weighed.as_ref())
}

fn accepted(so_far: &Trajectory) -> impl DoubleEndedIterator<Item = &Round> {
    so_far.finished().filter(|round| round.weighed.as_ref().is_some_and(|weighed| weighed.accepted))
}

/// The round whose candidate passed and is not weighed yet.
#[must_use]
pub fn due(so_far: &Trajectory) -> Option<&Round> {
    let last = so_far.rounds.last().filter(|round| round.finished())?;
    let passed = matches!(last.evaluation, Some(Evaluation::Passed(_)));
    (passed && last.weighed.is_none()).then_some(last)
}

/// The candidate that the next round starts from: what failed and may be mended yet, else the head; none before the first
/// that is right, once what failed is given up.
#[must_use]
pub fn base(so_far: &Trajectory, consults: u32) -> Option<&CandidateId> {
    let (mut failing, mut failures) = (None, 0);
    for round in so_far.finished() {
        let mends = failing.is_some() && round.step.base() == failing;
        (failing, failures) = match &round.evaluation {
            Some(Evaluation::Passed(_) | Evaluation::Counted(_) | Evaluation::Compiled(_)) => (None, 0),
            Some(Evaluation::Failed(_)) => (round.candidate.as_ref(), if mends { failures + 1 } else { 1 }),
            // A reply that could not be read is a try like any other.
            None => (failing, failures + u32::from(mends)),
        };
    }
    let mending = failing.filter(|_| failures <= consults);
    mending.or_else(|| head(so_far).map(|weighed| &weighed.candidate))
}

/// The feature that the head was to bring in and did not: it stays to be asked for.
#[must_use]
pub fn staying(so_far: &Trajectory) -> Vec<String> {
    let not_fired = head(so_far).filter(|weighed| weighed.fired() == Some(Fired::No));
    not_fired.and_then(|weighed| weighed.shown.first()).map(|shown| shown.feature.clone()).into_iter().collect()
}

/// How many rounds in a row brought no faster candidate than there was.
#[must_use]
pub fn idle(so_far: &Trajectory) -> u32 {
    let (mut best, mut idle) = (0.0_f64, 0);
    for round in so_far.finished().filter(|round| round.step != Step::Baseline) {
        let reached = round.evaluation.as_ref().and_then(|evaluation| evaluation.passed());
        let reached = reached.map_or(0.0, |timed| timed.speedup.ratio);
        idle = if reached > best { 0 } else { idle + 1 };
        best = best.max(reached);
    }
    idle
}
