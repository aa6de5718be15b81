//! The tree of a search, and what comes next in it: a pure function of the tree (QiMeng-TensorOp §3.3).
//!
//! A node is a point of the operator's tuning. One iteration is selection by UCB1, expansion, one evaluation, and the way
//! back, which adds the rate and a visit to every node above.

use super::Search;
use super::action::{Action, Point};
use kernelbench::{CandidateId, Found};
use std::collections::BTreeSet;

/// What came of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Reached {
    /// It is being evaluated.
    InFlight,
    /// It is right, and so fast.
    Rate(f64),
    /// It failed, in words.
    Failed(String),
}

impl From<&Result<Found, String>> for Reached {
    fn from(found: &Result<Found, String>) -> Self {
        match found {
            Ok(Found::Ratio(ratio)) => Self::Rate(*ratio),
            Ok(Found::Failed(failure)) => Self::Failed(failure.to_string()),
            Ok(Found::Compiled(code)) => Self::Failed(code.to_string()),
            Ok(Found::Invalid) => Self::Failed("its values are no configuration".to_owned()),
            Err(why) => Self::Failed(format!("it could not be timed: {why}")),
        }
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The node that it was made from; none for the root.
    pub parent: Option<usize>,
    /// What led to it; none for the root.
    pub action: Option<Action>,
    /// Where it stands.
    pub point: Point,
    /// The candidate that it is; none where its script printed none.
    pub candidate: Option<CandidateId>,
    /// What came of it.
    pub reached: Reached,
    /// The actions to choose from at it; none before they were found.
    pub candidates: Option<Vec<Action>>,
    /// How many proposed actions were not legal.
    pub dropped: u32,
    /// Nodes that were made from it, in order.
    pub children: Vec<usize>,
    /// Evaluations in its subtree, itself and those in flight among them.
    pub visits: u32,
    /// Evaluations in its subtree that came to an end.
    pub ended: u32,
    /// Of these, those that were right.
    pub right: u32,
    /// The sum of their rates.
    pub total: f64,
}

/// The nodes, in the order in which they were made: the first is the root.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    nodes: Vec<Node>,
    points: BTreeSet<Point>,
    slowest: Option<f64>,
    fastest: Option<f64>,
}

/// What is to be done next in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make the root.
    Root,
    /// Find the actions to choose from at this node.
    Offer(usize),
    /// Choose one of this node's actions, and make a node by it.
    Expand(usize),
    /// Wait for this node, the first of those in flight.
    Await(usize),
    /// As many evaluations were made as the search may make.
    Spent,
    /// No node has an action left.
    Exhausted,
}

impl Tree {
    /// The nodes, in the order in which they were made.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The nodes that are being evaluated, in order.
    pub fn in_flight(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.nodes.len()).filter(|at| self.nodes[*at].reached == Reached::InFlight)
    }

    /// The fastest node that is right.
    #[must_use]
    pub fn best(&self) -> Option<(usize, f64)> {
        let rates = self.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.rate()?)));
        rates.reduce(|best, next| if next.1 > best.1 { next } else { best })
    }

    /// From the root to a node, both among them.
    #[must_use]
    pub fn path(&self, to: usize) -> Vec<usize> {
        let mut path: Vec<usize> = std::iter::successors(Some(to), |at| self.nodes.get(*at)?.parent).collect();
        path.reverse();
        path
    }

    /// Whether a node stands at this point.
    #[must_use]
    pub fn knows(&self, point: &Point) -> bool {
        self.points.contains(point)
    }

    /// The actions of a node that no child was made by.
    #[must_use]
    pub fn untried(&self, at: usize) -> Vec<&Action> {
        let Some(node) = self.nodes.get(at) else { return vec![] };
        let tried =
            |action: &&Action| node.children.iter().any(|child| self.nodes[*child].action.as_ref() == Some(*action));
        node.candidates.iter().flatten().filter(|action| !tried(action)).collect()
    }

    /// A node was made, and is being evaluated: a visit of every node above it.
    pub fn expanded(
        &mut self,
        parent: Option<usize>,
        action: Option<Action>,
        point: Point,
        candidate: Option<CandidateId>,
    ) {
        let at = self.nodes.len();
        let parent = parent.filter(|parent| *parent < at);
        self.points.insert(point.clone());
        self.nodes.push(Node {
            parent,
            action,
            point,
            candidate,
            reached: Reached::InFlight,
            candidates: None,
            dropped: 0,
            children: vec![],
            visits: 0,
            ended: 0,
            right: 0,
            total: 0.0,
        });
        if let Some(parent) = parent {
            self.nodes[parent].children.push(at);
        }
        self.path(at).into_iter().for_each(|above| self.nodes[above].visits += 1);
    }

    /// What came of a node goes back to every node above it.
    pub fn simulated(&mut self, at: usize, reached: Reached) {
        if self.nodes.get(at).is_none_or(|node| node.reached != Reached::InFlight) {
            return;
        }
        let rate = if let Reached::Rate(rate) = reached { Some(rate) } else { None };
        for above in self.path(at) {
            let node = &mut self.nodes[above];
            node.ended += 1;
            node.right += u32::from(rate.is_some());
            node.total += rate.unwrap_or(0.0);
        }
        if let Some(rate) = rate {
            self.slowest = Some(self.slowest.map_or(rate, |slowest| slowest.min(rate)));
            self.fastest = Some(self.fastest.map_or(rate, |fastest| fastest.max(rate)));
        }
        self.nodes[at].reached = reached;
    }

    /// The actions to choose from at a node were found.
    pub fn offered(&mut self, at: usize, candidates: Vec<Action>, dropped: u32) {
        if let Some(node) = self.nodes.get_mut(at) {
            (node.candidates, node.dropped) = (Some(candidates), dropped);
        }
    }

    /// The value of a node: the mean rate of its subtree between the slowest so far, 0, and the fastest, 1. What failed
    /// counts as 0, what is in flight not at all. Where all are equally fast, what is right counts as 1.
    #[must_use]
    pub fn value(&self, at: usize) -> f64 {
        let (Some(node), Some(slowest), Some(fastest)) = (self.nodes.get(at), self.slowest, self.fastest) else {
            return 0.0;
        };
        if node.ended == 0 {
            return 0.0;
        }
        let right = f64::from(node.right);
        let range = fastest - slowest;
        let sum = if range > 0.0 { (node.total - right * slowest) / range } else { right };
        sum / f64::from(node.ended)
    }

    /// UCB1 of a child: `Q + c * sqrt(ln N / n)`, with N the parent's visits and n its own.
    #[must_use]
    pub fn ucb(&self, at: usize, exploration: f64) -> f64 {
        let Some(node) = self.nodes.get(at) else { return 0.0 };
        let above = node.parent.map_or(node.visits, |parent| self.nodes[parent].visits);
        self.value(at) + exploration * (f64::from(above.max(1)).ln() / f64::from(node.visits.max(1))).sqrt()
    }

    /// The node to expand, by UCB1 from the root down; none where none can be now. Of equals the first is taken.
    #[must_use]
    pub fn select(&self, search: &Search) -> Option<usize> {
        let open = self.open(search);
        let mut at = 0;
        if !*open.first()? {
            return None;
        }
        while !self.expands(at, search) {
            let enterable = self.nodes[at].children.iter().copied().filter(|child| open[*child]);
            let ucb = |child: usize| self.ucb(child, search.exploration());
            at = enterable.reduce(|best, next| if ucb(next) > ucb(best) { next } else { best })?;
        }
        Some(at)
    }

    /// Whether a node is expanded where it is reached: it is right, has untried actions and too few children.
    fn expands(&self, at: usize, search: &Search) -> bool {
        let node = &self.nodes[at];
        node.rate().is_some() && node.children.len() < search.children() && !self.untried(at).is_empty()
    }

    /// Which nodes may be entered: those that are right and have one to expand in their subtree. Children come behind their
    /// parents, so one pass from the end finds all.
    fn open(&self, search: &Search) -> Vec<bool> {
        let mut open = vec![false; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate().rev() {
            let below = node.children.iter().any(|child| open[*child]);
            open[at] = node.rate().is_some() && (below || self.expands(at, search));
        }
        open
    }

    /// What comes next.
    #[must_use]
    pub fn next(&self, search: &Search) -> Next {
        if self.nodes.is_empty() {
            return Next::Root;
        }
        let bare = |node: &Node| node.rate().is_some() && node.candidates.is_none();
        let left = self.nodes.len() < search.evaluations();
        if let Some(at) = self.nodes.iter().position(bare).filter(|_| left) {
            return Next::Offer(at);
        }
        let flying = self.in_flight().count();
        let selected = if left && flying < search.open_nodes() { self.select(search) } else { None };
        match (selected, self.in_flight().next()) {
            (Some(at), _) => Next::Expand(at),
            (None, Some(first)) => Next::Await(first),
            (None, None) if left => Next::Exhausted,
            (None, None) => Next::Spent,
        }
    }
}

impl Node {
    /// Its rate, where it is right.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        if let Reached::Rate(rate) = self.reached { Some(rate) } else { None }
    }
}

#[cfg(test)]
mod tests;
