//! The words for a workflow: what was ordered, checked and kept

use agents::{
    trajectory::Trajectory,
    validator::Validated,
    workflow::{Checkpoint, Order},
};
use kernelbench::{Bindings, Evaluation, Failure, Found, Hash, in_words, plain};

/// That a transformation is to be applied.
pub(super) fn ordered(order: &Order, so_far: &Trajectory) -> Vec<String> {
    let from = name_of(&order.from, so_far);
    vec![String::new(), format!("{} of {from}", plain(&order.transformation))]
}

/// Which try it is.
pub(super) fn began(transformation: &str, so_far: &Trajectory) -> String {
    let open = so_far.workflow.open_order(&so_far.rounds);
    let tries = open.map_or(String::new(), |(order, tries)| format!(", try {} of {}", tries + 1, order.tries));
    format!("{}{tries}", plain(transformation))
}

/// A configuration that was found wrong; the right ones are counted when the checkpoint is made.
pub(super) fn checked(bindings: &Bindings, failure: Option<&Failure>) -> Vec<String> {
    match failure {
        // What does not build says so itself, whatever its bindings.
        None | Some(Failure::Invalid { .. } | Failure::Build { .. }) => vec![],
        Some(_) if bindings.is_empty() => vec![],
        Some(_) => vec![format!("  wrong at {}", plain(&in_words(bindings)))],
    }
}

/// What a validator of the user's found, or why it did not look.
pub(super) fn validated(validator: &str, found: &Validated) -> Vec<String> {
    match found {
        Validated::Passed => vec![],
        Validated::DoesNotApply(why) => {
            vec![format!("  {} does not apply: {}", plain(validator), plain(first_line(why)))]
        }
        Validated::Failed(why) => vec![format!("  {} found: {}", plain(validator), plain(first_line(why)))],
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// What was kept, with its counts.
pub(super) fn checkpointed(checkpoint: &Checkpoint, so_far: &Trajectory) -> Vec<String> {
    let Some(round) = so_far.rounds.last() else { return vec![] };
    let valid = round.checked.iter().filter(|(_, failure)| failure.is_none()).count();
    let timed = round.tried.iter().filter(|tried| matches!(tried.found, Found::Ratio(_))).count();
    // What was only compiled was found valid by nobody.
    let (good, ratio) = match &round.evaluation {
        Some(Evaluation::Compiled(_)) => ("compiled", "not run".to_owned()),
        other => {
            let ratio = other.as_ref().and_then(Evaluation::passed).map_or(0.0, |timed| timed.speedup.ratio);
            ("valid", metrics::quantity::times(ratio))
        }
    };
    let what = checkpoint.transformation.as_deref().unwrap_or("initial context");
    let calls = round.answers.len();
    vec![format!(
        "{:<4}       {}  {calls} calls  {valid}/{} {good}  {timed} timed, {} kept  {ratio}  {}",
        checkpoint.name,
        plain(what),
        round.checked.len(),
        checkpoint.kept.len(),
        checkpoint.id.short(),
    )]
}

/// Said after a try that failed: where the workflow stays, once no try is left.
pub(super) fn stays(so_far: &Trajectory) -> Option<String> {
    let (order, tries) = so_far.workflow.open_order(&so_far.rounds)?;
    let left = order.tries.saturating_sub(tries + 1);
    (left == 0).then(|| {
        format!(
            "  {} failed {} times; the context stays at {}",
            plain(&order.transformation),
            order.tries,
            name_of(&order.from, so_far)
        )
    })
}

/// That a name now leads to a checkpoint.
pub(super) fn moved(what: &str, name: &str, checkpoint: &Hash, so_far: &Trajectory) -> String {
    format!("{what:<10} {} at {}", plain(name), name_of(checkpoint, so_far))
}

pub(crate) fn name_of(id: &Hash, so_far: &Trajectory) -> String {
    so_far.workflow.checkpoint(id).map_or_else(|| id.short().to_owned(), |checkpoint| checkpoint.name.clone())
}
