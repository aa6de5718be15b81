//! What does a search cost beside building and timing: how long is one evaluation, and how long its lines in the log, at 5,000
//! nodes?
//!
//! `cargo bench --bench search` prints a line of JSON: milliseconds and bytes an evaluation over the last hundred of 5,000
//! nodes. The goals are under 5 ms and under 4 kB.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its numbers, and stops where one is missing"
)]

use agents::event::{Event, Line};
use agents::search::{Ground, Next, Point, Search};
use agents::trajectory::Trajectory;
use kernelbench::{Found, Parameter, Space};
use std::time::{Duration, Instant};

const NODES: usize = 5_000;
/// Of these the last are measured.
const MEASURED: usize = 100;

fn space() -> Space {
    let values: Vec<Parameter> = (1..=12).map(|n| Parameter::Number(8 * n)).collect();
    let grid = ["BM", "BN", "BK", "MR", "NR", "PREFETCH"].map(|name| (name.to_owned(), values.clone()));
    Space { grid: grid.into(), constraints: vec!["BM % 8 == 0".into(), "BN * BK <= 9216".into()] }
}

/// A landscape with a summit.
fn ratio(point: &Point) -> f64 {
    let number = |value: &Parameter| if let Parameter::Number(n) = value { *n as f64 } else { 0.0 };
    point.bindings.values().map(|value| 1.0 / (1.0 + (number(value) - 56.0).abs())).sum()
}

/// What the loop does for one evaluation but build and time: events, and what comes next by the tree.
fn evaluation(story: &mut Trajectory, search: &Search, space: &Space) -> Vec<Event> {
    let mut events = vec![];
    loop {
        let tree = &story.tree;
        let event = match tree.next(search) {
            Next::Root => {
                let bindings = space.grid.iter().map(|(name, values)| (name.clone(), values[0].clone())).collect();
                let point = Point { bindings, ..Point::default() };
                Event::Expanded { node: 0, parent: None, action: None, point, candidate: None }
            }
            Next::Expand(at) => {
                let node = tree.nodes()[at].point.clone();
                let ground = Ground { point: &node, space, printed: None };
                let action = tree.untried(at)[0].clone();
                let point = ground.after(&action).unwrap();
                let (node, parent) = (tree.nodes().len(), Some(at));
                let candidate = Some(kernelbench::Hash::of(format!("{point:?}").as_bytes()));
                Event::Expanded { node, parent, action: Some(action), point, candidate }
            }
            Next::Await(node) => {
                let made = &tree.nodes()[node];
                let found = Ok(Found::Ratio(ratio(&made.point)));
                Event::Simulated { node, candidate: made.candidate.clone(), found }
            }
            Next::Offer(at) => {
                let ground = Ground { point: &tree.nodes()[at].point, space, printed: None };
                Event::Offered { node: at, candidates: search.drawn(&ground, tree, at), dropped: 0 }
            }
            Next::Spent | Next::Exhausted => return events,
        };
        let last = matches!(event, Event::Offered { .. });
        story.apply(event.clone());
        events.push(event);
        if last {
            return events;
        }
    }
}

fn main() {
    let search = Search { evaluations: Some(NODES + 1), ..Search::default() };
    let (space, mut story, mut bytes, mut took) = (space(), Trajectory::default(), 0, Duration::ZERO);
    while story.tree.nodes().len() < NODES {
        let start = Instant::now();
        let events = evaluation(&mut story, &search, &space);
        let measured = story.tree.nodes().len() > NODES - MEASURED;
        if measured {
            took += start.elapsed();
            let line = |event| serde_json::to_string(&Line { seq: 0, at_ms: 0, event }).unwrap().len();
            bytes += events.into_iter().map(line).sum::<usize>();
        }
    }
    let each = took.as_secs_f64() * 1e3 / MEASURED as f64;
    println!("{{\"nodes\": {NODES}, \"ms_an_evaluation\": {each:.3}, \"bytes_an_evaluation\": {}}}", bytes / MEASURED);
}
