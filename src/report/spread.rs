//! How do the speedups of many tasks lie? Positions only: the template draws.

use super::chart::{Tick, round1};
use crate::{quantity, scores::TaskScore};
use metrics::{Claim, Speedup};
use serde::Serialize;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// Every task's speedup, certified or, where it has not ended, as measured in a round, with its interval, from the slowest to the fastest, failures first.
#[derive(Serialize)]
pub(super) struct Spread {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    bottom: f64,
    ticks: Vec<Tick>,
    /// Where the reference's own speed is.
    one: f64,
    marks: Vec<Dot>,
    failed: usize,
    /// Tasks that have not ended and are shown by the best of their rounds.
    open: usize,
}

#[derive(Serialize)]
struct Dot {
    x: f64,
    /// For the style sheet: faster, slower, same, hollow or failed.
    kind: &'static str,
    /// The ratio and the ends of its interval; none for a failure.
    y: Option<[f64; 3]>,
    title: String,
}

impl Spread {
    /// `None` where no task has a right candidate that counts.
    pub(super) fn of(tasks: &[TaskScore]) -> Option<Self> {
        let mut tasks: Vec<&TaskScore> = tasks.iter().collect();
        tasks.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let axis = Axis::over(tasks.iter().filter_map(|task| task.so_far()))?;
        let x = |at: usize| round1(LEFT + (WIDTH - LEFT - RIGHT) * (at as f64 + 0.5) / tasks.len() as f64);
        Some(Self {
            width: WIDTH,
            height: HEIGHT,
            left: LEFT,
            right: WIDTH - RIGHT,
            bottom: HEIGHT - BOTTOM,
            ticks: axis.ticks(),
            one: axis.y(1.0),
            marks: tasks.iter().enumerate().map(|(at, task)| dot(task, x(at), &axis)).collect(),
            failed: tasks.iter().filter(|task| task.so_far().is_none()).count(),
            open: tasks.iter().filter(|task| is_open(task)).count(),
        })
    }
}

/// Whether what counts of it so far is not certified.
fn is_open(task: &TaskScore) -> bool {
    task.speedup.is_none() && task.so_far().is_some()
}

fn ratio(task: &TaskScore) -> f64 {
    task.so_far().map_or(0.0, |speedup| speedup.ratio)
}

fn dot(task: &TaskScore, x: f64, axis: &Axis) -> Dot {
    let Some(speedup) = &task.so_far() else {
        return Dot {
            x,
            kind: "failed",
            y: None,
            title: format!("{}: {}", task.task, crate::scores::text::outcome(task)),
        };
    };
    let kind = match speedup.claim() {
        Claim::Faster => "certified",
        Claim::Slower => "slower",
        Claim::NoDifference => "same",
    };
    let ends = [speedup.ratio, speedup.interval.low, speedup.interval.high].map(|value| axis.y(value));
    let kind = if is_open(task) { "hollow" } else { kind };
    Dot { x, kind, y: Some(ends), title: format!("{}: {}", task.task, quantity::speedup(speedup)) }
}

/// A logarithmic axis to base 2: twice as fast lies as far above 1 as half as fast below.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn over(speedups: impl Iterator<Item = Speedup>) -> Option<Self> {
        let ratios: Vec<f64> = speedups.map(|speedup| speedup.ratio.log2()).filter(|log| log.is_finite()).collect();
        if ratios.is_empty() {
            return None;
        }
        let edge = |of: fn(f64, f64) -> f64, from: f64| ratios.iter().copied().fold(from, of);
        Some(Self { low: edge(f64::min, -1.0).floor(), high: edge(f64::max, 1.0).ceil() })
    }

    /// What lies beyond the axis is drawn at its edge.
    fn y(&self, value: f64) -> f64 {
        let share = ((value.max(f64::MIN_POSITIVE).log2() - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        round1(HEIGHT - BOTTOM - 18.0 - share * (HEIGHT - BOTTOM - 18.0 - TOP))
    }

    fn ticks(&self) -> Vec<Tick> {
        let every = (((self.high - self.low) / 8.0).ceil() as i64).max(1);
        let powers = (self.low as i64..=self.high as i64).filter(|power| power % every == 0);
        powers
            .map(|power| Tick { at: self.y(2f64.powi(power as i32)), label: format!("{}×", 2f64.powi(power as i32)) })
            .collect()
    }
}
