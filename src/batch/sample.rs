//! A stratified sample: of each level the same share, drawn by a seed (CudaForge, appendix G.2, from which D* comes).

use kernelbench::Hash;
use std::collections::BTreeMap;

/// A share of each level, and the seed that draws it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Above 0, at most 1.
    pub share: f64,
    /// Another seed draws another sample.
    pub seed: u64,
}

/// Reads a share.
///
/// # Errors
///
/// If it is no number above 0 and at most 1.
pub fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    share
        .filter(|share| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| format!("{text:?} is no share: expected a number above 0 and at most 1, such as 0.1"))
}

impl Sample {
    /// What it takes of these, in their order: of each level the rounded share, but at least one. Each is ranked by a hash of
    /// the seed and its own name, so a draw depends neither on the order nor on a generator of random numbers.
    #[must_use]
    pub fn draw<T>(self, all: Vec<T>, stratum: impl Fn(&T) -> (Option<u8>, String)) -> Vec<T> {
        let mut levels: BTreeMap<Option<u8>, Vec<(Hash, usize)>> = BTreeMap::new();
        for (place, one) in all.iter().enumerate() {
            let (level, name) = stratum(one);
            let text = format!("{} {} {name}", self.seed, level.map_or_else(String::new, |level| level.to_string()));
            levels.entry(level).or_default().push((Hash::of(text.as_bytes()), place));
        }
        let mut drawn = vec![false; all.len()];
        for ranked in levels.values_mut() {
            ranked.sort_unstable();
            let count = (ranked.len() as f64 * self.share).round().max(1.0) as usize;
            ranked.iter().take(count).for_each(|(_, place)| drawn[*place] = true);
        }
        all.into_iter().zip(drawn).filter_map(|(one, drawn)| drawn.then_some(one)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernelbench() -> Vec<(u8, u32)> {
        [(1, 100), (2, 100), (3, 50)].into_iter().flat_map(|(level, n)| (1..=n).map(move |id| (level, id))).collect()
    }

    fn draw(seed: u64, all: Vec<(u8, u32)>) -> Vec<(u8, u32)> {
        Sample { share: 0.1, seed }.draw(all, |(level, id)| (Some(*level), format!("{id}_x.py")))
    }

    #[test]
    fn a_tenth_of_250_is_ten_ten_and_five_the_same_ones_by_the_same_seed() {
        let drawn = draw(7, kernelbench());
        let of = |level| drawn.iter().filter(|(found, _)| *found == level).count();
        assert_eq!([of(1), of(2), of(3)], [10, 10, 5]);
        assert!(drawn.is_sorted());
        assert_ne!(drawn, draw(8, kernelbench()));
        let mut back: Vec<_> = kernelbench();
        back.reverse();
        let mut again = draw(7, back);
        again.sort_unstable();
        assert_eq!(drawn, again, "the order they are found in changes nothing");
    }

    #[test]
    fn a_level_of_few_gives_one_and_a_share_is_one() {
        assert_eq!(draw(7, vec![(4, 1), (4, 2)]).len(), 1);
        assert_eq!(share("0.1"), Ok(0.1));
        for wrong in ["0", "-1", "1.5", "nan", "ten"] {
            assert!(share(wrong).unwrap_err().contains(wrong));
        }
    }
}
