//! How well does a set that was chosen on some tasks rank the kernels of another?
//!
//! A set is good for a Judge if what its metrics meant elsewhere holds for the kernel at hand. So each task is left out in
//! turn: the set is chosen, and each of its metrics gets a weight, from the other tasks alone; the weighted sum of the
//! standardised metrics then ranks the left-out task's kernels, and the ranking is compared with their times (Spearman's rho
//! and Kendall's tau-b: 1 is the true order, 0 is chance). A metric's weight is its mean Pearson correlation over the other
//! tasks, with its sign: nothing is fitted, so that large sets have no more freedom than small ones. A ridge regression on the
//! logarithm of the time, likewise from the other tasks, is shown beside it as a second opinion. Metrics that are the
//! runtime under another name are taken out of every set: with them, ranking is no achievement.

mod rank;
mod ridge;

pub use rank::{kendall, spearman};

use crate::{
    evidence::Evidence,
    rule::{Rule, Wish, choose},
};

/// What is scored.
#[derive(Clone, Debug)]
pub enum Contender {
    /// These metrics, whatever the tasks say.
    Fixed(Vec<String>),
    /// What a rule chooses on the other tasks.
    Chosen(Wish),
}

/// How well one set did on one left-out task.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The task that was left out.
    pub task: String,
    /// How many metrics of the set speak of it and of the others.
    pub metrics: usize,
    /// Spearman's rho between the composite and the times.
    pub spearman: f64,
    /// Kendall's tau-b.
    pub kendall: f64,
    /// Spearman's rho of the ridge regression.
    pub ridge: f64,
}

/// A set's scores, a left-out task each; nothing where there is but one task.
#[must_use]
pub fn leave_one_out(evidence: &Evidence, contender: &Contender) -> Vec<Score> {
    if evidence.tasks.len() < 2 {
        return vec![];
    }
    evidence.all().into_iter().map(|left_out| score(evidence, contender, left_out)).collect()
}

fn score(evidence: &Evidence, contender: &Contender, left_out: usize) -> Score {
    let others: Vec<usize> = evidence.all().into_iter().filter(|task| *task != left_out).collect();
    let mut columns: Vec<usize> = match contender {
        Contender::Fixed(names) => names.iter().filter_map(|name| evidence.find(name)).collect(),
        Contender::Chosen(wish) => choose(evidence, &others, wish).chosen.iter().map(|chosen| chosen.column).collect(),
    };
    columns.retain(|at| {
        let column = &evidence.columns[*at];
        column.out.is_none() && column.said[left_out].is_some() && column.r(&others).next().is_some()
    });
    let times = &evidence.tasks[left_out].runtimes;
    let composite = composite(evidence, &columns, &others, left_out);
    let ridge = ridge::predict(evidence, &columns, &others, left_out);
    Score {
        task: evidence.tasks[left_out].name.clone(),
        metrics: columns.len(),
        spearman: spearman(&composite, times),
        kendall: kendall(&composite, times),
        ridge: spearman(&ridge, times),
    }
}

/// The weighted sum of standardised metrics, for each kernel of the left-out task.
fn composite(evidence: &Evidence, columns: &[usize], others: &[usize], left_out: usize) -> Vec<f64> {
    let mut sums = vec![0.0; evidence.tasks[left_out].runtimes.len()];
    for column in columns.iter().map(|at| &evidence.columns[*at]) {
        let weight = column.r(others).sum::<f64>() / others.len() as f64;
        if let Some(said) = &column.said[left_out] {
            sums.iter_mut().zip(&said.z).for_each(|(sum, z)| *sum += weight * z);
        }
    }
    sums
}

/// The contenders of an ablation: what was chosen by each rule, and top 5, 10 and 20.
#[must_use]
pub fn contenders(wish: &Wish) -> Vec<(String, Contender)> {
    let chosen = |rule, want| Contender::Chosen(Wish { rule, want, ..*wish });
    let mut all = vec![];
    for rule in [Rule::Stable, Rule::Public, Rule::Intersection] {
        all.push((rule.name().to_owned(), chosen(rule, wish.want)));
    }
    for want in [5, 10, 20, wish.want] {
        all.push((format!("top {want}"), chosen(Rule::Top, want)));
    }
    all.push(("full".to_owned(), chosen(Rule::Full, usize::MAX)));
    all
}
