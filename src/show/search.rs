//! How does a search read in a terminal?

use agents::search::{Node, Pace, Reached, Tree};
use kernelbench::{in_words, plain};
use serde_json::{Value, json};

/// A line a node, below the node that it was made from, with the path to the fastest marked.
#[must_use]
pub fn text(tree: &Tree, pace: Option<&Pace>) -> String {
    let best: Vec<usize> = tree.best().map(|(at, _)| tree.path(at)).unwrap_or_default();
    let mut lines = vec![];
    let mut open = if tree.nodes().is_empty() { vec![] } else { vec![(0, 0)] };
    while let Some((at, depth)) = open.pop() {
        let Some(node) = tree.nodes().get(at) else { continue };
        let mark = if best.last() == Some(&at) { "  [best]" } else { "" };
        let sign = if best.contains(&at) { "*" } else { " " };
        let indent = "  ".repeat(depth);
        lines.push(plain(&format!(
            "{sign} {indent}{at}  {}  {}  visits {}{mark}",
            action(node),
            came(node, pace),
            node.visits
        )));
        open.extend(node.children.iter().rev().map(|child| (*child, depth + 1)));
    }
    if let Some((at, rate)) = tree.best() {
        let point = &tree.nodes()[at].point;
        let orders = if point.orders.is_empty() {
            String::new()
        } else {
            format!(", {} blocks in another order", point.orders.len())
        };
        lines.push(plain(&format!("best: node {at}, {}: {}{orders}", told(rate, pace), in_words(&point.bindings))));
    }
    lines.join("\n")
}

fn action(node: &Node) -> String {
    node.action.as_ref().map_or("first values".to_owned(), ToString::to_string)
}

fn told(rate: f64, pace: Option<&Pace>) -> String {
    pace.map_or_else(|| format!("{rate:.3}x of the reference"), |pace| pace.words(rate))
}

fn came(node: &Node, pace: Option<&Pace>) -> String {
    match &node.reached {
        Reached::Rate(rate) => told(*rate, pace),
        Reached::Failed(why) => format!("failed: {why}"),
        Reached::InFlight => "in flight".to_owned(),
    }
}

/// The nodes as data.
#[must_use]
pub fn as_json(tree: &Tree, pace: Option<&Pace>) -> Value {
    let node = |(at, node): (usize, &Node)| {
        let failed = if let Reached::Failed(why) = &node.reached { Some(why) } else { None };
        json!({
            "node": at, "parent": node.parent, "action": node.action, "point": node.point, "candidate": node.candidate,
            "speedup": node.rate(), "operations_per_second": node.rate().and_then(|rate| pace?.rate(rate)),
            "failed": failed, "visits": node.visits, "value": tree.value(at), "candidates": node.candidates,
            "dropped": node.dropped, "children": node.children,
        })
    };
    json!({
        "nodes": tree.nodes().iter().enumerate().map(node).collect::<Vec<_>>(),
        "best": tree.best().map(|(at, _)| at),
        "path": tree.best().map(|(at, _)| tree.path(at)),
    })
}
