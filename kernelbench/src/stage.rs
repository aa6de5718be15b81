//! The stages of a step: what was a device's time spent on, and was the device held meanwhile?
//!
//! Whoever asks a workshop for a step may have it recorded: the step's own code says when a stage begins, and nothing is
//! handed from call to call. A stage that begins within another interrupts it.

use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// What a stretch of time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// A candidate was loaded for the first time: its import, and the compilers that it runs.
    Build,
    /// Waiting for the device, which others held.
    Lease,
    /// Waiting for a process that has imported torch, or has a context on the device.
    Process,
    /// Opening a problem: its verifier, its reference and the audit.
    Open,
    /// Making both models and showing them their inputs.
    Load,
    /// The candidate's first call, in which Triton compiles.
    FirstCall,
    /// The rest of a check.
    Check,
    /// Finding out how many calls make a request, and warming up.
    Calibrate,
    /// The pairs that count.
    Time,
    /// Until a process is ready under the profiler and has loaded the candidate.
    ProfileStart,
    /// Reading counters or durations.
    Replay,
    /// The best, under a sanitizer.
    Sanitize,
    /// An evaluation of the best that is not ours.
    Elsewhere,
    /// What none of these is.
    Other,
}

impl Stage {
    /// All of them, in the order in which tables list them.
    pub const ALL: [Self; 14] = [
        Self::Build,
        Self::Lease,
        Self::Process,
        Self::Open,
        Self::Load,
        Self::FirstCall,
        Self::Check,
        Self::Calibrate,
        Self::Time,
        Self::ProfileStart,
        Self::Replay,
        Self::Sanitize,
        Self::Elsewhere,
        Self::Other,
    ];

    /// What tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Lease => "waiting for the device",
            Self::Process => "waiting for a process",
            Self::Open => "opening the problem",
            Self::Load => "loading",
            Self::FirstCall => "first call (JIT)",
            Self::Check => "check",
            Self::Calibrate => "calibrate",
            Self::Time => "time",
            Self::ProfileStart => "profile's start",
            Self::Replay => "replay passes",
            Self::Sanitize => "sanitizer",
            Self::Elsewhere => "KernelBench's own evaluation",
            Self::Other => "the rest",
        }
    }
}

/// How a device is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// Beside others that check.
    Shared,
    /// Alone.
    Exclusive,
}

/// A stretch of time in one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// What it was spent on.
    pub stage: Stage,
    /// How the device was held; not at all where it is `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Hold>,
    /// When it began, in microseconds by the recorder's clock.
    pub from_us: i64,
    /// How long it was, in microseconds.
    pub us: u64,
}

impl Stretch {
    /// When it ended, in microseconds by the recorder's clock.
    #[must_use]
    pub fn until_us(&self) -> i64 {
        self.from_us + self.us.cast_signed()
    }

    /// Whether what follows, so held and so long, is too short for a line of its own, where so much was taken in before.
    fn takes_in(&self, held: Option<Hold>, us: u64, before_us: u64) -> bool {
        us < TOO_SHORT_US && (before_us + us) * 100 < self.us && self.held == held
    }
}

/// Who did a step on another host, or will have done it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hand {
    /// The worker and its device: `gpu17/cuda:3`.
    pub device: String,
    /// The worker's public key, where its word was signed and the signature is right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The device that the task had before, where it had to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<String>,
}

impl Hand {
    /// That of this device, of which nothing else is known.
    #[must_use]
    pub fn named(device: &str) -> Self {
        Self { device: device.to_owned(), ..Self::default() }
    }
}

tokio::task_local! {
    static RECORDER: Arc<Recorder>;
}

/// What takes less than this, in microseconds, is part of what it follows, where the device is held as before and all such
/// together are less than a hundredth of it: steps into a stage and out of it, of which a record holds thousands.
const TOO_SHORT_US: u64 = 100;

/// Records the stages of one step after another.
#[derive(Debug)]
pub struct Recorder {
    origin_us: i64,
    origin: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stages: Vec<Stage>,
    held: Option<Hold>,
    marked_us: i64,
    stretches: Vec<Stretch>,
    /// What the last of them took in that was too short for a line of its own.
    taken_in_us: u64,
    hand: Option<Hand>,
}

impl Recorder {
    /// One that has recorded nothing; it is now `now_us`, in microseconds by the clock that stretches are to be told in.
    #[must_use]
    pub fn begin(now_us: i64) -> Arc<Self> {
        let state = Mutex::new(State { marked_us: now_us, ..State::default() });
        Arc::new(Self { origin_us: now_us, origin: Instant::now(), state })
    }

    /// Records what this does.
    pub async fn record<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        RECORDER.scope(Arc::clone(self), work).await
    }

    /// Everything so far, in order of time.
    #[must_use]
    pub fn stretches(&self) -> Vec<Stretch> {
        let mut state = self.mark();
        std::mem::take(&mut state.stretches)
    }

    /// Who did it, where that was on another host.
    #[must_use]
    pub fn hand(&self) -> Option<Hand> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).hand.clone()
    }

    /// Ends the stretch that is under way.
    fn mark(&self) -> MutexGuard<'_, State> {
        let now_us = self.origin_us + i64::try_from(self.origin.elapsed().as_micros()).unwrap_or(i64::MAX);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.end(now_us);
        state
    }
}

impl State {
    /// Ends the stretch that is under way. What no stage claims counts where the device was held.
    fn end(&mut self, now_us: i64) {
        let (current, held, from_us) = (self.stages.last().copied(), self.held, self.marked_us);
        let us = u64::try_from(now_us - from_us).unwrap_or(0);
        self.marked_us = now_us;
        if us == 0 || (current.is_none() && held.is_none()) {
            return;
        }
        let stage = current.unwrap_or(Stage::Other);
        match self.stretches.last_mut().filter(|last| last.until_us() == from_us) {
            Some(last) if (last.stage, last.held) == (stage, held) => last.us += us,
            Some(last) if last.takes_in(held, us, self.taken_in_us) => {
                last.us += us;
                self.taken_in_us += us;
            }
            _ => {
                self.taken_in_us = 0;
                self.stretches.push(Stretch { stage, held, from_us, us });
            }
        }
    }
}

/// Whoever records what is done here, if anybody does.
pub(crate) fn recorder() -> Option<Arc<Recorder>> {
    RECORDER.try_with(Arc::clone).ok()
}

/// Notes who did a step on another host, and what that took: it ended now, by whatever clock it was told in, and the time
/// until it began was spent waiting for a device.
pub(crate) fn done_elsewhere(hand: Hand, stages: Vec<Stretch>) {
    let Some(recorder) = recorder() else { return };
    let from_us = recorder.state.lock().unwrap_or_else(PoisonError::into_inner).marked_us;
    let mut state = recorder.mark();
    let (now_us, whole_us) = (state.marked_us, stages.last().map_or(0, Stretch::until_us));
    // A clock there may be wrong; how long it took is believed no further than the time that passed here.
    let began_us = (now_us - whole_us).max(from_us);
    let waited = u64::try_from(began_us - from_us).unwrap_or(0);
    state.stretches.push(Stretch { stage: Stage::Lease, held: None, from_us, us: waited });
    state.stretches.extend(stages.into_iter().map(|one| Stretch { from_us: began_us + one.from_us, ..one }));
    state.hand = Some(hand);
}

/// Does this on whatever thread it is called on, as part of what is recorded by this one.
pub(crate) fn on_behalf_of<T>(recorder: Option<Arc<Recorder>>, work: impl FnOnce() -> T) -> T {
    match recorder {
        Some(recorder) => RECORDER.sync_scope(recorder, work),
        None => work(),
    }
}

/// Begins a stage, which ends when what is returned is dropped.
pub(crate) fn begin(stage: Stage) -> Running {
    let recorder = recorder();
    if let Some(recorder) = &recorder {
        recorder.mark().stages.push(stage);
    }
    Running(recorder)
}

/// Does this in a stage.
pub(crate) fn during<T>(stage: Stage, work: impl FnOnce() -> T) -> T {
    let _running = begin(stage);
    work()
}

/// Notes how the device is held from now on; how it was before.
pub(crate) fn hold(held: Option<Hold>) -> Option<Hold> {
    recorder().and_then(|recorder| std::mem::replace(&mut recorder.mark().held, held))
}

/// A stage that is under way.
#[derive(Debug)]
pub(crate) struct Running(Option<Arc<Recorder>>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(recorder) = &self.0 {
            recorder.mark().stages.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(10);

    #[tokio::test(start_paused = true)]
    async fn a_stage_within_another_interrupts_it_and_all_of_the_time_is_somebodys() {
        let recorder = Recorder::begin(1000);
        recorder
            .record(async {
                tokio::time::sleep(MS).await;
                hold(Some(Hold::Shared));
                let check = begin(Stage::Check);
                tokio::time::sleep(MS).await;
                let call = begin(Stage::FirstCall);
                tokio::time::sleep(MS).await;
                drop(call);
                tokio::time::sleep(MS).await;
                drop(check);
                hold(Some(Hold::Exclusive));
                tokio::time::sleep(MS).await;
                hold(None);
                tokio::time::sleep(MS).await;
            })
            .await;
        let of = |stage, held, from_us| Stretch { stage, held: Some(held), from_us, us: 10_000 };
        let expected = [
            of(Stage::Check, Hold::Shared, 11_000),
            of(Stage::FirstCall, Hold::Shared, 21_000),
            of(Stage::Check, Hold::Shared, 31_000),
            of(Stage::Other, Hold::Exclusive, 41_000),
        ];
        assert_eq!(recorder.stretches(), expected, "what no stage claims counts where the device was held");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_short_for_a_line_of_its_own_is_part_of_what_it_follows() {
        let recorder = Recorder::begin(0);
        let step = |stage, us| async move {
            let _running = begin(stage);
            tokio::time::advance(Duration::from_micros(us)).await;
        };
        recorder
            .record(async {
                step(Stage::Load, 50).await;
                step(Stage::Check, 9_000).await;
                step(Stage::Open, 50).await;
                step(Stage::Check, 1_000).await;
                step(Stage::Open, 150).await;
                hold(Some(Hold::Exclusive));
                step(Stage::Time, 20_000).await;
                hold(None);
                step(Stage::Lease, 50).await;
                step(Stage::Load, 8_000).await;
                step(Stage::Other, 50).await;
                step(Stage::Open, 50).await;
            })
            .await;
        let of = |stage, from_us, us| Stretch { stage, held: None, from_us, us };
        let before = [of(Stage::Load, 0, 50), of(Stage::Check, 50, 10_050), of(Stage::Open, 10_100, 150)];
        let held = Stretch { held: Some(Hold::Exclusive), ..of(Stage::Time, 10_250, 20_000) };
        let after = [of(Stage::Lease, 30_250, 50), of(Stage::Load, 30_300, 8_050), of(Stage::Open, 38_350, 50)];
        let expected = [&before[..], &[held], &after].concat();
        let why = "no device is held for longer than it was, and no stage grows by more than a hundredth";
        assert_eq!(recorder.stretches(), expected, "{why}");
    }

    #[tokio::test]
    async fn another_thread_records_on_behalf_of_the_one_that_asked() {
        let recorder = Recorder::begin(0);
        recorder
            .record(async {
                let asker = super::recorder();
                let work = move || on_behalf_of(asker, || during(Stage::Open, || std::thread::sleep(MS)));
                tokio::task::spawn_blocking(work).await.unwrap();
            })
            .await;
        let stretches = recorder.stretches();
        assert!(
            matches!(stretches[..], [Stretch { stage: Stage::Open, held: None, us: 9_000.., .. }]),
            "{stretches:?}"
        );
    }

    #[test]
    fn where_nobody_records_stages_cost_nothing_and_do_nothing() {
        assert_eq!(hold(Some(Hold::Shared)), None);
        assert_eq!(during(Stage::Time, || 7), 7);
    }
}
