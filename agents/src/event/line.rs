//! How does an event stand in the log, and how is a line read back?

use super::Event;
use crate::lease::{Lease, Work};
use kernelbench::{CandidateId, Evaluation, Tried, stage::Stretch};
use serde::{Deserialize, Serialize};

/// One line of the log: an event, when it was noted, and where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// 0, 1, 2, ...: a gap means that the file was damaged.
    pub seq: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub at_ms: i64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What stands before the name of an event's kind, and how many bytes it takes at most until that name ends.
const KIND: &[u8] = b",\"event\":\"";
const HEAD: usize = 96;

#[derive(Deserialize)]
struct Place {
    seq: u64,
    at_ms: i64,
}

impl Line {
    /// A line as the log holds it: what `Deserialize` makes of it too, but that it keeps all fields until it knows which are the
    /// event's.
    ///
    /// # Errors
    ///
    /// Where this is no line of a log.
    pub fn read(json: &[u8]) -> serde_json::Result<Self> {
        if let Some(event) = Self::read_known(json) {
            return Ok(event);
        }
        let Place { seq, at_ms } = serde_json::from_slice(json)?;
        Ok(Self { seq, at_ms, event: serde_json::from_slice(json)? })
    }

    /// One of the kinds that make up most of a log, by its kind: with its event known beforehand, nothing is kept until that is
    /// known. `None` for any other, and for what cannot be read so.
    fn read_known(json: &[u8]) -> Option<Self> {
        match kind(json)? {
            b"spent" => read_spent(json),
            b"tried" => read_tried(json),
            b"evaluated" => read_evaluated(json),
            b"checkpointed" => read_one(json, Event::Checkpointed),
            b"ordered" => read_one(json, Event::Ordered),
            _ => None,
        }
    }
}

/// The name of the kind of a line's event, where it stands where the log puts it.
fn kind(json: &[u8]) -> Option<&[u8]> {
    let head = &json[..json.len().min(HEAD)];
    let name = head.windows(KIND.len()).position(|part| part == KIND)? + KIND.len();
    let length = head[name..].iter().position(|byte| *byte == b'"')?;
    Some(&head[name..name + length])
}

fn read_spent(json: &[u8]) -> Option<Line> {
    #[derive(Deserialize)]
    struct Spent {
        seq: u64,
        at_ms: i64,
        work: Work,
        build_ms: Option<u64>,
        lease: Option<Lease>,
        #[serde(default)]
        stages: Vec<Stretch>,
    }
    let Spent { seq, at_ms, work, build_ms, lease, stages } = serde_json::from_slice(json).ok()?;
    Some(Line { seq, at_ms, event: Event::Spent { work, build_ms, lease, stages } })
}

fn read_tried(json: &[u8]) -> Option<Line> {
    #[derive(Deserialize)]
    struct One {
        seq: u64,
        at_ms: i64,
        tried: Tried,
    }
    let One { seq, at_ms, tried } = serde_json::from_slice(json).ok()?;
    Some(Line { seq, at_ms, event: Event::Tried { tried } })
}

fn read_evaluated(json: &[u8]) -> Option<Line> {
    #[derive(Deserialize)]
    struct Evaluated {
        seq: u64,
        at_ms: i64,
        candidate: CandidateId,
        evaluation: Evaluation,
    }
    let Evaluated { seq, at_ms, candidate, evaluation } = serde_json::from_slice(json).ok()?;
    Some(Line { seq, at_ms, event: Event::Evaluated { candidate, evaluation } })
}

/// One whose event is one thing.
fn read_one<T: for<'a> Deserialize<'a>>(json: &[u8], event: impl Fn(T) -> Event) -> Option<Line> {
    let Place { seq, at_ms } = serde_json::from_slice(json).ok()?;
    Some(Line { seq, at_ms, event: event(serde_json::from_slice(json).ok()?) })
}
