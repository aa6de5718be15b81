//! Tuning by tree search: nodes are points of a generated operator, edges are actions (QiMeng-TensorOp §3.3).

pub mod action;
pub mod pace;
pub mod tree;

pub use action::{Action, Ground, Point};
pub use pace::Pace;
pub use tree::{Next, Node, Reached, Tree};

use kernelbench::{Hash, Operator};
use serde::{Deserialize, Serialize};

/// How a generated operator is searched for its fastest form: a part of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Search {
    /// Who finds and chooses actions.
    pub mode: Mode,
    /// How many nodes are evaluated, at most; 128 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluations: Option<usize>,
    /// How many nodes are evaluated at once; 1 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_nodes: Option<usize>,
    /// How many children a node has, at most; 4 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<usize>,
    /// How many actions a node has to choose from, at most; 8 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates: Option<usize>,
    /// The weight of what was seldom visited in UCB1; the square root of 2 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exploration: Option<f64>,
    /// Whether the arithmetic is left to primitives, in a second call; true when left out. Else one call writes the operator
    /// whole in the task's language, with parameters: the C code with tuning of Figure 4a.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primitives: Option<bool>,
    /// How often a generated operator that fails is mended; 3 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repairs: Option<u32>,
    /// What is drawn by, where no model chooses; 0 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The operator that is tuned, where it comes from elsewhere and no model generates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<Operator>,
}

/// Who finds and chooses actions (QiMeng-TensorOp, Figure 4b).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A model, from what was tried.
    #[default]
    Guided,
    /// Nobody: fixed steps and swaps, drawn by the seed.
    Naive,
    /// A model that is not told what was tried.
    NoHistory,
}

/// Swaps that are drawn beside the steps where no model finds actions, at most.
const DRAWN_SWAPS: usize = 4;
/// How far apart the instructions of a drawn swap stand, at most.
pub const REACH: usize = 6;

impl Search {
    /// How many nodes are evaluated, at most.
    #[must_use]
    pub fn evaluations(&self) -> usize {
        self.evaluations.unwrap_or(128)
    }

    /// How many nodes are evaluated at once.
    #[must_use]
    pub fn open_nodes(&self) -> usize {
        self.open_nodes.unwrap_or(1).max(1)
    }

    /// How many children a node has, at most.
    #[must_use]
    pub fn children(&self) -> usize {
        self.children.unwrap_or(4)
    }

    /// How many actions a node has to choose from, at most.
    #[must_use]
    pub fn candidates(&self) -> usize {
        self.candidates.unwrap_or(8)
    }

    /// The weight of what was seldom visited.
    #[must_use]
    pub fn exploration(&self) -> f64 {
        self.exploration.unwrap_or(std::f64::consts::SQRT_2)
    }

    /// How often a generated operator that fails is mended.
    #[must_use]
    pub fn repairs(&self) -> u32 {
        self.repairs.unwrap_or(3)
    }

    /// The actions of a node where no model finds them: a step up and down of each parameter and some swaps, in a drawn
    /// order. Only what leads to a point that no node stands at.
    #[must_use]
    pub fn drawn(&self, ground: &Ground<'_>, tree: &Tree, at: usize) -> Vec<Action> {
        let mut swaps = self.shuffled(ground.swaps(REACH), at);
        swaps.truncate(DRAWN_SWAPS);
        let all = [ground.steps(), swaps].concat();
        let new = |action: &Action| ground.after(action).is_ok_and(|point| !tree.knows(&point));
        let mut drawn = self.shuffled(all.into_iter().filter(new).collect(), at);
        drawn.truncate(self.candidates());
        drawn
    }

    /// The same in an order that the seed and the node settle.
    fn shuffled(&self, mut actions: Vec<Action>, at: usize) -> Vec<Action> {
        let seed = self.seed.unwrap_or(0);
        actions.sort_by_cached_key(|action| Hash::of(format!("{seed} {at} {action}").as_bytes()));
        actions
    }
}
