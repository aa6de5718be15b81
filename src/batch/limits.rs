//! Is a limit reached, and which?

use super::standing::Standing;
use crate::config::Limits;
use agents::{
    event::{End, Event},
    planner::Limit,
    trajectory::Trajectory,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// What was used up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Tokens of prompts and replies.
    pub tokens: u64,
    /// Dollars, of the answers whose price is known.
    pub usd: f64,
    /// Answers whose price is not known.
    pub unpriced: u64,
    /// How long devices were held, in microseconds.
    pub leased_us: u64,
}

impl Used {
    fn of(story: &Trajectory) -> Self {
        let mut used = Self { leased_us: story.leased_us, ..Self::default() };
        for answer in story.answers() {
            used.tokens += answer.usage.map_or(0, |usage| usage.input_tokens + usage.output_tokens);
            match answer.usd {
                Some(dollars) => used.usd += dollars,
                None => used.unpriced += 1,
            }
        }
        used
    }

    /// What these events say was used up.
    pub fn in_events<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut used = Self::default();
        events.into_iter().for_each(|event| used.add(&Self::in_event(event)));
        used
    }

    /// What one event says was used up.
    #[must_use]
    pub fn in_event(event: &Event) -> Self {
        match event {
            Event::Answered { usage, usd, .. } => Self {
                tokens: usage.map_or(0, |usage| usage.input_tokens + usage.output_tokens),
                usd: usd.unwrap_or(0.0),
                unpriced: u64::from(usd.is_none()),
                leased_us: 0,
            },
            Event::Spent { lease: Some(lease), .. } => Self { leased_us: lease.us(), ..Self::default() },
            _ => Self::default(),
        }
    }

    /// Adds what another used.
    pub fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.usd += other.usd;
        self.unpriced += other.unpriced;
        self.leased_us += other.leased_us;
    }
}

/// Adds up what a run uses, and holds it against its limits. Wall time counts from when the program was started.
#[derive(Debug)]
pub struct Meter {
    limits: Limits,
    began: Instant,
    used: Mutex<Used>,
}

impl Meter {
    /// With these limits, after what earlier work on the run used.
    #[must_use]
    pub fn new(limits: Limits, before: &[Standing]) -> Self {
        let mut used = Used::default();
        for standing in before {
            used.add(&standing.used);
        }
        Self { limits, began: Instant::now(), used: Mutex::new(used) }
    }

    /// Takes in what was used just now.
    pub fn add(&self, used: &Used) {
        self.lock().add(used);
    }

    /// What the whole run has used.
    #[must_use]
    pub fn used(&self) -> Used {
        *self.lock()
    }

    /// How long the program has been at it.
    #[must_use]
    pub fn elapsed(&self) -> std::time::Duration {
        self.began.elapsed()
    }

    /// The limit of the whole run that is reached, if one is.
    #[must_use]
    pub fn run_limit(&self) -> Option<End> {
        if self.limits.finish {
            return Some(End::Finished);
        }
        let (limits, used) = (&self.limits, self.used());
        first_reached([
            (End::Usd, limits.usd, used.usd),
            (End::Tokens, limits.tokens as f64, used.tokens as f64),
            (End::Seconds, limits.seconds, self.began.elapsed().as_secs_f64()),
            (End::GpuSeconds, limits.gpu_seconds, used.leased_us as f64 / 1e6),
        ])
    }

    /// Whether what has begun is to be ended, and nothing else begun.
    #[must_use]
    pub fn finishes(&self) -> bool {
        self.limits.finish
    }

    /// The limits of a task whose turn begins now.
    #[must_use]
    pub fn for_task(self: &Arc<Self>) -> Limit {
        let (meter, began) = (self.clone(), Instant::now());
        Arc::new(move |story| meter.task_limit(story, began).or_else(|| meter.run_limit()))
    }

    fn task_limit(&self, story: &Trajectory, began: Instant) -> Option<End> {
        let (limits, used) = (&self.limits, Used::of(story));
        first_reached([
            (End::TaskUsd, limits.task_usd, used.usd),
            (End::TaskTokens, limits.task_tokens as f64, used.tokens as f64),
            (End::TaskSeconds, limits.task_seconds, began.elapsed().as_secs_f64()),
            (End::TaskGpuSeconds, limits.task_gpu_seconds, used.leased_us as f64 / 1e6),
        ])
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first whose value is not below its limit; a limit of 0 is none.
fn first_reached(limits: [(End, f64, f64); 4]) -> Option<End> {
    limits.into_iter().find(|(_, limit, value)| *limit > 0.0 && value >= limit).map(|(end, ..)| end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_is_reached_is_named_and_none_is_no_limit() {
        let meter = |limits| Arc::new(Meter::new(limits, &[]));
        let used = Used { tokens: 100, usd: 1.0, unpriced: 0, leased_us: 2_000_000 };
        for (limits, end) in [
            (Limits::default(), None),
            (Limits { usd: 1.5, ..Limits::default() }, None),
            (Limits { usd: 1.0, ..Limits::default() }, Some(End::Usd)),
            (Limits { tokens: 99, ..Limits::default() }, Some(End::Tokens)),
            (Limits { gpu_seconds: 1.9, ..Limits::default() }, Some(End::GpuSeconds)),
        ] {
            let meter = meter(limits);
            meter.add(&used);
            assert_eq!(meter.run_limit(), end, "{limits:?}");
        }
        let task = Trajectory { leased_us: 2_000_000, ..Trajectory::default() };
        let limits = Limits { task_gpu_seconds: 2.0, ..Limits::default() };
        assert_eq!(meter(limits).for_task()(&task), Some(End::TaskGpuSeconds));
    }
}
