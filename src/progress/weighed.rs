//! The words for a weighing: what the counters say of the feature that was asked for, and whether the candidate goes on.

use super::plain;
use crate::quantity;
use agents::head::{Shown, Weighed};

/// A line for each feature, and one for the outcome.
#[must_use]
pub fn lines(weighed: &Weighed) -> Vec<String> {
    let mut lines: Vec<String> = weighed.shown.iter().map(shown).collect();
    let over = weighed.over_head.as_ref().map(|over| format!("{} over the head; ", quantity::speedup(over)));
    let verdict = if weighed.accepted { "accepted" } else { "taken back" };
    let (over, why) = (over.unwrap_or_default(), plain(&weighed.why));
    lines.push(format!("  {over}{verdict}: {why}; turns left: {}", weighed.left));
    lines
}

/// The feature, whether it fired, and its target counter before and after.
fn shown(shown: &Shown) -> String {
    let (feature, fired) = (plain(&shown.feature), shown.proof.fired.name());
    let Some(target) = shown.proof.target() else { return format!("  feature {feature}: {fired}") };
    let read = |value: Option<f64>| value.map_or_else(|| "unread".to_owned(), |value| format!("{value}"));
    let gain = target.gain.map(|gain| format!(", {gain}")).unwrap_or_default();
    let (before, after) = (read(target.before), read(target.after));
    format!("  feature {feature}: {fired} ({} {before} -> {after}{gain})", plain(&target.sign))
}
