//! What the page is sent of a task: plain data, which the page turns into text and never into markup.

use super::task::{Seen, kind, told};
use crate::progress::plain;
use serde::Serialize;

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Turn {
    pub(super) number: u32,
    pub(super) step: &'static str,
    /// For the style sheet: open, failed, slower, same or faster.
    pub(super) kind: &'static str,
    /// What came of it, in words; empty while it is open.
    pub(super) outcome: String,
    /// The advice that it followed, in a line.
    pub(super) advice: String,
    /// When it was over, or began.
    pub(super) at_ms: i64,
}

impl Turn {
    pub(super) fn begun(number: u32, step: &'static str, at_ms: i64) -> Self {
        Self { number, step, kind: "open", outcome: String::new(), advice: String::new(), at_ms }
    }
}

/// One task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) id: usize,
    pub(super) run: usize,
    pub(super) name: String,
    /// For the style sheet and the choice of what is shown: waits, works, ended or trouble.
    pub(super) state: &'static str,
    /// What is going on, or why it stopped.
    pub(super) doing: String,
    /// When the last event was noted.
    pub(super) at_ms: Option<i64>,
    /// How many rounds it may have.
    pub(super) of: u32,
    /// What came of it so far, in words.
    pub(super) result: String,
    /// For the style sheet, as that of a round.
    pub(super) kind: &'static str,
    pub(super) certified: bool,
    pub(super) device: String,
    pub(super) held_us: u64,
    pub(super) usd: f64,
    pub(super) turns: Vec<Turn>,
}

/// What a row is called and how many rounds it may have.
#[derive(Clone, Debug)]
pub(super) struct Place<'a> {
    pub(super) id: usize,
    pub(super) run: usize,
    pub(super) name: &'a str,
    pub(super) rounds: u32,
    /// Why the record cannot be read, where it cannot.
    pub(super) damaged: Option<&'a str>,
}

impl Row {
    pub(super) fn of(place: &Place, seen: &Seen) -> Self {
        let standing = &seen.standing;
        let rounds = standing.extended_to.unwrap_or(place.rounds);
        let (state, doing) = doing(place, seen, rounds);
        let (kind, result) = result(seen);
        Self {
            id: place.id,
            run: place.run,
            name: place.name.to_owned(),
            state,
            doing: plain(&doing),
            at_ms: seen.at_ms,
            of: rounds,
            result: plain(&result),
            kind,
            certified: standing.certified.is_some(),
            device: standing.device.as_deref().map(plain).unwrap_or_default(),
            held_us: standing.used.leased_us,
            usd: standing.used.usd,
            turns: seen.turns.clone(),
        }
    }
}

/// The style and the words for what is going on.
fn doing(place: &Place, seen: &Seen, rounds: u32) -> (&'static str, String) {
    let standing = &seen.standing;
    match (place.damaged, &standing.broke_off, standing.end) {
        (Some(why), _, _) => ("trouble", format!("its record cannot be read: {why}")),
        (None, Some(why), None) => ("trouble", format!("broke off: {why}")),
        (None, _, Some(end)) => match end.limit() {
            Some(limit) => ("ended", format!("ended at the limit {limit}")),
            None => ("ended", "ended".to_owned()),
        },
        _ if seen.at_ms.is_none() => ("waits", "not begun".to_owned()),
        _ if standing.open.is_none() && rounds > 0 && standing.rounds >= rounds => ("works", CERTIFIES.to_owned()),
        _ => ("works", standing.doing.to_owned()),
    }
}

/// What goes on once the rounds are over.
pub(super) const CERTIFIES: &str = "examining the best anew";

/// The style and the words for what came of it so far.
fn result(seen: &Seen) -> (&'static str, String) {
    let standing = &seen.standing;
    match (&standing.certified, seen.best()) {
        (Some(certified), _) => (kind(certified), format!("{}, certified", told(certified))),
        (None, Some(best)) => (kind(best), format!("{}, not certified", told(best))),
        (None, None) if standing.counted.is_some() || standing.compiled.is_some() => ("none", standing.came_to()),
        (None, None) if standing.end.is_some() => ("failed", standing.came_to()),
        (None, None) => ("open", standing.trouble.clone().unwrap_or_default()),
    }
}
