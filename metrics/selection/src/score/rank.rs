//! Do two lists of numbers put things into the same order?

/// Spearman's rho: Pearson's correlation of ranks, ties sharing theirs; 0 where one list is constant.
#[must_use]
pub fn spearman(one: &[f64], other: &[f64]) -> f64 {
    pearson(&ranks(one), &ranks(other))
}

/// Kendall's tau-b; 0 where one list is constant.
#[must_use]
pub fn kendall(one: &[f64], other: &[f64]) -> f64 {
    let (mut agree, mut pairs_one, mut pairs_other) = (0.0, 0.0, 0.0);
    for at in 0..one.len() {
        for before in 0..at {
            let (a, b) = (order(one[at], one[before]), order(other[at], other[before]));
            agree += a * b;
            pairs_one += a * a;
            pairs_other += b * b;
        }
    }
    let pairs: f64 = pairs_one * pairs_other;
    if pairs > 0.0 { agree / pairs.sqrt() } else { 0.0 }
}

fn order(one: f64, other: f64) -> f64 {
    one.partial_cmp(&other).map_or(0.0, |order| f64::from(order as i8))
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let same = values.iter().filter(|other| other.total_cmp(value).is_eq()).count();
        below as f64 + f64::midpoint(same as f64, 1.0)
    };
    values.iter().map(rank).collect()
}

fn pearson(one: &[f64], other: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_one, mean_other) = (mean(one), mean(other));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        one.iter().zip(other).map(|(a, b)| of(a - mean_one, b - mean_other)).sum()
    };
    let spread = (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
    if spread > 0.0 { sum(&|a, b| a * b) / spread } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_counts_and_ties_share_their_ranks() {
        assert!((spearman(&[1.0, 2.0, 9.0], &[5.0, 6.0, 7.0]) - 1.0).abs() < 1e-12);
        assert!((kendall(&[1.0, 2.0, 3.0, 4.0], &[2.0, 1.0, 3.0, 4.0]) - 4.0 / 6.0).abs() < 1e-12);
        assert!((kendall(&[1.0, 1.0, 2.0], &[1.0, 2.0, 3.0]) - 2.0 / 6f64.sqrt()).abs() < 1e-12);
        assert!((spearman(&[1.0, 1.0, 2.0], &[1.0, 2.0, 3.0]) - 0.866_025_403_784).abs() < 1e-9);
        assert_eq!((spearman(&[3.0, 3.0], &[1.0, 2.0]), kendall(&[3.0, 3.0], &[1.0, 2.0])), (0.0, 0.0));
    }
}
