//! The words for a search: what an evaluation came to, and the best so far.

use agents::{
    search::{Pace, Reached},
    trajectory::Trajectory,
};
use kernelbench::{CandidateId, Failure, Found, Hash, Task, plain};

/// What the speedups of a run's search stand for; none before its reference was prepared.
#[must_use]
pub fn pace(story: &Trajectory, task: &Task) -> Option<Pace> {
    let machine = story.machine.as_ref()?;
    Some(Pace::of(task, story.suite.as_ref()?, story.baseline.as_ref()?, machine))
}

/// The node, what led to it, how fast it is, and the fastest so far.
pub(super) fn simulated(node: usize, found: &Result<Found, String>, so_far: &Trajectory, pace: &Pace) -> Vec<String> {
    let Some(made) = so_far.tree.nodes().get(node) else { return vec![] };
    let action = made.action.as_ref().map_or("first values".to_owned(), ToString::to_string);
    let parent = made.parent.map_or(String::new(), |parent| format!(" of {parent}"));
    let reached = Reached::from(found);
    let own = if let Reached::Rate(rate) = reached { Some(rate) } else { None };
    let best = so_far.tree.best().map(|(_, rate)| rate).into_iter().chain(own).reduce(f64::max);
    let best = best.map_or("none right yet".to_owned(), |best| format!("best {}", told(pace, best)));
    let came = match reached {
        Reached::Rate(rate) => told(pace, rate),
        Reached::Failed(why) => format!("failed: {why}"),
        Reached::InFlight => String::new(),
    };
    vec![plain(&format!("  node {node}{parent}  {action:<22} {came}, {best}"))]
}

/// How fast a candidate that was weighed is, where the task says how many operations it takes.
pub(super) fn rate_of(candidate: &CandidateId, so_far: &Trajectory, pace: &Pace) -> Option<String> {
    pace.reference?;
    let timed = so_far.evaluation(candidate)?.passed()?;
    Some(format!("  {}", told(pace, timed.speedup.ratio)))
}

/// A rate, and its share of the peak.
fn told(pace: &Pace, rate: f64) -> String {
    let share = pace.share(rate).map(|share| format!(" ({:.0} % of peak)", share * 100.0));
    format!("{}{}", pace.words(rate), share.unwrap_or_default())
}

/// That some actions of a node lead nowhere new, so far.
pub(super) fn offered(node: usize, dropped: u32) -> Vec<String> {
    let why = "not legal, or leading where another node stands";
    if dropped == 0 { vec![] } else { vec![format!("  dropped of node {node} so far: {dropped}, {why}")] }
}

/// A script that failed.
pub(super) fn printed(text: &Result<Hash, Failure>) -> Vec<String> {
    match text {
        Ok(_) => vec![],
        Err(Failure::Build { log }) => {
            let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            vec![plain(&format!("  the script failed: {}", last.trim()))]
        }
        Err(failure) => vec![plain(&format!("  the script failed: {failure}"))],
    }
}
