//! Where do the marks of the speedup chart stand? Positions only: the template draws.

use crate::quantity;
use agents::trajectory::{Round, Trajectory};
use metrics::Speedup;
use serde::Serialize;
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// A tick of an axis.
#[derive(Serialize)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

/// Speedup by round.
#[derive(Serialize)]
pub(super) struct SpeedupChart {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    ticks: Vec<Tick>,
    /// Where the speed is that ratios are over, and whose it is.
    one: f64,
    over: String,
    marks: Vec<Mark>,
    /// Where the certificate is set apart from the rounds, because it is of other shapes; and of which.
    apart: Option<(f64, String)>,
    /// The best so far, as the path of a step line; empty where nothing passed.
    best: String,
}

/// One round, or the certificate.
#[derive(Serialize)]
struct Mark {
    x: f64,
    label: String,
    /// For the style sheet: passed, failed or certified.
    kind: &'static str,
    /// The ratio and the ends of its interval; none for a round that failed.
    y: Option<[f64; 3]>,
    /// In words.
    title: String,
}

impl SpeedupChart {
    /// `None` before the first round has ended, and where nothing is timed.
    pub(super) fn of(story: &Trajectory) -> Option<Self> {
        let rounds: Vec<&Round> = story.finished().collect();
        if rounds.is_empty() || story.counted().is_some() || story.compiled().is_some() {
            return None;
        }
        let certified = super::claim::certified(story).map(|timed| &timed.speedup);
        let slots = rounds.len() + usize::from(certified.is_some());
        let axis = Axis::over(rounds.iter().filter_map(|round| speedup(round)).chain(certified));
        let x = |slot: usize| round1(LEFT + (WIDTH - LEFT - RIGHT) * (slot as f64 + 0.5) / slots as f64);
        let mut marks: Vec<Mark> = rounds.iter().enumerate().map(|(slot, round)| mark(round, x(slot), &axis)).collect();
        let apart = super::apart(story).map(|words| (round1(f64::midpoint(x(slots - 1), x(slots - 2))), words));
        let end = apart.as_ref().map_or(WIDTH - RIGHT, |(at, _)| *at);
        let best = best_line(&rounds, &axis, x, end);
        marks.extend(certified.map(|speedup| Mark {
            x: x(slots - 1),
            label: "certified".into(),
            kind: "certified",
            y: Some(axis.bar(speedup)),
            title: format!("certified: {}", quantity::speedup(speedup)),
        }));
        Some(Self {
            width: WIDTH,
            height: HEIGHT,
            left: LEFT,
            right: WIDTH - RIGHT,
            top: TOP,
            bottom: HEIGHT - BOTTOM,
            ticks: axis.ticks(),
            one: axis.y(1.0),
            over: rounds.iter().find_map(|round| against(round)).unwrap_or("the reference").to_owned(),
            marks,
            apart,
            best,
        })
    }
}

fn speedup(round: &Round) -> Option<&Speedup> {
    Some(&round.evaluation.as_ref()?.passed()?.speedup)
}

/// The baseline that it was timed beside, where that was not the reference.
fn against(round: &Round) -> Option<&str> {
    round.evaluation.as_ref()?.passed()?.against.as_deref()
}

fn mark(round: &Round, x: f64, axis: &Axis) -> Mark {
    let passed = speedup(round);
    let title = match passed {
        Some(speedup) => format!("round {}: {}", round.number, quantity::speedup(speedup)),
        None => format!("round {}: failed", round.number),
    };
    let kind = if passed.is_some() { "passed" } else { "failed" };
    Mark { x, label: round.number.to_string(), kind, y: passed.map(|speedup| axis.bar(speedup)), title }
}

fn best_line(rounds: &[&Round], axis: &Axis, x: impl Fn(usize) -> f64, end: f64) -> String {
    let mut best = 0.0;
    let mut path = String::new();
    for (slot, round) in rounds.iter().enumerate() {
        if let Some(speedup) = speedup(round).filter(|speedup| speedup.ratio > best) {
            best = speedup.ratio;
            let (x, y) = (x(slot), axis.y(best));
            let _ = if path.is_empty() { write!(path, "M{x} {y}") } else { write!(path, "H{x}V{y}") };
        }
    }
    if !path.is_empty() {
        let _ = write!(path, "H{end}");
    }
    path
}

/// The vertical axis: from 0, so that heights compare.
struct Axis {
    top: f64,
    step: f64,
}

impl Axis {
    fn over<'a>(speedups: impl Iterator<Item = &'a Speedup>) -> Self {
        let highest = speedups.map(|speedup| speedup.interval.high.max(speedup.ratio)).fold(1.2, f64::max);
        Self { top: highest * 1.08, step: step(highest, 6.0) }
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value / self.top).clamp(0.0, 1.0);
        round1(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP))
    }

    fn bar(&self, speedup: &Speedup) -> [f64; 3] {
        [speedup.ratio, speedup.interval.low, speedup.interval.high].map(|value| self.y(value))
    }

    fn ticks(&self) -> Vec<Tick> {
        let digits = usize::from(self.step < 1.0);
        let count = (self.top / self.step).floor() as u32;
        (0..=count)
            .map(|n| f64::from(n) * self.step)
            .map(|value| Tick { at: self.y(value), label: format!("{value:.digits$}×") })
            .collect()
    }
}

/// The least of 1, 2, 5 times a power of ten that divides `span` into at most `parts`.
pub(super) fn step(span: f64, parts: f64) -> f64 {
    let least = span / parts;
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|step| *step >= least).unwrap_or(power * 10.0)
}

/// A tenth of a pixel is enough.
pub(super) fn round1(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
