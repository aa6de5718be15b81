//! How did a kernel come about, turn by turn (Hawkeye, §4.3, D.2, E.1, E.3)?
//!
//! Four readings of a run's record, which ask no model and no GPU: the best so far against turns and tokens, whether the run
//! collapsed and what it paid behind its peak, what each accepted step brought and to which counter that is credited, and
//! which strategies the final kernels of several runs have in common.

use crate::progress::pace;
use agents::{
    head::Weighed,
    trajectory::{Round, Trajectory},
};
use kernelbench::Task;
use metrics::feature::Fired;
use serde::Serialize;
use std::collections::BTreeMap;

/// A best result up to this part of an expert's is a collapse (D.2).
const COLLAPSE: f64 = 0.1;
/// What a step is credited to whose feature did not fire, or that had none.
const TIME_ALONE: &str = "time alone";

/// A run's turns, and what they came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stacking {
    /// What speeds are told in: `TFLOPS`, `GFLOPS`, or `x` over the reference.
    pub unit: &'static str,
    /// Each turn.
    pub turns: Vec<Turn>,
    /// What the accepted steps brought, in order; together, the last head's speed.
    pub credits: Vec<Credit>,
    /// Tokens of the whole run.
    pub tokens: u64,
    /// Those of turns behind the one with the best result.
    pub after_the_peak: u64,
}

/// A turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turn {
    /// Its number.
    pub number: u32,
    /// Tokens up to its end.
    pub tokens: u64,
    /// The speed of its candidate, if that was right.
    pub speed: Option<f64>,
    /// The best so far.
    pub best: Option<f64>,
}

/// What an accepted step brought.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Credit {
    /// In which turn.
    pub turn: u32,
    /// The feature that was meant, if one was.
    pub feature: Option<String>,
    /// The counter that it is credited to: the feature's, where that fired.
    pub counter: String,
    /// The speed over that of the head before; the first head counts from nothing.
    pub delta: f64,
}

impl Stacking {
    /// Of a run's record.
    #[must_use]
    pub fn of(story: &Trajectory, task: Option<&Task>) -> Self {
        let pace = task.and_then(|task| pace(story, task));
        let scale = |ratio: f64| match pace.and_then(|pace| Some((pace.rate(ratio)?, pace.tera))) {
            Some((rate, tera)) => rate / if tera { 1e12 } else { 1e9 },
            None => ratio,
        };
        let unit = match pace.filter(|pace| pace.reference.is_some()) {
            Some(pace) if pace.tera => "TFLOPS",
            Some(_) => "GFLOPS",
            None => "x",
        };
        let turns = turns(story, &scale);
        let tokens = turns.last().map_or(0, |turn| turn.tokens);
        let peak =
            turns.iter().find(|turn| turn.best.is_some() && turn.best == turns.last().and_then(|last| last.best));
        let after_the_peak = peak.map_or(0, |peak| tokens - peak.tokens);
        Self { unit, credits: credits(story, &scale), turns, tokens, after_the_peak }
    }

    /// The best speed.
    #[must_use]
    pub fn best(&self) -> Option<f64> {
        self.turns.last().and_then(|turn| turn.best)
    }

    /// Whether it came to no more than a tenth of an expert's speed, in the same unit.
    #[must_use]
    pub fn collapsed(&self, expert: f64) -> bool {
        self.best().is_none_or(|best| best <= COLLAPSE * expert)
    }

    /// Tokens for each unit of the best speed; none where nothing was right.
    #[must_use]
    pub fn tokens_per_unit(&self) -> Option<f64> {
        self.best().filter(|best| *best > 0.0).map(|best| self.tokens as f64 / best)
    }
}

fn turns(story: &Trajectory, scale: &impl Fn(f64) -> f64) -> Vec<Turn> {
    let (mut tokens, mut best) = (0, None::<f64>);
    let turn = |round: &Round| {
        let used = round
            .answers
            .iter()
            .filter_map(|answer| answer.usage)
            .map(|usage| usage.input_tokens + usage.output_tokens);
        tokens += used.sum::<u64>();
        let passed = round.evaluation.as_ref().and_then(|evaluation| evaluation.passed());
        let speed = passed.map(|timed| scale(timed.speedup.ratio));
        best = [best, speed].into_iter().flatten().reduce(f64::max);
        Turn { number: round.number, tokens, speed, best }
    };
    story.finished().map(turn).collect()
}

fn credits(story: &Trajectory, scale: &impl Fn(f64) -> f64) -> Vec<Credit> {
    let mut before = 0.0;
    let accepted = story.finished().filter_map(|round| Some((round, round.weighed.as_ref()?)));
    let credit = |(round, weighed): (&Round, &Weighed)| {
        let speed = scale(round.evaluation.as_ref()?.passed()?.speedup.ratio);
        let delta = speed - before;
        before = speed;
        let fired = weighed.shown.first().filter(|shown| shown.proof.fired == Fired::Yes);
        let counter = fired.and_then(|shown| shown.proof.target()).map(|target| target.sign.clone());
        let feature = weighed.shown.first().map(|shown| shown.feature.clone());
        Some(Credit { turn: round.number, feature, counter: counter.unwrap_or_else(|| TIME_ALONE.to_owned()), delta })
    };
    accepted.filter(|(_, weighed)| weighed.accepted).filter_map(credit).collect()
}

/// How many of these kernels have both of two rows: each row with itself counts those that have it.
#[must_use]
pub fn together(kernels: &[Vec<u8>]) -> BTreeMap<(u8, u8), usize> {
    let mut counts = BTreeMap::new();
    for rows in kernels {
        for one in rows {
            for other in rows {
                *counts.entry((*one, *other)).or_insert(0) += 1;
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests;
