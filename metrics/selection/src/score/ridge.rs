//! What would a ridge regression say of the left-out task?

use crate::{collinear::dot, evidence::Evidence};

/// The penalty, as a share of the kernels' mean similarity.
const PENALTY: f64 = 0.1;

/// For each kernel of the left-out task, the predicted logarithm of its time, up to a shift and a scale: fitted on the other
/// tasks' standardised metrics and times, in its dual form (a weight for each kernel).
pub(super) fn predict(evidence: &Evidence, columns: &[usize], others: &[usize], left_out: usize) -> Vec<f64> {
    let train: Vec<Vec<f64>> = others.iter().flat_map(|task| rows(evidence, columns, *task)).collect();
    let target: Vec<f64> = others.iter().flat_map(|task| logarithms(&evidence.tasks[*task].runtimes)).collect();
    let mut similar: Vec<Vec<f64>> =
        train.iter().map(|one| train.iter().map(|other| dot(one, other)).collect()).collect();
    let mean = (0..similar.len()).map(|at| similar[at][at]).sum::<f64>() / similar.len() as f64;
    if mean <= 0.0 {
        return vec![0.0; evidence.tasks[left_out].runtimes.len()];
    }
    for (at, row) in similar.iter_mut().enumerate() {
        row[at] += PENALTY * mean;
    }
    let weights = solve(similar, target);
    let predicted = |row: Vec<f64>| train.iter().zip(&weights).map(|(kernel, weight)| weight * dot(kernel, &row)).sum();
    rows(evidence, columns, left_out).into_iter().map(predicted).collect()
}

/// The standardised metrics of each kernel of a task.
fn rows(evidence: &Evidence, columns: &[usize], task: usize) -> Vec<Vec<f64>> {
    let kernels = evidence.tasks[task].runtimes.len();
    let value =
        |at: &usize, kernel: usize| evidence.columns[*at].said[task].as_ref().map_or(0.0, |said| said.z[kernel]);
    (0..kernels).map(|kernel| columns.iter().map(|at| value(at, kernel)).collect()).collect()
}

/// Logarithms of times, with mean 0 and length 1.
fn logarithms(times: &[f64]) -> Vec<f64> {
    let logarithms: Vec<f64> = times.iter().map(|time| time.ln()).collect();
    let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
    crate::collinear::unit(logarithms.into_iter().map(|value| value - mean).collect())
}

/// Solves a symmetric, positive definite system by Gaussian elimination, which needs no pivots there.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let size = right.len();
    for at in 0..size {
        let (above, below) = matrix.split_at_mut(at + 1);
        for (offset, row) in below.iter_mut().enumerate() {
            let factor = row[at] / above[at][at];
            row[at..].iter_mut().zip(&above[at][at..]).for_each(|(value, pivot)| *value -= factor * pivot);
            right[at + 1 + offset] -= factor * right[at];
        }
    }
    for at in (0..size).rev() {
        let known: f64 = (at + 1..size).map(|later| matrix[at][later] * right[later]).sum();
        right[at] = (right[at] - known) / matrix[at][at];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved() {
        let found = solve(vec![vec![4.0, 1.0], vec![1.0, 3.0]], vec![1.0, 2.0]);
        assert!((found[0] - 1.0 / 11.0).abs() < 1e-12 && (found[1] - 7.0 / 11.0).abs() < 1e-12);
    }
}
