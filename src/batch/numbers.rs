//! Which numbers does `1-10,23` mean?

use std::str::FromStr;

/// Numbers and ranges of them, both ends included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(Vec<(u32, u32)>);

impl Numbers {
    /// Whether it holds this number.
    #[must_use]
    pub fn holds(&self, number: u32) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&number))
    }
}

impl FromIterator<u32> for Numbers {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().map(|number| (number, number)).collect())
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} names no numbers: expected numbers and ranges, such as 1-10,23");
        let range = |word: &str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last).then_some((first, last))
        };
        text.split(',').map(|word| range(word).ok_or_else(wrong)).collect::<Result<_, _>>().map(Self)
    }
}

/// One part of several: `2/5` is the second of five.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    part: usize,
    of: usize,
}

impl Shard {
    /// Whether what stands at this place, from 0, belongs to it: every so many-th does.
    #[must_use]
    pub fn holds(self, place: usize) -> bool {
        place % self.of == self.part - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((part, of)) if 1 <= part && part <= of => Ok(Self { part, of }),
            _ => Err(format!("{text:?} is no part of a whole: expected one such as 2/5, the second of five")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_both_their_ends_and_what_is_no_number_is_told() {
        let numbers: Numbers = "1-3, 23".parse().unwrap();
        assert_eq!((0..30).filter(|n| numbers.holds(*n)).collect::<Vec<_>>(), [1, 2, 3, 23]);
        for wrong in ["", "3-1", "x", "1-"] {
            assert!(wrong.parse::<Numbers>().unwrap_err().contains("such as 1-10,23"), "{wrong}");
        }
    }

    #[test]
    fn the_parts_of_a_whole_hold_everything_once() {
        let parts: Vec<Shard> = ["1/3", "2/3", "3/3"].iter().map(|text| text.parse().unwrap()).collect();
        assert!((0..10).all(|place| parts.iter().filter(|part| part.holds(place)).count() == 1));
        for wrong in ["0/3", "4/3", "1", "a/b"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
