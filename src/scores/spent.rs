//! What did a task take: calls, tokens, dollars, time?

use agents::{
    event::{Event, Line},
    lease::{Lease, Work},
    llm::Usage,
};
use kernelbench::stage::{Hold, Stage, Stretch};
use serde::Serialize;
use std::{collections::BTreeMap, iter::Sum};

/// Sums over the events of one task, or of many. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spent {
    /// Model calls that were answered.
    pub calls: u64,
    /// Tokens of all prompts that were counted.
    pub input_tokens: u64,
    /// Of these, read from a provider's cache.
    pub cached_tokens: u64,
    /// Tokens of all replies that were counted.
    pub output_tokens: u64,
    /// Calls whose tokens nobody counted.
    pub uncounted_calls: u64,
    /// Dollars of the calls whose price is known.
    pub usd: f64,
    /// Calls whose price is not known.
    pub unpriced_calls: u64,
    /// From the first event to the last, without the time in which nobody worked on it.
    pub wall_ms: u64,
    /// Holding devices, all kinds of work together, alone or beside others.
    pub device_ms: u64,
    /// Of these, alone.
    pub exclusive_ms: u64,
    /// Rounds' candidates that were worked on on a device, of which the stages are known.
    pub staged: u64,
    /// What was spent on each stage, where that was recorded.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub stages: BTreeMap<Stage, StageTime>,
    /// Waiting for models.
    pub model_ms: u64,
    /// Building, checking and timing references.
    pub reference_ms: u64,
    /// Building candidates.
    pub build_ms: u64,
    /// Checking candidates.
    pub check_ms: u64,
    /// Timing candidates.
    pub time_ms: u64,
    /// Profiling.
    pub profile_ms: u64,
    /// Examining the best anew.
    pub certify_ms: u64,
    /// Building, checking and timing candidates, where the record does not tell them apart.
    pub examine_ms: u64,
    /// Waiting for a device that others held.
    pub waiting_ms: u64,
    /// All else: the program itself.
    pub own_ms: u64,
}

/// What a stage took, in microseconds.
#[expect(clippy::struct_field_names, reason = "a number's unit stands in its name")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StageTime {
    /// While a device was held alone.
    pub exclusive_us: u64,
    /// While it was held beside others.
    pub shared_us: u64,
    /// While it was not held.
    pub free_us: u64,
}

impl StageTime {
    fn of(one: &Stretch) -> Self {
        match one.held {
            Some(Hold::Exclusive) => Self { exclusive_us: one.us, ..Self::default() },
            Some(Hold::Shared) => Self { shared_us: one.us, ..Self::default() },
            None => Self { free_us: one.us, ..Self::default() },
        }
    }

    fn add(&mut self, other: Self) {
        self.exclusive_us += other.exclusive_us;
        self.shared_us += other.shared_us;
        self.free_us += other.free_us;
    }
}

impl Spent {
    /// Of these events of one task: everything between one event and the next belongs to the one that it led to.
    #[must_use]
    pub fn of(lines: &[Line]) -> Self {
        let mut spent = Self::default();
        for line in lines {
            if let Event::Answered { usage, usd, .. } = &line.event {
                spent.pay(usage.as_ref(), *usd);
            }
        }
        for pair in lines.windows(2) {
            spent.take(&pair[0], &pair[1]);
        }
        spent
    }

    /// Dollars, where every price is known.
    #[must_use]
    pub fn known_usd(&self) -> Option<f64> {
        (self.unpriced_calls == 0).then_some(self.usd)
    }

    /// Each kind of work with its time and what it is called among other programs, as tables list them. Together they
    /// are the wall time.
    #[must_use]
    pub fn times(&self) -> [(&'static str, &'static str, u64); 10] {
        [
            ("model", "model_ms", self.model_ms),
            ("reference", "reference_ms", self.reference_ms),
            ("build", "build_ms", self.build_ms),
            ("check", "check_ms", self.check_ms),
            ("time", "time_ms", self.time_ms),
            ("profile", "profile_ms", self.profile_ms),
            ("certificate", "certify_ms", self.certify_ms),
            ("candidates, not told apart", "examine_ms", self.examine_ms),
            ("waiting for a device", "waiting_ms", self.waiting_ms),
            ("the program itself", "own_ms", self.own_ms),
        ]
    }

    fn pay(&mut self, usage: Option<&Usage>, usd: Option<f64>) {
        self.calls += 1;
        self.uncounted_calls += u64::from(usage.is_none());
        self.unpriced_calls += u64::from(usd.is_none());
        self.usd += usd.unwrap_or(0.0);
        if let Some(usage) = usage {
            self.input_tokens += usage.input_tokens;
            self.cached_tokens += usage.cached_tokens;
            self.output_tokens += usage.output_tokens;
        }
    }

    fn take(&mut self, before: &Line, after: &Line) {
        let ms = u64::try_from(after.at_ms.saturating_sub(before.at_ms)).unwrap_or(0);
        let ms = match &after.event {
            _ if !lay_there(&before.event, &after.event) => ms,
            // It began some time after the run went on.
            Event::Spent { build_ms, lease, .. } => {
                ms.min(build_ms.unwrap_or(0) + lease.as_ref().map_or(0, |lease| lease.us() / 1000))
            }
            _ => return,
        };
        let part = match (&before.event, &after.event) {
            (_, Event::Spent { work, build_ms, lease, stages }) => {
                self.wall_ms += ms;
                self.staged += u64::from(*work == Work::Examine && lease.is_some() && !stages.is_empty());
                for one in stages {
                    self.stages.entry(one.stage).or_default().add(StageTime::of(one));
                }
                return self.work(*work, ms, build_ms.unwrap_or(0), (lease.as_ref(), stages));
            }
            (_, Event::Answered { .. }) | (Event::Asked { .. }, _) => &mut self.model_ms,
            (Event::Spent { .. }, _) => &mut self.own_ms,
            (_, Event::Prepared { .. }) => &mut self.reference_ms,
            (_, Event::Tuned { .. } | Event::Tried { .. } | Event::Checked { .. } | Event::Evaluated { .. }) => {
                &mut self.examine_ms
            }
            (_, Event::Profiled { .. }) => &mut self.profile_ms,
            (_, Event::Certified { .. }) => &mut self.certify_ms,
            _ => &mut self.own_ms,
        };
        *part += ms;
        self.wall_ms += ms;
    }

    /// A stretch of `ms` that ended with this work: what is neither building nor the lease was waiting for the device.
    fn work(&mut self, work: Work, ms: u64, build_ms: u64, (lease, stages): (Option<&Lease>, &[Stretch])) {
        let held = lease.map_or(0, |lease| lease.us() / 1000);
        let (build, leased) = (build_ms.min(ms), held.min(ms.saturating_sub(build_ms)));
        self.device_ms += held;
        self.exclusive_ms += lease.map_or(0, |lease| lease.exclusive_us() / 1000);
        self.waiting_ms += ms - build - leased;
        let part = match work {
            Work::Prepare => &mut self.reference_ms,
            Work::Build => {
                self.build_ms += build;
                return;
            }
            Work::Check => {
                self.build_ms += build;
                self.check_ms += leased;
                return;
            }
            Work::Profile => &mut self.profile_ms,
            Work::Certify => &mut self.certify_ms,
            Work::Examine => {
                let check = lease.and_then(|lease| checking_us(lease, stages));
                let check = check.map_or(leased, |us| (us / 1000).min(leased));
                self.build_ms += build;
                self.check_ms += check;
                self.time_ms += leased - check;
                return;
            }
        };
        *part += build + leased;
    }
}

/// Whether nobody worked on a run between two of its events that stand one behind the other: it had ended or was broken off, or
/// a person came back to it. Who was asked for a reply works.
pub(crate) fn lay_there(before: &Event, after: &Event) -> bool {
    let by_hand = |event: &Event| {
        matches!(event, Event::Extended { .. } | Event::Named { .. } | Event::Restored { .. } | Event::Branched { .. })
    };
    match (before, after) {
        (Event::BrokeOff { .. } | Event::Ended { .. }, _) => true,
        (Event::Asked { .. }, _) => false,
        (_, Event::Ordered(order)) if order.by_hand => true,
        // A run is extended where it goes on.
        (Event::Extended { .. }, _) => false,
        _ => by_hand(before) || by_hand(after),
    }
}

/// How long a device was held to check, in microseconds; `None` where no check was passed.
fn checking_us(lease: &Lease, stages: &[Stretch]) -> Option<u64> {
    let checked_us = lease.checked_us?;
    if lease.held.is_none() {
        return u64::try_from(checked_us - lease.from_us).ok();
    }
    let before = stages.iter().filter(|one| one.held.is_some() && one.from_us < checked_us);
    Some(before.map(|one| one.us).sum())
}

/// The stages of both.
fn together(mut stages: BTreeMap<Stage, StageTime>, others: &BTreeMap<Stage, StageTime>) -> BTreeMap<Stage, StageTime> {
    for (stage, time) in others {
        stages.entry(*stage).or_default().add(*time);
    }
    stages
}

impl<'a> Sum<&'a Spent> for Spent {
    fn sum<I: Iterator<Item = &'a Spent>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            calls: sum.calls + one.calls,
            input_tokens: sum.input_tokens + one.input_tokens,
            cached_tokens: sum.cached_tokens + one.cached_tokens,
            output_tokens: sum.output_tokens + one.output_tokens,
            uncounted_calls: sum.uncounted_calls + one.uncounted_calls,
            usd: sum.usd + one.usd,
            unpriced_calls: sum.unpriced_calls + one.unpriced_calls,
            wall_ms: sum.wall_ms + one.wall_ms,
            device_ms: sum.device_ms + one.device_ms,
            exclusive_ms: sum.exclusive_ms + one.exclusive_ms,
            staged: sum.staged + one.staged,
            stages: together(sum.stages, &one.stages),
            model_ms: sum.model_ms + one.model_ms,
            reference_ms: sum.reference_ms + one.reference_ms,
            build_ms: sum.build_ms + one.build_ms,
            check_ms: sum.check_ms + one.check_ms,
            time_ms: sum.time_ms + one.time_ms,
            profile_ms: sum.profile_ms + one.profile_ms,
            certify_ms: sum.certify_ms + one.certify_ms,
            examine_ms: sum.examine_ms + one.examine_ms,
            waiting_ms: sum.waiting_ms + one.waiting_ms,
            own_ms: sum.own_ms + one.own_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::lease::Held;

    #[test]
    fn the_time_that_a_run_lay_there_is_nobodys() {
        let line = |at_ms: i64, event: Event| Line { seq: at_ms as u64, at_ms, event };
        let hash = kernelbench::Hash::of(b"a");
        let named = Event::Named { name: "a".into(), checkpoint: hash.clone() };
        let restored = Event::Restored { branch: "main".into(), checkpoint: hash.clone(), drops: false };
        let restored_again = restored.clone();
        let lease = Lease {
            device: "cpu".into(),
            from_us: 5_000_000,
            checked_us: None,
            until_us: 5_500_000,
            held: None,
            signed_by: None,
            moved_from: None,
        };
        let spent = Event::Spent { work: Work::Examine, build_ms: Some(30), lease: Some(lease), stages: vec![] };
        let began = || Event::Began { round: 1, step: agents::event::Step::Baseline };
        let order = |by_hand| {
            Event::Ordered(agents::workflow::Order {
                transformation: "a".into(),
                definition: hash.clone(),
                imports: vec![],
                from: hash.clone(),
                tries: 1,
                say: None,
                by_hand,
                tuning: agents::workflow::TuningPlan::default(),
                trial: false,
            })
        };
        let lines = [
            line(0, began()),
            line(5, Event::Ended { end: agents::event::End::Stuck }),
            line(1_000, Event::Extended { rounds: Some(2) }),
            line(1_003, began()),
            line(2_000, Event::BrokeOff { why: "killed".into() }),
            line(9_000, named),
            line(20_000, restored),
            line(30_000, order(true)),
            line(30_002, began()),
            line(40_000, restored_again),
            line(50_000, order(false)),
            line(50_004, began()),
            line(50_005, Event::BrokeOff { why: "killed".into() }),
            line(90_000, spent),
        ];
        let spent = Spent::of(&lines);
        assert_eq!(spent.wall_ms, 5 + 3 + 997 + 2 + 4 + 1 + 30 + 500);
        assert_eq!((spent.waiting_ms, spent.device_ms, spent.build_ms), (0, 500, 30));
    }

    #[test]
    fn what_is_neither_building_nor_the_lease_was_waiting() {
        let mut spent = Spent::default();
        let mut lease = Lease {
            device: "cpu".into(),
            from_us: 5_000_000,
            checked_us: Some(5_300_000),
            until_us: 6_000_000,
            held: None,
            signed_by: None,
            moved_from: None,
        };
        spent.work(Work::Examine, 3000, 1500, (Some(&lease), &[]));
        let parts = (spent.build_ms, spent.check_ms, spent.time_ms, spent.waiting_ms, spent.device_ms);
        assert_eq!(parts, (1500, 300, 700, 500, 1000), "a record without stages");
        spent.work(Work::Examine, 40, 40, (None, &[]));
        assert_eq!((spent.build_ms, spent.waiting_ms), (1540, 500), "a build that failed held no device");

        let (mut spent, mut stages) = (Spent::default(), vec![]);
        lease.held = Some(Held { exclusive_us: 400_000, shared_us: 200_000 });
        for (stage, held, from_us, us) in [
            (Stage::Check, Some(Hold::Shared), 5_000_000, 200_000),
            (Stage::Lease, None, 5_200_000, 400_000),
            (Stage::Time, Some(Hold::Exclusive), 5_600_000, 400_000),
        ] {
            stages.push(Stretch { stage, held, from_us, us });
        }
        spent.work(Work::Examine, 3000, 1500, (Some(&lease), &stages));
        let parts = (spent.build_ms, spent.check_ms, spent.time_ms, spent.waiting_ms, spent.device_ms);
        assert_eq!(
            (parts, spent.exclusive_ms),
            ((1500, 200, 400, 900, 600), 400),
            "between check and timing it waited"
        );
    }
}
