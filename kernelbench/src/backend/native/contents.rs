//! Contents of the inputs of a call: drawn as the task says for a check, and made anew for every other call.
//!
//! A draw takes an exact generator its time, and a timed call may not cost that: its contents are `arrays::Maker`'s.

use crate::task::{
    Fill,
    layout::{Array, Layout},
};
use arrays::{Maker, fill};
use rand::{Rng, RngCore, rngs::StdRng};

/// Contents of all inputs of a slot, by array; those of outputs are empty.
#[derive(Default)]
pub(crate) struct Contents(Vec<Vec<u8>>);

impl Contents {
    /// Draws every input as the task says.
    pub(crate) fn draw(&mut self, layout: &Layout, rng: &mut StdRng) {
        self.each(layout, |array, bytes| fill(bytes, array.dtype, array.fill, rng));
    }

    /// Makes every input anew.
    pub(crate) fn make(&mut self, layout: &Layout, maker: &Maker, rng: &mut StdRng) {
        self.each(layout, |array, bytes| maker.make(bytes, array.dtype, array.fill, rng.next_u64()));
    }

    /// Puts the least and the greatest whole number that a fill may draw at about half of its places.
    pub(crate) fn stretch(&mut self, layout: &Layout, rng: &mut StdRng) {
        for (array, bytes) in layout.arrays.iter().zip(&mut self.0) {
            let Fill::Integers { low, high } = array.fill else { continue };
            for place in bytes.chunks_exact_mut(array.dtype.bytes()) {
                match rng.random_range(0..4) {
                    0 => fill(place, array.dtype, Fill::Integers { low, high: low }, rng),
                    1 => fill(place, array.dtype, Fill::Integers { low: high, high }, rng),
                    _ => {}
                }
            }
        }
    }

    /// What an array holds.
    pub(crate) fn of(&self, array: usize) -> &[u8] {
        self.0.get(array).map_or(&[], Vec::as_slice)
    }

    fn each(&mut self, layout: &Layout, mut fill: impl FnMut(&Array, &mut [u8])) {
        self.0.resize_with(layout.arrays.len(), Vec::new);
        for (array, bytes) in layout.arrays.iter().zip(&mut self.0) {
            bytes.resize(if array.is_input() { array.bytes } else { 0 }, 0);
            fill(array, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Dtype, Transfer};
    use rand::SeedableRng;

    #[test]
    fn the_ends_of_a_range_of_whole_numbers_are_put_among_its_elements() {
        let fill = Fill::Integers { low: -5, high: 1_000_000 };
        let array = Array {
            name: "at".into(),
            dtype: Dtype::I32,
            transfer: Transfer::In,
            fill,
            offset: 0,
            bytes: 400,
            room: 0..400,
        };
        let layout = Layout { arrays: vec![array], ..Layout::default() };
        let (mut contents, mut rng) = (Contents::default(), StdRng::seed_from_u64(1));
        contents.draw(&layout, &mut rng);
        contents.stretch(&layout, &mut rng);
        let whole: Vec<i32> =
            contents.of(0).chunks_exact(4).map(|b| i32::from_ne_bytes(b.try_into().unwrap())).collect();
        assert!(whole.contains(&-5) && whole.contains(&1_000_000), "{whole:?}");
    }
}
