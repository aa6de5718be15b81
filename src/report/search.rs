//! Where do the marks of a search's two charts stand: the best against the number of evaluations, and the tree?

use super::chart::round1;
use crate::progress;
use agents::{
    search::{Pace, Reached, Tree},
    trajectory::Trajectory,
};
use kernelbench::Task;
use serde::Serialize;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 940.0;
const BOTTOM: f64 = 215.0;
const TOP: f64 = 14.0;
/// Between two levels of the tree.
const LEVEL: f64 = 44.0;
/// Nodes that the tree shows; of a larger one, the path to the best and what was made first.
const SHOWN: usize = 120;

/// Both charts.
#[derive(Serialize)]
pub(super) struct SearchView {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    bottom: f64,
    unit: String,
    evaluations: usize,
    failed: usize,
    dropped: u32,
    ticks: Vec<(f64, String)>,
    curve: String,
    tree_height: f64,
    edges: Vec<Edge>,
    marks: Vec<Mark>,
    folded: usize,
}

/// From, to, and whether it is on the way to the best.
type Edge = (f64, f64, f64, f64, bool);

/// A node.
#[derive(Serialize)]
struct Mark {
    x: f64,
    y: f64,
    /// For the style sheet: passed, failed or certified.
    kind: &'static str,
    title: String,
    /// Nodes below it that are not shown.
    folded: usize,
}

impl SearchView {
    /// None where nothing was searched.
    pub(super) fn of(story: &Trajectory, task: Option<&Task>) -> Option<Self> {
        let tree = &story.tree;
        let pace = progress::pace(story, task?)?;
        let (_, best) = tree.best()?;
        let shown = shown(tree);
        let (edges, marks, tree_height) = laid_out(tree, &shown, &pace);
        let ticks = [0.25, 0.5, 0.75, 1.0].map(|part| (y(part), label(&pace, best * part)));
        Some(Self {
            width: WIDTH,
            height: HEIGHT,
            left: LEFT,
            right: RIGHT,
            bottom: BOTTOM,
            unit: unit(&pace).to_owned(),
            evaluations: tree.nodes().len(),
            failed: tree.nodes().iter().filter(|node| matches!(node.reached, Reached::Failed(_))).count(),
            dropped: tree.nodes().iter().map(|node| node.dropped).sum(),
            ticks: ticks.into(),
            curve: curve(tree, best),
            tree_height,
            edges,
            marks,
            folded: tree.nodes().len() - shown.len(),
        })
    }
}

fn unit(pace: &Pace) -> &'static str {
    match (pace.reference, pace.tera) {
        (None, _) => "times the reference",
        (Some(_), true) => "TFLOPS",
        (Some(_), false) => "GFLOPS",
    }
}

fn label(pace: &Pace, ratio: f64) -> String {
    pace.words(ratio).split_whitespace().next().unwrap_or_default().to_owned()
}

fn y(part: f64) -> f64 {
    round1(BOTTOM - (BOTTOM - TOP) * part)
}

/// A step line of the fastest so far, as a share of the fastest of all.
fn curve(tree: &Tree, best: f64) -> String {
    let many = (tree.nodes().len().max(2) - 1) as f64;
    let (mut path, mut fastest) = (String::new(), 0.0_f64);
    for (at, node) in tree.nodes().iter().enumerate() {
        fastest = fastest.max(node.rate().unwrap_or(0.0));
        let x = round1(LEFT + (RIGHT - LEFT) * at as f64 / many);
        let start = if at == 0 { format!("M{x} {}", y(fastest / best)) } else { format!("H{x}V{}", y(fastest / best)) };
        path.push_str(&start);
    }
    path
}

/// The nodes that are shown, parents before children: the path to the best, then what was made first.
fn shown(tree: &Tree) -> Vec<usize> {
    let mut shown = tree.best().map(|(at, _)| tree.path(at)).unwrap_or_default();
    for at in 0..tree.nodes().len() {
        if shown.len() >= SHOWN {
            break;
        }
        if !shown.contains(&at) {
            shown.push(at);
        }
    }
    shown.sort_unstable();
    shown
}

/// Leaves stand side by side, every other node above the middle of its children.
fn laid_out(tree: &Tree, shown: &[usize], pace: &Pace) -> (Vec<Edge>, Vec<Mark>, f64) {
    let nodes = tree.nodes();
    let children = |at: usize| nodes[at].children.iter().copied().filter(|child| shown.binary_search(child).is_ok());
    let mut places = vec![0.0; nodes.len()];
    let leaves: Vec<usize> = in_order(tree, shown).into_iter().filter(|at| children(*at).next().is_none()).collect();
    let apart = (RIGHT - 40.0) / leaves.len().max(1) as f64;
    for (nth, leaf) in leaves.iter().enumerate() {
        places[*leaf] = 30.0 + apart * (nth as f64 + 0.5);
    }
    for at in shown.iter().rev() {
        let (sum, count) = children(*at).fold((0.0, 0.0), |(sum, count), child| (sum + places[child], count + 1.0));
        if count > 0.0 {
            places[*at] = sum / count;
        }
    }
    let level = |at: usize| 20.0 + LEVEL * (tree.path(at).len() - 1) as f64;
    let best = tree.best().map(|(at, _)| tree.path(at)).unwrap_or_default();
    let (mut edges, mut marks, mut deepest) = (vec![], vec![], 0.0_f64);
    for at in shown.iter().copied() {
        let (x, y) = (round1(places[at]), level(at));
        deepest = deepest.max(y);
        if let Some(parent) = nodes[at].parent {
            edges.push((round1(places[parent]), level(parent), x, y, best.contains(&at)));
        }
        marks.push(mark(tree, at, (x, y), best.last() == Some(&at), pace, shown));
    }
    (edges, marks, deepest + 36.0)
}

fn in_order(tree: &Tree, shown: &[usize]) -> Vec<usize> {
    let (mut order, mut open) = (vec![], vec![0]);
    while let Some(at) = open.pop() {
        order.push(at);
        open.extend(tree.nodes()[at].children.iter().rev().filter(|child| shown.binary_search(child).is_ok()));
    }
    order
}

fn mark(tree: &Tree, at: usize, (x, y): (f64, f64), best: bool, pace: &Pace, shown: &[usize]) -> Mark {
    let node = &tree.nodes()[at];
    let action = node.action.as_ref().map_or("first values".to_owned(), ToString::to_string);
    let (kind, came) = match &node.reached {
        Reached::Rate(rate) => (if best { "certified" } else { "passed" }, pace.words(*rate)),
        Reached::Failed(why) => ("failed", format!("failed: {why}")),
        Reached::InFlight => ("passed", "in flight".to_owned()),
    };
    let hidden = node.children.iter().filter(|child| shown.binary_search(child).is_err());
    let folded = hidden.map(|child| tree.nodes()[*child].visits as usize).sum();
    Mark { x, y, kind, title: format!("node {at}: {action}: {came}"), folded }
}
