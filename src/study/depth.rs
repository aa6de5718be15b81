//! What does a search find by the number of configurations that it may test (PEAK §5.3)?

use crate::scores::text::columns;
use agents::{
    trajectory::{Round, Trajectory},
    workflow::{Fate, Order, TUNE},
};
use kernelbench::{Evaluation, Tuner};
use metrics::{geometric_mean, quantity};
use serde::Serialize;

/// What one search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// How many configurations it timed.
    pub timed: usize,
    /// The time of its best, in nanoseconds: the geometric mean over the timed cases.
    pub ns: f64,
    /// How many times as fast as the reference that is, measured in pairs.
    pub speedup: f64,
}

/// The searches with one limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Depth {
    /// How many configurations each might test.
    pub tests: usize,
    /// How they were chosen.
    pub tuner: Option<Tuner>,
    /// What each found.
    pub found: Vec<Found>,
    /// The least time of their bests, in nanoseconds; none where no search found anything.
    pub min_ns: Option<f64>,
    /// The mean.
    pub mean_ns: Option<f64>,
    /// The greatest.
    pub max_ns: Option<f64>,
}

impl Depth {
    /// The searches of a record that were drawn by a seed of their own and had this limit.
    #[must_use]
    pub fn of(story: &Trajectory, tests: usize, tuner: Tuner) -> Self {
        let orders = story.workflow.orders.iter().enumerate();
        let own = orders.filter(|(_, one)| one.fate != Fate::Dropped && Self::holds(&one.order, tests, tuner));
        let found: Vec<Found> =
            own.filter_map(|(nth, _)| found(story.workflow.rounds_of(nth, &story.rounds).last()?)).collect();
        let edge = |of: fn(f64, f64) -> f64| found.iter().map(|found| found.ns).reduce(of);
        let (min_ns, max_ns) = (edge(f64::min), edge(f64::max));
        let mean_ns = edge(|a, b| a + b).map(|sum| sum / found.len() as f64);
        Self { tests, tuner: Some(tuner), found, min_ns, mean_ns, max_ns }
    }

    /// Whether an order is such a search.
    #[must_use]
    pub fn holds(order: &Order, tests: usize, tuner: Tuner) -> bool {
        let plan = &order.tuning;
        order.transformation == TUNE && plan.seed.is_some() && (plan.tests, plan.tuner) == (Some(tests), Some(tuner))
    }

    /// As text for a terminal.
    #[must_use]
    pub fn text(depths: &[Self]) -> String {
        let head = ["tests", "searches", "timed", "min", "mean", "max", "speedups"].map(str::to_owned).to_vec();
        let row = |depth: &Self| {
            let time = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), quantity::time);
            let speedups: Vec<f64> = depth.found.iter().map(|found| found.speedup).collect();
            let ends = speedups.iter().copied().reduce(f64::min).zip(speedups.iter().copied().reduce(f64::max));
            let told = |(low, high)| format!("{} to {}", quantity::times(low), quantity::times(high));
            vec![
                depth.tests.to_string(),
                depth.found.len().to_string(),
                depth.found.iter().map(|found| found.timed).max().unwrap_or(0).to_string(),
                time(depth.min_ns),
                time(depth.mean_ns),
                time(depth.max_ns),
                ends.map_or_else(|| "-".to_owned(), told),
            ]
        };
        columns(&[head].into_iter().chain(depths.iter().map(row)).collect::<Vec<_>>())
    }
}

fn found(round: &Round) -> Option<Found> {
    let best = round.evaluation.as_ref().and_then(Evaluation::passed)?;
    let times: Vec<f64> = best.cases.iter().map(|case| case.candidate.typical_ns(best.statistic)).collect();
    let ns = geometric_mean(times.into_iter());
    Some(Found { timed: round.tried.len(), ns, speedup: best.speedup.ratio })
}
