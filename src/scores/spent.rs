//! What did a task take: calls, tokens, dollars, time?

use agents::{
    event::{Event, Line},
    llm::Usage,
};
use serde::Serialize;
use std::iter::Sum;

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
    /// From the first event to the last, without the time in which the run was broken off.
    pub wall_ms: u64,
    /// Waiting for models.
    pub model_ms: u64,
    /// Building, checking and timing references.
    pub reference_ms: u64,
    /// Building, checking and timing candidates, waiting for the machine included.
    pub examine_ms: u64,
    /// Profiling.
    pub profile_ms: u64,
    /// Examining the best anew.
    pub certify_ms: u64,
    /// All else: the program itself.
    pub own_ms: u64,
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

    /// Each kind of work with its time, as tables list them.
    #[must_use]
    pub fn times(&self) -> [(&'static str, u64); 6] {
        [
            ("model", self.model_ms),
            ("reference: build, check, time", self.reference_ms),
            ("candidates: build, check, time", self.examine_ms),
            ("profile", self.profile_ms),
            ("certificate", self.certify_ms),
            ("the program itself", self.own_ms),
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
        let part = match (&before.event, &after.event) {
            (Event::BrokeOff { .. }, _) => return,
            (_, Event::Answered { .. }) | (Event::Asked { .. }, _) => &mut self.model_ms,
            (_, Event::Prepared { .. }) => &mut self.reference_ms,
            (_, Event::Evaluated { .. }) => &mut self.examine_ms,
            (_, Event::Profiled { .. }) => &mut self.profile_ms,
            (_, Event::Certified { .. }) => &mut self.certify_ms,
            _ => &mut self.own_ms,
        };
        *part += ms;
        self.wall_ms += ms;
    }
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
            model_ms: sum.model_ms + one.model_ms,
            reference_ms: sum.reference_ms + one.reference_ms,
            examine_ms: sum.examine_ms + one.examine_ms,
            profile_ms: sum.profile_ms + one.profile_ms,
            certify_ms: sum.certify_ms + one.certify_ms,
            own_ms: sum.own_ms + one.own_ms,
        })
    }
}
