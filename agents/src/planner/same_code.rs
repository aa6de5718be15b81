//! Was the same code timed before? Then it is no new candidate: it is named, and its samples join those of before.

use crate::trajectory::{Round, Trajectory};
use kernelbench::{CandidateId, Evaluation, Label, LabelKind, Timed};

/// An evaluation with the samples of the last round that timed the same code: the same text, or what was built of it.
pub(super) fn joined(evaluation: Evaluation, id: &CandidateId, so_far: &Trajectory) -> Evaluation {
    let Evaluation::Passed(timed) = &evaluation else { return evaluation };
    // One out of a record holds them already.
    if timed.labels.iter().any(|label| label.kind == LabelKind::SameCode) {
        return evaluation;
    }
    let same = |round: &&Round| {
        round.candidate.as_ref() == Some(id)
            || earlier(round).is_some_and(|e| e.object.is_some() && e.object == timed.object)
    };
    let before = so_far.finished().rev().filter(same).find_map(|round| Some((round, earlier(round)?)));
    let Some((round, mut joined)) = before.and_then(|(round, earlier)| Some((round, timed.joined(earlier)?))) else {
        return evaluation;
    };
    let name = round.candidate.as_ref().map(|id| id.short().to_owned()).unwrap_or_default();
    let text = format!(
        "built here, the same code as candidate {name} of round {}: its samples are joined to those",
        round.number
    );
    joined.labels.push(Label::new(LabelKind::SameCode, text));
    Evaluation::Passed(joined)
}

fn earlier(round: &Round) -> Option<&Timed> {
    round.evaluation.as_ref()?.passed()
}
