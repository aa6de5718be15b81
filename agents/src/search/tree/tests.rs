//! Does a tree count and choose as a hand computes?

use super::*;
use crate::search::Mode;

fn search() -> Search {
    Search {
        mode: Mode::Naive,
        evaluations: Some(6),
        open_nodes: None,
        children: None,
        candidates: None,
        exploration: None,
        primitives: None,
        repairs: None,
        seed: None,
        operator: None,
    }
}

fn point(n: i64) -> Point {
    Point { bindings: [("N".to_owned(), kernelbench::Parameter::Number(n))].into(), ..Point::default() }
}

fn actions(names: &[&str]) -> Vec<Action> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// A node that is made by an action, and ends at once.
fn grow(tree: &mut Tree, parent: Option<usize>, action: &str, rate: Option<f64>, offer: &[&str]) -> usize {
    let at = tree.nodes().len();
    tree.expanded(parent, action.parse().ok(), point(i64::try_from(at).unwrap()), None);
    tree.simulated(at, rate.map_or(Reached::Failed("wrong".into()), Reached::Rate));
    if rate.is_some() {
        tree.offered(at, actions(offer), 0);
    }
    at
}

/// The root at 10, and below it 20, a failure, and 12; below the first 30.
fn tree() -> Tree {
    let mut tree = Tree::default();
    grow(&mut tree, None, "", Some(10.0), &["N+1", "N+2", "N+3"]);
    grow(&mut tree, Some(0), "N+1", Some(20.0), &["N+4"]);
    grow(&mut tree, Some(0), "N+2", None, &[]);
    grow(&mut tree, Some(0), "N+3", Some(12.0), &["N+5"]);
    grow(&mut tree, Some(1), "N+4", Some(30.0), &["N+6"]);
    tree
}

#[test]
fn ucb_is_what_a_hand_computes() {
    let tree = tree();
    // Between 10 and 30: 20 is 0.5, 30 is 1, 12 is 0.1, what failed is 0.
    assert!((tree.value(1) - 0.75).abs() < 1e-12, "{}", tree.value(1));
    assert!((tree.value(3) - 0.1).abs() < 1e-12);
    assert!((tree.value(0) - (0.0 + 0.5 + 0.0 + 0.1 + 1.0) / 5.0).abs() < 1e-12);
    // Five visits of the root: sqrt(2) * sqrt(ln 5 / 2) = 1.268636, and sqrt(2) * sqrt(ln 5 / 1) = 1.794123.
    let c = std::f64::consts::SQRT_2;
    assert!((tree.ucb(1, c) - 2.018_636).abs() < 1e-6, "{}", tree.ucb(1, c));
    assert!((tree.ucb(3, c) - 1.894_123).abs() < 1e-6, "{}", tree.ucb(3, c));
    assert!((tree.ucb(2, c) - 1.794_123).abs() < 1e-6);
    // The root has no action left: the larger is entered, and its child is where an action is open.
    assert_eq!(tree.select(&search()), Some(4));
}

#[test]
fn counts_after_five_iterations_are_exact() {
    let tree = tree();
    let counts: Vec<(u32, u32, u32, f64)> =
        tree.nodes().iter().map(|node| (node.visits, node.ended, node.right, node.total)).collect();
    assert_eq!(counts, [(5, 5, 4, 72.0), (2, 2, 2, 50.0), (1, 1, 0, 0.0), (1, 1, 1, 12.0), (1, 1, 1, 30.0)]);
    assert_eq!((tree.best(), tree.path(4)), (Some((4, 30.0)), vec![0, 1, 4]));
}

#[test]
fn a_node_with_untried_actions_and_few_children_is_expanded_and_one_that_failed_is_not_entered() {
    let mut tree = Tree::default();
    grow(&mut tree, None, "", Some(10.0), &["N+1", "N+2", "N+3", "N+4", "N+5"]);
    for (action, rate) in [("N+1", None), ("N+2", Some(11.0)), ("N+3", None), ("N+4", None)] {
        assert_eq!(tree.select(&search()), Some(0));
        grow(&mut tree, Some(0), action, rate, &["N+9"]);
    }
    assert_eq!(tree.untried(0), [&actions(&["N+5"])[0]]);
    assert_eq!(tree.select(&search()), Some(2), "four children are enough, and only one of them is right");
    let more = Search { children: Some(5), ..search() };
    assert_eq!(tree.select(&more), Some(0));
    grow(&mut tree, Some(2), "N+9", None, &[]);
    assert_eq!(tree.select(&search()), None, "nothing is left below");
    assert_eq!(tree.next(&Search { evaluations: Some(9), ..search() }), Next::Exhausted);
    assert_eq!(tree.next(&search()), Next::Spent);
}

#[test]
fn what_is_in_flight_counts_as_a_visit_above_it_and_is_not_entered() {
    let mut tree = tree();
    let before = tree.ucb(1, 1.0);
    tree.expanded(Some(4), actions(&["N+6"]).pop(), point(6), None);
    let counts: Vec<u32> = [0, 1, 4, 5].map(|at: usize| tree.nodes()[at].visits).into();
    assert_eq!(counts, [6, 3, 2, 1]);
    assert!(tree.ucb(1, 1.0) < before && (tree.value(1) - 0.75).abs() < 1e-12);
    let two = Search { open_nodes: Some(2), evaluations: Some(9), ..search() };
    assert_eq!(tree.next(&two), Next::Expand(3), "the other branch, for this one is busy");
    assert_eq!(tree.next(&Search { evaluations: Some(9), ..search() }), Next::Await(5));
    tree.simulated(5, Reached::Rate(40.0));
    assert_eq!(tree.next(&two), Next::Offer(5));
    assert!((tree.value(3) - 2.0 / 30.0).abs() < 1e-12, "values are scaled anew between 10 and 40");
}

#[test]
fn the_first_thing_is_the_root_and_a_point_is_known_once() {
    let mut tree = Tree::default();
    assert_eq!(tree.next(&search()), Next::Root);
    tree.expanded(None, None, point(0), None);
    assert_eq!(tree.next(&search()), Next::Await(0));
    assert!(tree.knows(&point(0)) && !tree.knows(&point(1)));
    tree.simulated(0, Reached::Failed("it crashed".into()));
    assert_eq!(tree.next(&search()), Next::Exhausted, "a root that fails has nothing below it");
}
