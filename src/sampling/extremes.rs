//! Which of many times are the fastest and the slowest?

use kernelbench::Hash;

/// The first and the last so many by time, each once, from fast to slow; all where there are no more. Equal times are
/// ordered by hash (`CudaForge`, Algorithm 1: five and five of a hundred).
#[must_use]
pub fn extremes(times: &[(f64, Hash)], keep: usize) -> Vec<Hash> {
    let mut sorted: Vec<&(f64, Hash)> = times.iter().collect();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0).then_with(|| one.1.cmp(&other.1)));
    let (first, last) = (keep.min(sorted.len()), sorted.len().saturating_sub(keep));
    let chosen = sorted.iter().enumerate().filter(|(at, _)| *at < first || *at >= last);
    chosen.map(|(_, (_, id))| id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: u8) -> Vec<(f64, Hash)> {
        (0..count).rev().map(|n| (f64::from(n), Hash::of(&[n]))).collect()
    }

    #[test]
    fn of_a_hundred_the_first_five_and_the_last_five_are_kept() {
        let expected: Vec<Hash> = [0, 1, 2, 3, 4, 95, 96, 97, 98, 99].map(|n| Hash::of(&[n])).to_vec();
        assert_eq!(extremes(&numbered(100), 5), expected);
    }

    #[test]
    fn of_few_all_are_kept_and_none_twice() {
        for count in [0, 1, 9, 10, 11] {
            assert_eq!(extremes(&numbered(count), 5).len(), usize::from(count.min(10)));
        }
    }
}
