//! How does an event stand in the log, and how is a line read back?

use super::Event;
use crate::lease::{Lease, Work};
use kernelbench::stage::Stretch;
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

/// How such a line goes on behind its place, which takes no more than so many bytes.
const SPENT: &[u8] = b",\"event\":\"spent\",\"work\":";
const HEAD: usize = 96;

impl Line {
    /// A line as the log holds it: what `Deserialize` makes of it too, but that it keeps all fields until it knows which are the
    /// event's.
    ///
    /// # Errors
    ///
    /// Where this is no line of a log.
    pub fn read(json: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Place {
            seq: u64,
            at_ms: i64,
        }
        if let Some(spent) = Self::read_spent(json) {
            return Ok(spent);
        }
        let Place { seq, at_ms } = serde_json::from_slice(json)?;
        Ok(Self { seq, at_ms, event: serde_json::from_slice(json)? })
    }

    /// One that says what time was spent on, which is three quarters of a log: with its event known beforehand, it is read once
    /// and nothing is kept meanwhile. `None` for any other, and for what cannot be read so.
    fn read_spent(json: &[u8]) -> Option<Self> {
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
        let begins = &json[..json.len().min(HEAD)];
        begins.windows(SPENT.len()).position(|part| part == SPENT)?;
        let Spent { seq, at_ms, work, build_ms, lease, stages } = serde_json::from_slice(json).ok()?;
        Some(Self { seq, at_ms, event: Event::Spent { work, build_ms, lease, stages } })
    }
}
