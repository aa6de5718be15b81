//! Where the wrong elements of an output lie, and how wrong they are.

use serde::{Deserialize, Serialize};

/// Where the wrong elements of an output lie, and how wrong they are at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    /// The output's shape; one axis where it is a plain array.
    pub shape: Vec<u64>,
    /// The first and the last index of a wrong element, along each axis.
    pub ranges: Vec<[u64; 2]>,
    /// The largest |got - expected| where that is finite.
    pub max_absolute: Option<f64>,
    /// The largest |got - expected| / |expected| where that is finite.
    pub max_relative: Option<f64>,
}

impl Spread {
    /// Whether nothing of it is known.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.shape.is_empty()
    }

    /// The index along each axis of the element at this place of the flattened output; empty where the shape is unknown.
    #[must_use]
    pub fn index(&self, at: u64) -> Vec<u64> {
        let mut rest = at;
        let mut index: Vec<u64> = self.shape.iter().rev().map(|length| split(&mut rest, *length)).collect();
        index.reverse();
        index
    }

    /// Takes in what was found of a wrong element at this place of a plain array.
    pub(crate) fn take(&mut self, at: u64, expected: f64, got: f64) {
        let [first, last] = self.ranges.first().copied().unwrap_or([at, at]);
        self.ranges = vec![[first.min(at), last.max(at)]];
        let absolute = (got - expected).abs();
        self.max_absolute = larger(self.max_absolute, absolute);
        self.max_relative = larger(self.max_relative, absolute / expected.abs());
    }

    /// Takes in what was found in a part of the same array that begins here.
    pub(crate) fn join(&mut self, part: &Self, begins: u64) {
        if let Some([first, last]) = part.ranges.first().map(|range| range.map(|at| at + begins)) {
            let [least, most] = self.ranges.first().copied().unwrap_or([first, last]);
            self.ranges = vec![[least.min(first), most.max(last)]];
        }
        self.max_absolute = part.max_absolute.map_or(self.max_absolute, |value| larger(self.max_absolute, value));
        self.max_relative = part.max_relative.map_or(self.max_relative, |value| larger(self.max_relative, value));
    }
}

/// The remainder along an axis of this length, with the quotient left.
fn split(rest: &mut u64, length: u64) -> u64 {
    let length = length.max(1);
    let index = *rest % length;
    *rest /= length;
    index
}

fn larger(known: Option<f64>, value: f64) -> Option<f64> {
    if value.is_finite() { Some(known.map_or(value, |known| known.max(value))) } else { known }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_in_a_flattened_output_is_an_index_by_axis() {
        let spread = Spread { shape: vec![2, 3, 5], ..Spread::default() };
        assert_eq!(
            (spread.index(0), spread.index(17), spread.index(29)),
            (vec![0, 0, 0], vec![1, 0, 2], vec![1, 2, 4])
        );
        assert!(Spread::default().index(7).is_empty());
    }
}
