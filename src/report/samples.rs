//! How do the samples of the reference and of a candidate lie? Positions only: the template draws.

use super::chart::{Tick, round1, step};
use crate::quantity;
use kernelbench::{CaseTiming, Timed};
use metrics::{Statistic, Timing};
use serde::Serialize;
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 104.0;
const RIGHT: f64 = 16.0;
/// The axis ends where this share of the samples does, and at most at so many medians: slower samples are counted, not drawn.
const LAST: (f64, f64) = (0.98, 4.0);

/// The samples of one case.
#[derive(Serialize)]
pub(super) struct SamplesChart {
    case: String,
    speedup: String,
    claim: &'static str,
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    ticks: Vec<Tick>,
    rows: Vec<Row>,
    /// Where the machine's floor is, and what it is.
    floor: Option<Tick>,
}

/// One strip with its box.
#[derive(Serialize)]
struct Row {
    label: String,
    y: f64,
    /// Every sample in sight, as one path of short strokes.
    strokes: String,
    /// The first quartile, the median and the third quartile.
    quartiles: [f64; 3],
    /// The statistic that the ratio is of.
    typical: String,
    samples: usize,
    /// Samples slower than the axis goes, and the slowest.
    beyond: Option<String>,
}

/// One chart for each timed case.
pub(super) fn charts(timed: &Timed) -> Vec<SamplesChart> {
    let over = timed.against.as_deref().unwrap_or("reference");
    timed.cases.iter().map(|case| chart(case, over, timed.statistic)).collect()
}

fn chart(case: &CaseTiming, over: &str, statistic: Statistic) -> SamplesChart {
    let last = |timing: &Timing| timing.quantile_ns(LAST.0).min(timing.quantile_ns(0.5) * LAST.1);
    let end = [&case.reference, &case.candidate].map(last).into_iter().fold(0.0, f64::max);
    let end = if end > 0.0 { end * 1.04 } else { 1.0 };
    let x = |ns: f64| round1(LEFT + (WIDTH - LEFT - RIGHT) * (ns / end).clamp(0.0, 1.0));
    let strip = |label: &str, y, timing: &Timing| row(label, y, timing, statistic, end, &x);
    SamplesChart {
        case: case.case.clone(),
        speedup: quantity::speedup(&case.speedup),
        claim: quantity::claim(&case.speedup),
        width: WIDTH,
        height: 118.0,
        left: LEFT,
        right: WIDTH - RIGHT,
        ticks: ticks(end, &x),
        rows: vec![strip(over, 26.0, &case.reference), strip("candidate", 66.0, &case.candidate)],
        floor: case.floor_ns.filter(|ns| *ns < end).map(|ns| Tick { at: x(ns), label: quantity::time(ns) }),
    }
}

fn row(label: &str, y: f64, timing: &Timing, statistic: Statistic, end: f64, x: &impl Fn(f64) -> f64) -> Row {
    let samples = timing.samples_ns();
    let slowest = samples.iter().copied().fold(0.0, f64::max);
    let beyond = samples.iter().filter(|ns| **ns > end).count();
    Row {
        label: label.to_owned(),
        y,
        strokes: samples.iter().filter(|ns| **ns <= end).fold(String::new(), |mut path, ns| {
            let _ = write!(path, "M{} {}v14", x(*ns), y - 7.0);
            path
        }),
        quartiles: [0.25, 0.5, 0.75].map(|p| x(timing.quantile_ns(p))),
        typical: quantity::time(timing.typical_ns(statistic)),
        samples: samples.len(),
        beyond: (beyond > 0).then(|| format!("{beyond} beyond, up to {}", quantity::time(slowest))),
    }
}

fn ticks(end: f64, x: &impl Fn(f64) -> f64) -> Vec<Tick> {
    let step = step(end, 6.0);
    (0..=(end / step).floor() as u32)
        .map(|n| f64::from(n) * step)
        .map(|ns| Tick { at: x(ns), label: if ns > 0.0 { quantity::time(ns) } else { "0".into() } })
        .collect()
}
