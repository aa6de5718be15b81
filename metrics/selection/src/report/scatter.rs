//! Where do the points of a scatter plot stand? Positions only: the template draws.

use metrics::quantity;
use serde::Serialize;

const WIDTH: f64 = 150.0;
const HEIGHT: f64 = 110.0;
const LEFT: f64 = 8.0;
const RIGHT: f64 = 142.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 90.0;

/// The values of one metric and the times of one task's kernels; time upwards.
#[derive(Serialize)]
pub(super) struct Panel {
    task: String,
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    low: String,
    high: String,
    r: String,
    points: Vec<Point>,
}

#[derive(Serialize)]
struct Point {
    x: f64,
    y: f64,
    title: String,
}

impl Panel {
    pub(super) fn of(task: &str, values: &[Option<f64>], times: &[f64], r: f64) -> Self {
        let pairs: Vec<(f64, f64)> =
            values.iter().zip(times).filter_map(|(value, time)| Some(((*value)?, *time))).collect();
        let (x, y) = (Axis::of(pairs.iter().map(|pair| pair.0)), Axis::of(pairs.iter().map(|pair| pair.1)));
        let point = |(value, time): &(f64, f64)| Point {
            x: tenth(LEFT + (RIGHT - LEFT) * x.share(*value)),
            y: tenth(BOTTOM - (BOTTOM - TOP) * y.share(*time)),
            title: format!("{}: {}", number(*value), quantity::time(*time)),
        };
        Self {
            task: task.to_owned(),
            width: WIDTH,
            height: HEIGHT,
            left: LEFT,
            right: RIGHT,
            top: TOP,
            bottom: BOTTOM,
            low: number(x.low),
            high: number(x.high),
            r: format!("{r:+.2}"),
            points: pairs.iter().map(point).collect(),
        }
    }
}

struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        Self { low, high }
    }

    fn share(&self, value: f64) -> f64 {
        if self.high > self.low { (value - self.low) / (self.high - self.low) } else { 0.5 }
    }
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// With three digits that count.
fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(0.001..1e5).contains(&size) {
        format!("{value:.2e}")
    } else {
        format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}
