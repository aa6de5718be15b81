//! Which metrics say the same as another one?
//!
//! Two metrics are collinear where their values, standardised within each task and put one behind the other, have a
//! correlation of at least the threshold in size, whatever its sign. Of those that are, one is kept: the one of the higher
//! mean |r| (in steps of 0.01, so that noise decides nothing), then the one with the plainer name, then the shorter one,
//! then the first of the alphabet.

use crate::{
    evidence::{Column, Evidence},
    name::plainness,
};

/// A metric that was kept, and those that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its place among the columns.
    pub column: usize,
    /// The places of the others.
    pub instead_of: Vec<usize>,
}

/// The metrics that remain of these, the strongest first.
#[must_use]
pub fn distinct(evidence: &Evidence, tasks: &[usize], columns: &[usize], threshold: f64) -> Vec<Kept> {
    let mut order = columns.to_vec();
    order.sort_by_cached_key(|at| rank(&evidence.columns[*at], tasks));
    let mut kept: Vec<(Kept, Vec<f64>)> = vec![];
    for at in order {
        let vector = unit(evidence.columns[at].pooled(evidence, tasks));
        match kept.iter_mut().find(|(_, other)| dot(&vector, other).abs() >= threshold) {
            Some((stands, _)) => stands.instead_of.push(at),
            None => kept.push((Kept { column: at, instead_of: vec![] }, vector)),
        }
    }
    kept.into_iter().map(|(kept, _)| kept).collect()
}

/// What comes first is kept.
fn rank(column: &Column, tasks: &[usize]) -> (i64, usize, usize, String) {
    let strength = (column.mean_abs_r(tasks) * 100.0).round() as i64;
    (-strength, plainness(&column.name), column.name.len(), column.name.clone())
}

/// Of length 1.
pub(crate) fn unit(mut vector: Vec<f64>) -> Vec<f64> {
    let length = dot(&vector, &vector).sqrt();
    if length > 0.0 {
        for value in &mut vector {
            *value /= length;
        }
    }
    vector
}

/// In eight sums, which a processor adds up side by side.
pub(crate) fn dot(one: &[f64], other: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (ones, others) = (one.chunks_exact(8), other.chunks_exact(8));
    let rest: f64 = ones.remainder().iter().zip(others.remainder()).map(|(one, other)| one * other).sum();
    for (one, other) in ones.zip(others) {
        for at in 0..8 {
            sums[at] += one[at] * other[at];
        }
    }
    sums.iter().sum::<f64>() + rest
}
