//! Contents of the inputs of a case: drawn once, and turned for each timed call.

use crate::task::{
    fill::fill,
    layout::{Array, Layout},
};
use rand::{Rng, rngs::StdRng};

/// Contents of all inputs of a case; outputs stay empty.
pub(crate) struct Draw(Vec<Vec<u8>>);

impl Draw {
    /// Draws every input.
    pub(crate) fn new(layout: &Layout, rng: &mut StdRng) -> Self {
        let mut contents = |array: &Array| {
            let mut bytes = vec![0; if array.is_input() { array.bytes } else { 0 }];
            fill(&mut bytes, array.dtype, array.fill, rng);
            bytes
        };
        Self(layout.arrays.iter().map(&mut contents).collect())
    }

    /// By how many bytes each array is turned so that it is new at every place.
    pub(crate) fn turns(&self, layout: &Layout, rng: &mut StdRng) -> Vec<usize> {
        let turn = |(array, bytes): (&Array, &Vec<u8>)| {
            let elements = bytes.len() / array.dtype.bytes();
            if elements == 0 { 0 } else { rng.random_range(0..elements) * array.dtype.bytes() }
        };
        layout.arrays.iter().zip(&self.0).map(turn).collect()
    }
}

/// What the inputs of one slot hold: a draw, each array of it turned by so many bytes.
pub(crate) struct Contents {
    /// Which of the draws.
    pub(crate) draw: usize,
    /// By how many bytes, by array.
    pub(crate) turns: Vec<usize>,
}

impl Contents {
    fn parts<'a>(&self, draws: &'a [Draw], array: usize) -> (&'a [u8], &'a [u8]) {
        let (before, after) = draws[self.draw].0[array].split_at(self.turns[array]);
        (after, before)
    }

    /// Writes one array's contents.
    pub(crate) fn write(&self, draws: &[Draw], array: usize, to: &mut [u8]) {
        let (first, second) = self.parts(draws, array);
        to[..first.len()].copy_from_slice(first);
        to[first.len()..].copy_from_slice(second);
    }

    /// Whether an array still holds them.
    pub(crate) fn is_in(&self, draws: &[Draw], array: usize, found: &[u8]) -> bool {
        let (first, second) = self.parts(draws, array);
        &found[..first.len()] == first && &found[first.len()..] == second
    }
}

/// Fills an array with one element.
pub(crate) fn spread(element: &[u8], array: &mut [u8]) {
    let Some(first) = array.get_mut(..element.len()) else { return };
    first.copy_from_slice(element);
    let mut done = element.len();
    while done < array.len() {
        let next = done.min(array.len() - done);
        array.copy_within(..next, done);
        done += next;
    }
}
