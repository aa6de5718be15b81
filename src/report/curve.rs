//! How does what was found grow with the rounds (CudaForge, Figure 3)? Positions and a table: the template draws.

use super::chart::{Tick, round1, step};
use crate::scores::TaskScore;
use metrics::scores::{Measure, Outcome};
use serde::Serialize;
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// The best of each task after so many candidates, summed up over the tasks.
#[derive(Serialize)]
pub(super) struct Curve {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    bottom: f64,
    ticks: Vec<Tick>,
    rounds: Vec<Tick>,
    mean: String,
    median: String,
    /// The points of the mean.
    points: Vec<[f64; 2]>,
    one: f64,
    table: Vec<Row>,
}

/// After so many candidates of each task.
#[derive(Serialize)]
struct Row {
    round: usize,
    correct: String,
    fast: String,
    mean: String,
    median: String,
}

impl Curve {
    /// `None` where no candidate was written.
    pub(super) fn of(tasks: &[TaskScore]) -> Option<Self> {
        let last = tasks.iter().map(|task| task.by_round.len()).max().filter(|last| *last > 0)?;
        let after: Vec<Vec<Outcome>> = (0..last).map(|round| after(tasks, round)).collect();
        let all =
            |measure: Measure| after.iter().map(|outcomes| measure.of(outcomes).unwrap_or(0.0)).collect::<Vec<f64>>();
        let (mean, median) = (all(Measure::Mean), all(Measure::Median));
        let top = mean.iter().chain(&median).copied().fold(1.2, f64::max) * 1.08;
        let y = |value: f64| round1(HEIGHT - BOTTOM - (value / top).clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP));
        let x = |at: usize| round1(LEFT + (WIDTH - LEFT - RIGHT) * (at as f64 + 0.5) / last as f64);
        let every = last.div_ceil(20);
        let grid = step(top, 6.0);
        let digits = usize::from(grid < 1.0);
        let value = |n: u32| f64::from(n) * grid;
        Some(Self {
            width: WIDTH,
            height: HEIGHT,
            left: LEFT,
            right: WIDTH - RIGHT,
            bottom: HEIGHT - BOTTOM,
            ticks: (0..=(top / grid) as u32)
                .map(|n| Tick { at: y(value(n)), label: format!("{:.digits$}×", value(n)) })
                .collect(),
            rounds: (0..last).step_by(every).map(|at| Tick { at: x(at), label: (at + 1).to_string() }).collect(),
            points: mean.iter().enumerate().map(|(at, value)| [x(at), y(*value)]).collect(),
            mean: path(&mean, x, y),
            median: path(&median, x, y),
            one: y(1.0),
            table: (0..last).map(|at| row(at + 1, &after[at])).collect(),
        })
    }
}

/// The best of each task after this round, or after its last if that came earlier.
fn after(tasks: &[TaskScore], round: usize) -> Vec<Outcome> {
    let best = |task: &TaskScore| task.by_round.get(round).or(task.by_round.last()).copied().flatten();
    tasks.iter().map(best).collect()
}

fn row(round: usize, outcomes: &[Outcome]) -> Row {
    let value = |measure: Measure| measure.of(outcomes).map_or_else(|| "-".into(), |value| format!("{value:.3}"));
    Row {
        round,
        correct: value(Measure::Correct),
        fast: value(Measure::Fast(1.0)),
        mean: value(Measure::Mean),
        median: value(Measure::Median),
    }
}

fn path(values: &[f64], x: impl Fn(usize) -> f64, y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    for (at, value) in values.iter().enumerate() {
        let _ = write!(path, "{}{} {}", if at == 0 { "M" } else { "L" }, x(at), y(*value));
    }
    path
}
