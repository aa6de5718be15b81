//! Which metrics does a rule choose?
//!
//! `public` is the rule of `CudaForge`'s authors: metrics in the top lists of several tasks, with one sign, whose mean |r| is
//! above the 75th percentile. Its printed form (algorithm 2 of the paper) is `intersection`, which cannot give 24: lists of
//! 20 have at most 20 in common. `stable`, the default, asks how strong a metric is *with its sign kept* over all tasks,
//! and takes one after another so that each says something that those before it do not. `top`, `random` and `full` are for
//! ablations.

mod draw;
mod ours;
mod theirs;

use crate::{
    collinear::{Kept, distinct},
    evidence::Evidence,
};

/// A way to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Strong with one sign over all tasks, and not said before.
    Stable,
    /// In the top lists of several tasks, with one sign, and a mean |r| above a percentile.
    Public,
    /// In the top lists of all tasks.
    Intersection,
    /// The highest mean |r|.
    Top,
    /// Drawn by lot.
    Random,
    /// All that vary.
    Full,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wish {
    /// How.
    pub rule: Rule,
    /// How many metrics; a target, never reached by padding.
    pub want: usize,
    /// How long each task's list is.
    pub top: usize,
    /// In how many tasks a metric must appear.
    pub tasks: usize,
    /// Above which percentile of all mean |r| a metric must be.
    pub percentile: f64,
    /// From which size of correlation two metrics say the same.
    pub collinear: f64,
    /// For what is drawn by lot.
    pub seed: u64,
}

/// What a rule chose.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The metrics, the best first.
    pub chosen: Vec<Chosen>,
    /// How many were eligible.
    pub eligible: usize,
    /// How many of them remained when collinear ones were out.
    pub distinct: usize,
    /// The cut that gave this number, in words and numbers.
    pub cut: String,
}

/// A metric that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Its place among the columns.
    pub column: usize,
    /// What the rule ranked it by.
    pub score: f64,
    /// The places of those that it stands for.
    pub instead_of: Vec<usize>,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Stable, Self::Public, Self::Intersection, Self::Top, Self::Random, Self::Full];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Public => "public",
            Self::Intersection => "intersection",
            Self::Top => "top",
            Self::Random => "random",
            Self::Full => "full",
        }
    }
}

impl Default for Wish {
    fn default() -> Self {
        Self { rule: Rule::Stable, want: 24, top: 20, tasks: 2, percentile: 75.0, collinear: 0.95, seed: 1 }
    }
}

/// Chooses by what these tasks say.
#[must_use]
pub fn choose(evidence: &Evidence, tasks: &[usize], wish: &Wish) -> Choice {
    let eligible = evidence.eligible(tasks);
    let drawn = matches!(wish.rule, Rule::Random | Rule::Full);
    let kept = if drawn { vec![] } else { distinct(evidence, tasks, &eligible, wish.collinear) };
    let field = Field { evidence, tasks, wish, kept: &kept };
    let (chosen, cut) = match wish.rule {
        Rule::Stable => ours::stable(&field),
        Rule::Public => theirs::public(&field),
        Rule::Intersection => theirs::intersection(&field),
        Rule::Top => theirs::top(&field),
        Rule::Random => draw::random(evidence, tasks, &eligible, wish),
        Rule::Full => draw::full(evidence, tasks, &eligible),
    };
    Choice { chosen, eligible: eligible.len(), distinct: kept.len(), cut }
}

/// What a rule may look at.
struct Field<'a> {
    evidence: &'a Evidence,
    tasks: &'a [usize],
    wish: &'a Wish,
    kept: &'a [Kept],
}

impl Field<'_> {
    /// Pearson's correlation of a metric in a task.
    fn r(&self, kept: &Kept, task: usize) -> Option<f64> {
        Some(self.evidence.columns[kept.column].said[task].as_ref()?.r)
    }

    fn name(&self, kept: &Kept) -> &str {
        &self.evidence.columns[kept.column].name
    }

    fn mean_abs_r(&self, kept: &Kept) -> f64 {
        self.evidence.columns[kept.column].mean_abs_r(self.tasks)
    }

    /// These metrics, the highest score first, at most as many as wanted.
    fn best(&self, mut scored: Vec<(f64, &Kept)>) -> Vec<Chosen> {
        scored.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| self.name(one.1).cmp(self.name(other.1))));
        scored.truncate(self.wish.want);
        let chosen =
            |(score, kept): (f64, &Kept)| Chosen { column: kept.column, score, instead_of: kept.instead_of.clone() };
        scored.into_iter().map(chosen).collect()
    }
}
