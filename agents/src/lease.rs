//! Who held a device, from when to when, and what did a job take beside that?

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// A device was held. Two leases of one device never overlap: its mailbox hands out one at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Which device: `cuda:0`, `cpu`.
    pub device: String,
    /// When it was taken, in microseconds since 1970-01-01 UTC.
    pub from_us: i64,
    /// When the check was over and the timing began, where a candidate was examined and passed the check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_us: Option<i64>,
    /// When it was given back.
    pub until_us: i64,
}

impl Lease {
    /// How long it was held, in microseconds.
    #[must_use]
    pub fn us(&self) -> u64 {
        u64::try_from(self.until_us - self.from_us).unwrap_or(0)
    }
}

/// What a device's job came to, and its lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leased<T> {
    /// What it came to.
    pub result: T,
    /// From when to when.
    pub lease: Lease,
}

/// What was done for a candidate or the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// The reference was built, checked and timed.
    Prepare,
    /// A candidate was built, checked and timed.
    Examine,
    /// A configuration was built and checked, and not timed.
    Check,
    /// A candidate was profiled.
    Profile,
    /// The best was rebuilt, checked and timed anew.
    Certify,
}

/// What a job came to, and what it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worked<T> {
    /// What it came to.
    pub result: T,
    /// Building, before the device was asked for, in milliseconds; `None` where nothing was built then.
    pub build_ms: Option<u64>,
    /// The lease; `None` where it did not come to that.
    pub lease: Option<Lease>,
}

impl<T> From<Leased<T>> for Worked<T> {
    fn from(leased: Leased<T>) -> Self {
        Self { result: leased.result, build_ms: None, lease: Some(leased.lease) }
    }
}

/// A clock that tells the time of day and never goes back. It is tokio's: a simulation may run it faster.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    began_us: i64,
}

impl Clock {
    /// Set by the system's clock, once.
    #[must_use]
    pub fn set() -> Self {
        Self { began: Instant::now(), began_us: jiff::Timestamp::now().as_microsecond() }
    }

    /// Microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        self.began_us + i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}
