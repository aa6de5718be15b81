//! Workflows: checkpoints that transformations lead from one to the next, with names, branches and a head (PEAK §3.4).
//!
//! A fold over events, like the rest of a trajectory. A checkpoint is a kernel context that was right and was tuned; it is
//! named by its content and never goes away. What is ordered is tried a few times; where every try fails, the head stays.

use crate::trajectory::Round;
use kernelbench::{Bindings, Candidate, CandidateId, Hash, Part, Space, Tuner};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The branch that a workflow begins with.
pub const MAIN: &str = "main";

/// What is ordered where nothing is rewritten, and a checkpoint's whole space is searched again.
pub const TUNE: &str = "tune";

/// How configurations are searched, where a person says otherwise than the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuningPlan {
    /// How they are chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuner: Option<Tuner>,
    /// How many are tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<usize>,
    /// How many of the fastest are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<usize>,
    /// What configurations are drawn by, so that a search can be repeated with others, on samples of its own; always the same
    /// where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl TuningPlan {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A kernel context that passed its checks and was tuned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// What it is called by its content: the hash of its canonical form.
    pub id: Hash,
    /// What it is called in this workflow: `c0` is the initial context.
    pub name: String,
    /// The one that it was made from; none for the initial context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Hash>,
    /// What was applied to that; none for the initial context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transformation: Option<String>,
    /// The round in which it was made.
    pub round: u32,
    /// Its source with what is open left open, as a candidate.
    pub context: CandidateId,
    /// The same with its best bindings.
    pub bound: CandidateId,
    /// Its tuning parameters.
    pub tuning: Space,
    /// The fastest bindings, best first: the next transformation is tuned over these and its own parameters.
    pub kept: Vec<Bindings>,
}

/// What a checkpoint's name is the hash of.
#[derive(Serialize)]
struct Canonical<'a> {
    #[serde(rename = "warpsmith-checkpoint")]
    version: u32,
    parent: Option<&'a Hash>,
    transformation: Option<&'a str>,
    parts: &'a [Part],
    tuning: &'a Space,
}

/// The canonical form of a checkpoint: where it comes from, its source, and its tuning parameters.
#[must_use]
pub fn canonical(parent: Option<&Hash>, transformation: Option<&str>, context: &Candidate, tuning: &Space) -> String {
    let whole = Canonical { version: 1, parent, transformation, parts: context.parts(), tuning };
    // Texts and whole numbers always make JSON, so nothing is ever taken in its place.
    serde_json::to_string(&whole).unwrap_or_default()
}

/// A transformation that is to be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its name.
    pub transformation: String,
    /// Its text, as TOML, by hash.
    pub definition: Hash,
    /// What it imports, by hash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imports: Vec<Hash>,
    /// The checkpoint that it is applied to.
    pub from: Hash,
    /// How often it is tried.
    pub tries: u32,
    /// What a person says beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub say: Option<String>,
    /// Whether a person asked for it, and not the policy's sequence.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
    /// How its configurations are searched.
    #[serde(default, skip_serializing_if = "TuningPlan::is_empty")]
    pub tuning: TuningPlan,
    /// Whether it only tries what a model can do (PEAK §5.2): each call is asked once, and what comes of it is checked, not
    /// timed, and no checkpoint.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trial: bool,
}

/// An order, and which rounds came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// What was ordered.
    pub order: Order,
    /// How many rounds there had been.
    pub rounds_before: usize,
    /// What became of it.
    pub fate: Fate,
}

/// What became of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Nothing yet, or every try failed.
    #[default]
    Open,
    /// A checkpoint.
    Made,
    /// A person left it out: it counts as a step that is behind its checkpoint.
    LeftOut,
    /// A person went back to a checkpoint before it was decided: it counts as never ordered.
    Dropped,
}

/// What has become of a workflow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workflow {
    /// In the order in which they were made.
    pub checkpoints: Vec<Checkpoint>,
    /// Names that people gave.
    pub names: BTreeMap<String, Hash>,
    /// Where each branch stands.
    pub branches: BTreeMap<String, Hash>,
    /// The branch that goes on.
    pub branch: Option<String>,
    /// What was ordered, in order.
    pub orders: Vec<Ordered>,
}

impl Workflow {
    /// The branch that goes on.
    #[must_use]
    pub fn branch(&self) -> &str {
        self.branch.as_deref().unwrap_or(MAIN)
    }

    /// The checkpoint that the next transformation starts from; none before the initial context passed.
    #[must_use]
    pub fn head(&self) -> Option<&Checkpoint> {
        self.branches.get(self.branch()).and_then(|id| self.checkpoint(id))
    }

    /// The checkpoint of this id: the last that was made with it.
    #[must_use]
    pub fn checkpoint(&self, id: &Hash) -> Option<&Checkpoint> {
        self.checkpoints.iter().rev().find(|checkpoint| checkpoint.id == *id)
    }

    /// The checkpoints on the way to one, from the initial context to itself.
    #[must_use]
    pub fn way(&self, to: &Checkpoint) -> Vec<&Checkpoint> {
        let back = std::iter::successors(self.checkpoint(&to.id), |at| self.checkpoint(at.parent.as_ref()?));
        let mut way: Vec<&Checkpoint> = back.collect();
        way.reverse();
        way
    }

    /// The transformations that led to a checkpoint, first to last.
    #[must_use]
    pub fn path(&self, to: &Checkpoint) -> Vec<&str> {
        self.way(to).into_iter().filter_map(|at| at.transformation.as_deref()).collect()
    }

    /// The rounds that came of an order, by its place among all.
    #[must_use]
    pub fn rounds_of<'a>(&self, nth: usize, rounds: &'a [Round]) -> &'a [Round] {
        let Some(ordered) = self.orders.get(nth) else { return &[] };
        let until = self.orders.get(nth + 1).map_or(rounds.len(), |next| next.rounds_before);
        rounds.get(ordered.rounds_before..until).unwrap_or_default()
    }

    /// The transformations of a sequence that are behind a checkpoint: those that led to it, and those that a person left out
    /// on the way.
    #[must_use]
    pub fn behind(&self, to: &Checkpoint) -> Vec<&str> {
        let back = std::iter::successors(self.checkpoint(&to.id), |at| self.checkpoint(at.parent.as_ref()?));
        let steps = |at: &'_ Checkpoint| {
            let id = at.id.clone();
            let left =
                self.orders.iter().filter(move |ordered| ordered.fate == Fate::LeftOut && ordered.order.from == id);
            left.map(|ordered| ordered.order.transformation.as_str()).collect::<Vec<_>>()
        };
        let mut names: Vec<&str> = vec![];
        for at in back {
            names.extend(steps(at).into_iter().rev());
            names.extend(at.transformation.as_deref());
        }
        names.reverse();
        names
    }

    /// The last order, with how many of its tries were made, where neither a checkpoint came of it nor every try failed.
    #[must_use]
    pub fn open_order<'a>(&'a self, rounds: &'a [Round]) -> Option<(&'a Order, u32)> {
        let Ordered { order, rounds_before, fate } = self.orders.last()?;
        let tries = rounds.iter().skip(*rounds_before).filter(|round| round.finished()).count() as u32;
        (*fate == Fate::Open && tries < order.tries).then_some((order, tries))
    }

    /// The checkpoint of this very name: the name given, a branch, `head`, or `c7`.
    #[must_use]
    pub fn called(&self, name: &str) -> Option<&Checkpoint> {
        let own = self.names.get(name).or_else(|| self.branches.get(name)).and_then(|id| self.checkpoint(id));
        let head = || self.head().filter(|_| name == "head");
        let made = || self.checkpoints.iter().find(|checkpoint| checkpoint.name == name);
        own.or_else(head).or_else(made)
    }

    /// The checkpoint that a person names: by the name given, a branch, `c7`, `head`, or the first digits of its id.
    ///
    /// # Errors
    /// In words: nothing is called so, or several are.
    pub fn named(&self, name: &str) -> Result<&Checkpoint, String> {
        if let Some(found) = self.called(name) {
            return Ok(found);
        }
        let digits = name.len() >= 4 && name.chars().all(|c| c.is_ascii_hexdigit());
        let found: Vec<&Checkpoint> =
            self.checkpoints.iter().filter(|at| digits && at.id.to_string().starts_with(name)).collect();
        match found[..] {
            [one] => Ok(one),
            [] => Err(format!("there is no checkpoint {name:?}; there are {}", self.known())),
            _ => Err(format!("{name:?} begins the ids of {} checkpoints: give more of its digits", found.len())),
        }
    }

    /// Whether a name or a branch may be called so; in words why not.
    ///
    /// # Errors
    /// It is taken, or looks like what checkpoints are called by themselves, their ids among it.
    pub fn is_free(&self, name: &str) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let own =
            name.strip_prefix('c').is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit()));
        let number = name.chars().all(|c| c.is_ascii_digit());
        let id = name.len() >= 4 && name.chars().all(|c| c.is_ascii_hexdigit());
        let kept = ["head", "best", "reference"].contains(&name.to_ascii_lowercase().as_str());
        let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if !begins || name.len() > 64 || !name.chars().all(plain) || own || number || id || kept {
            return Err(format!(
                "{name:?} cannot be a name: expected letters, digits, `_`, `-` and `.`, a letter, a digit or `_` first, and not \
                 a number, `head`, `best`, `reference`, c7 or what looks like an id, such as 45dfc8e2"
            ));
        }
        if self.names.contains_key(name) || self.branches.contains_key(name) {
            return Err(format!("the name {name:?} is taken; the names are {}", self.known()));
        }
        Ok(())
    }

    /// What checkpoints are called here: in the order in which they were made, then what people called them, then branches.
    pub fn names_in_use(&self) -> impl Iterator<Item = &str> {
        let made = self.checkpoints.iter().map(|checkpoint| checkpoint.name.as_str());
        made.chain(self.names.keys().chain(self.branches.keys()).map(String::as_str))
    }

    fn known(&self) -> String {
        let all: Vec<&str> = self.names_in_use().collect();
        if all.is_empty() { "none yet".to_owned() } else { all.join(", ") }
    }

    pub(crate) fn made(&mut self, checkpoint: Checkpoint) {
        let branch = self.branch().to_owned();
        self.branches.insert(branch, checkpoint.id.clone());
        self.decided(Fate::Made);
        self.checkpoints.push(checkpoint);
    }

    pub(crate) fn ordered(&mut self, order: Order, rounds_before: usize) {
        self.orders.push(Ordered { order, rounds_before, fate: Fate::Open });
    }

    /// What became of the last order.
    pub(crate) fn decided(&mut self, fate: Fate) {
        if let Some(last) = self.orders.last_mut() {
            last.fate = fate;
        }
    }

    pub(crate) fn moved(&mut self, branch: String, checkpoint: Hash) {
        self.branches.insert(branch.clone(), checkpoint);
        self.branch = Some(branch);
    }
}

/// The transformation of a sequence that comes next after these, which were applied by it and perhaps by hand between.
#[must_use]
pub fn next_of<'a>(sequence: &'a [String], path: &[&str]) -> Option<&'a str> {
    let done =
        path.iter().fold(0, |at, applied| at + usize::from(sequence.get(at).is_some_and(|next| next == applied)));
    sequence.get(done).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;

    fn checkpoint(name: &str) -> Checkpoint {
        let source = Hash::of(b"source");
        Checkpoint {
            id: Hash::of(name.as_bytes()),
            name: name.to_owned(),
            parent: None,
            transformation: None,
            round: 0,
            context: source.clone(),
            bound: source,
            tuning: Space::default(),
            kept: vec![],
        }
    }

    #[test]
    fn digits_with_which_two_ids_begin_name_neither() {
        let all: Vec<Checkpoint> = (0..2000).map(|at| checkpoint(&format!("c{at}"))).collect();
        let digits = |one: &Checkpoint| one.id.to_string()[..4].to_owned();
        let doubled = |one: &&Checkpoint| all.iter().filter(|other| digits(other) == digits(one)).count() == 2;
        let twice = all.iter().find(doubled).map(digits).unwrap_or_default();
        let once = all.iter().find(|one| !doubled(one)).unwrap_or(&all[0]);
        let workflow = Workflow { checkpoints: all.clone(), ..Workflow::default() };
        assert_eq!(workflow.named(&digits(once)), Ok(once));
        let told = format!("{twice:?} begins the ids of 2 checkpoints: give more of its digits");
        assert_eq!(workflow.named(&twice), Err(told));
        let workflow = Workflow { checkpoints: slice::from_ref(once).to_vec(), ..Workflow::default() };
        let told = format!("there is no checkpoint \"c\"; there are {}", once.name);
        assert_eq!(workflow.named("c"), Err(told));
    }
}
