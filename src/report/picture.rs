//! A run on one picture: a row for each round with its speedup, its interval, and what the Judge asked for.

use super::{ReportInput, chart::round1, chart::step, claim, round::fields};
use crate::quantity;
use agents::trajectory::{Round, Trajectory};
use metrics::Speedup;
use serde::Serialize;

const WIDTH: f64 = 960.0;
const TOP: f64 = 58.0;
const ROW: f64 = 40.0;
const BOTTOM: f64 = 44.0;
/// Where the axis begins and ends, and where words begin.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 384.0;
const WORDS: f64 = 404.0;
/// Characters of a line of words, and lines of a row.
const LINE: usize = 84;

/// All of it.
#[derive(Serialize)]
pub(super) struct Picture {
    width: f64,
    height: f64,
    bottom: f64,
    right: f64,
    words: f64,
    title: String,
    machine: String,
    ticks: Vec<(f64, String)>,
    /// Where the reference's own speed is.
    one: f64,
    rows: Vec<Row>,
}

/// A round, or the certificate.
#[derive(Serialize)]
struct Row {
    y: f64,
    label: String,
    /// For the style sheet: passed, failed or certified.
    kind: &'static str,
    /// The ratio and the ends of its interval.
    x: Option<[f64; 3]>,
    outcome: String,
    /// What the Judge asked for, in at most one line.
    said: String,
}

impl Picture {
    /// `None` before the first round has ended.
    pub(super) fn of(input: &ReportInput) -> Option<Self> {
        let story = input.trajectory;
        let rounds: Vec<&Round> = story.finished().collect();
        let certified = claim::certified(story).map(|timed| &timed.speedup);
        let all = rounds.iter().filter_map(|round| speedup(round)).chain(certified);
        let axis = Axis { top: all.map(|speedup| speedup.interval.high.max(speedup.ratio)).fold(1.2, f64::max) * 1.04 };
        let mut rows: Vec<Row> = rounds.iter().map(|round| row(round, &axis)).collect();
        rows.extend(certified.map(|speedup| certificate(story, speedup, &axis)));
        for (at, row) in rows.iter_mut().enumerate() {
            row.y = TOP + ROW * (at as f64 + 0.5);
        }
        let height = TOP + ROW * rows.len() as f64 + BOTTOM;
        let machine = story.machine.as_ref().map(|machine| format!("{}, {}", machine.name, machine.arch));
        (!rounds.is_empty()).then(|| Self {
            width: WIDTH,
            height,
            bottom: height - BOTTOM,
            right: RIGHT,
            words: WORDS,
            title: story.name.clone(),
            machine: machine.unwrap_or_default(),
            ticks: axis.ticks(),
            one: axis.x(1.0),
            rows,
        })
    }
}

fn speedup(round: &Round) -> Option<&Speedup> {
    Some(&round.evaluation.as_ref()?.passed()?.speedup)
}

fn row(round: &Round, axis: &Axis) -> Row {
    let passed = speedup(round);
    let asked = round.verdict.as_ref().map(fields).unwrap_or_default();
    let said = asked.iter().find(|(name, _)| ["Method", "What to change"].contains(name)).or(asked.first());
    Row {
        y: 0.0,
        label: round.number.to_string(),
        kind: if passed.is_some() { "passed" } else { "failed" },
        x: passed.map(|speedup| axis.bar(speedup)),
        outcome: passed.map_or_else(|| "failed".to_owned(), quantity::speedup),
        said: said.map_or_else(|| "the first candidate, before any advice".to_owned(), |(_, text)| shortened(text)),
    }
}

fn certificate(story: &Trajectory, speedup: &Speedup, axis: &Axis) -> Row {
    let candidate = story.certified().map(|certificate| certificate.candidate.short().to_owned()).unwrap_or_default();
    Row {
        y: 0.0,
        label: "certified".to_owned(),
        kind: "certified",
        x: Some(axis.bar(speedup)),
        outcome: quantity::speedup(speedup),
        said: match super::apart(story) {
            Some(_) => format!("{candidate}, rebuilt and measured anew, on other shapes than the rounds"),
            None => format!("{candidate}, rebuilt from its source and measured anew"),
        },
    }
}

/// At most a line, cut between words.
fn shortened(text: &str) -> String {
    if text.chars().count() <= LINE {
        return text.to_owned();
    }
    let cut: String = text.chars().take(LINE - 1).collect();
    format!("{} …", cut.rsplit_once(' ').map_or(cut.as_str(), |(words, _)| words))
}

/// The horizontal axis: from 0, so that lengths compare.
struct Axis {
    top: f64,
}

impl Axis {
    fn x(&self, value: f64) -> f64 {
        round1(LEFT + (value / self.top).clamp(0.0, 1.0) * (RIGHT - LEFT))
    }

    fn bar(&self, speedup: &Speedup) -> [f64; 3] {
        [speedup.ratio, speedup.interval.low, speedup.interval.high].map(|value| self.x(value))
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        let step = step(self.top, 6.0);
        let digits = usize::from(step < 1.0);
        let count = (self.top / step).floor() as u32;
        (0..=count).map(|n| f64::from(n) * step).map(|at| (self.x(at), format!("{at:.digits$}×"))).collect()
    }
}
