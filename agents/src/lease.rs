//! Who held a device, from when to when, and what did a job take beside that?

use kernelbench::stage::{Hand, Hold, Recorder, Stretch};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// A device was held. Where it was held alone, nobody else's lease of that device holds it too; checks share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Which device: `cuda:0`, `cpu`; on another host with its worker's name before it, `gpu17/cuda:0`.
    pub device: String,
    /// When it was taken, in microseconds since 1970-01-01 UTC.
    pub from_us: i64,
    /// When the check was over and the timing began, where a candidate was examined and passed the check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_us: Option<i64>,
    /// When it was given back.
    pub until_us: i64,
    /// How it was held meanwhile; alone all the time where it is `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// The public key of the worker on another host that signed what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
    /// The device that the task had before, where it had to move: its reference was prepared anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<String>,
}

/// How long a device was held, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Alone.
    pub exclusive_us: u64,
    /// Beside others that checked.
    pub shared_us: u64,
}

impl Lease {
    /// How long it was held, alone or beside others, in microseconds.
    #[must_use]
    pub fn us(&self) -> u64 {
        let whole = u64::try_from(self.until_us - self.from_us).unwrap_or(0);
        self.held.map_or(whole, |held| held.exclusive_us + held.shared_us)
    }

    /// How long it was held alone, in microseconds.
    #[must_use]
    pub fn exclusive_us(&self) -> u64 {
        self.held.map_or_else(|| self.us(), |held| held.exclusive_us)
    }

    /// That of work by this hand whose stages are known; of all the time since then where they are not.
    #[must_use]
    pub(crate) fn of(hand: Hand, (from_us, until_us): (i64, i64), stages: &[Stretch]) -> Self {
        let held = || stages.iter().filter(|one| one.held.is_some());
        let recorded = !stages.is_empty();
        let (first, last) = (held().next(), held().next_back());
        let us = |how| held().filter(|one| one.held == Some(how)).map(|one| one.us).sum();
        Self {
            device: hand.device,
            signed_by: hand.key,
            moved_from: hand.moved_from,
            from_us: first.map_or(if recorded { until_us } else { from_us }, |first| first.from_us),
            checked_us: None,
            until_us: last.map_or(until_us, Stretch::until_us),
            held: recorded.then(|| Held { exclusive_us: us(Hold::Exclusive), shared_us: us(Hold::Shared) }),
        }
    }
}

/// What a device's job came to, and its lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leased<T> {
    /// What it came to.
    pub result: T,
    /// From when to when.
    pub lease: Lease,
    /// What the time was spent on, in order.
    pub stages: Vec<Stretch>,
}

/// What was done for a candidate or the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// The reference was built, checked and timed.
    Prepare,
    /// Configurations were built side by side, to be checked and timed one by one.
    Build,
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
    /// What the time was spent on, in order, where the workshop says so.
    pub stages: Vec<Stretch>,
}

impl<T> Worked<T> {
    /// This after a build.
    #[must_use]
    pub fn after(self, build: Build) -> Self {
        let stages = build.stages.into_iter().chain(self.stages).collect();
        Self { build_ms: Some(build.ms), stages, ..self }
    }
}

/// What a build took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// In milliseconds.
    pub ms: u64,
    /// What the time was spent on, in order.
    pub stages: Vec<Stretch>,
}

impl Build {
    /// Builds, and says what that took.
    pub async fn timed<T>(clock: Clock, build: impl Future<Output = T>) -> (T, Self) {
        let (began, recorder) = (Instant::now(), Recorder::begin(clock.now_us()));
        let done = recorder.record(build).await;
        (done, Self { ms: began.elapsed().as_millis() as u64, stages: recorder.stretches() })
    }

    /// What came of work that ended with the build.
    #[must_use]
    pub fn ended<T>(self, result: T) -> Worked<T> {
        Worked { result, build_ms: Some(self.ms), lease: None, stages: self.stages }
    }
}

impl<T> From<Leased<T>> for Worked<T> {
    fn from(leased: Leased<T>) -> Self {
        let Leased { result, lease, stages } = leased;
        Self { result, build_ms: None, lease: Some(lease), stages }
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
