//! Contents of a timed call: made anew at the cost of writing them.
//!
//! A draw takes an exact generator its time, and a timed call may not cost that. So every element is made of two of a few
//! thousand drawn ones, or of plain random bits, by a secret key of that call and that array: it has the fill's
//! distribution, and nothing that an earlier call put out is of any use for it.

use crate::{Dtype, Fill, e4m3, fill};
use half::{bf16, f16};
use rand::rngs::StdRng;

/// Drawn normal numbers of which others are made; a power of two.
const NORMALS: usize = 4096;

/// How elements are mixed: the squares of the parts add up to one, so the spread stays.
const PARTS: (f64, f64) = (0.8, 0.6);

/// Makes contents at the cost of writing them.
pub struct Maker(Vec<f64>);

impl Maker {
    /// One with normal numbers of its own.
    #[must_use]
    pub fn new(rng: &mut StdRng) -> Self {
        let mut bytes = vec![0; NORMALS * 8];
        fill(&mut bytes, Dtype::F64, Fill::Normal { mean: 0.0, std: 1.0, minus_infinity: 0.0 }, rng);
        Self(bytes.chunks_exact(8).filter_map(|b| b.try_into().ok()).map(f64::from_ne_bytes).collect())
    }

    /// Fills an array of `dtype`, native byte order, with contents that the key decides and that have the distribution of `fill`.
    pub fn make(&self, bytes: &mut [u8], dtype: Dtype, fill: Fill, key: u64) {
        match fill {
            // What is the same in every call by the task's own word.
            Fill::Zeros => bytes.fill(0),
            Fill::Ones => write(bytes, dtype, key, |_| 1.0),
            Fill::Uniform { low, high } => {
                write(bytes, dtype, key, |bits| low + (high - low) * ((bits >> 11) as f64 / (1_u64 << 53) as f64));
            }
            Fill::Normal { mean, std, minus_infinity } if minus_infinity > 0.0 => {
                let share = (minus_infinity * 4_294_967_296.0) as u64;
                let normal = |bits| mean + std * self.normal(bits);
                write(bytes, dtype, key, |bits| if bits >> 32 < share { f64::NEG_INFINITY } else { normal(bits) });
            }
            Fill::Normal { mean, std, .. } => write(bytes, dtype, key, |bits| mean + std * self.normal(bits)),
            Fill::Integers { low, high } => integers(bytes, dtype, key, low, high.max(low)),
        }
    }

    /// Of two drawn numbers and two signs, 2^26 of the 32 low bits' worth.
    fn normal(&self, bits: u64) -> f64 {
        let at = |shift: u32| self.0[(bits >> shift) as usize % NORMALS];
        let signed = |value: f64, shift: u32| f64::from_bits(value.to_bits() ^ (bits >> shift & 1) << 63);
        signed(at(0) * PARTS.0, 24) + signed(at(12) * PARTS.1, 25)
    }
}

/// Whole numbers from `low` to `high`.
fn integers(bytes: &mut [u8], dtype: Dtype, key: u64, low: i64, high: i64) {
    let span = u128::from(high.abs_diff(low)) + 1;
    let one = |bits: u64| low.wrapping_add_unsigned(((u128::from(bits) * span) >> 64) as u64);
    match dtype {
        Dtype::I64 => each(bytes, key, |bits| one(bits).to_ne_bytes()),
        _ => write(bytes, dtype, key, |bits| one(bits) as f64),
    }
}

fn write(bytes: &mut [u8], dtype: Dtype, key: u64, value: impl Fn(u64) -> f64) {
    match dtype {
        Dtype::F32 => each(bytes, key, |bits| (value(bits) as f32).to_ne_bytes()),
        Dtype::F64 => each(bytes, key, |bits| value(bits).to_ne_bytes()),
        Dtype::F16 => each(bytes, key, |bits| f16::from_f64(value(bits)).to_ne_bytes()),
        Dtype::Bf16 => each(bytes, key, |bits| bf16::from_f64(value(bits)).to_ne_bytes()),
        Dtype::E4m3 => each(bytes, key, |bits| [e4m3::from_f64(value(bits))]),
        Dtype::I32 => each(bytes, key, |bits| (value(bits).floor() as i32).to_ne_bytes()),
        Dtype::I64 => each(bytes, key, |bits| (value(bits).floor() as i64).to_ne_bytes()),
    }
}

/// Every element of 64 bits that its place and the key decide (the finalizer of `SplitMix64`).
fn each<const N: usize>(bytes: &mut [u8], key: u64, element: impl Fn(u64) -> [u8; N]) {
    let mut state = key;
    for place in bytes.chunks_exact_mut(N) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        place.copy_from_slice(&element(bits ^ bits >> 31));
    }
}

/// Fills an array with one element.
pub fn repeat(element: &[u8], array: &mut [u8]) {
    let Some(first) = array.get_mut(..element.len()) else { return };
    first.copy_from_slice(element);
    let mut done = element.len();
    while done < array.len() {
        let next = done.min(array.len() - done);
        array.copy_within(..next, done);
        done += next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn made(dtype: Dtype, fill: Fill, key: u64) -> Vec<u8> {
        let bytes = 40_000 * dtype.bytes();
        let (maker, mut bytes) = (Maker::new(&mut StdRng::seed_from_u64(1)), vec![0; bytes]);
        maker.make(&mut bytes, dtype, fill, key);
        bytes
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn what_is_made_has_the_distribution_that_the_task_gives() {
        let normal = floats(&made(Dtype::F32, Fill::Normal { mean: 3.0, std: 2.0, minus_infinity: 0.25 }, 7));
        let finite: Vec<f64> = normal.iter().filter(|x| x.is_finite()).map(|x| f64::from(*x)).collect();
        let mean = finite.iter().sum::<f64>() / finite.len() as f64;
        let spread = (finite.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / finite.len() as f64).sqrt();
        assert!((mean - 3.0).abs() < 0.1 && (spread - 2.0).abs() < 0.1, "{mean} {spread}");
        assert!((9_500..10_500).contains(&(normal.len() - finite.len())), "{}", finite.len());
        let uniform = floats(&made(Dtype::F32, Fill::Uniform { low: -1.0, high: 2.0 }, 8));
        assert!(uniform.iter().all(|x| (-1.0..=2.0).contains(x)) && uniform.iter().any(|x| *x > 1.9));
        let mut whole = floats(&made(Dtype::F32, Fill::Integers { low: -2, high: 1 }, 9));
        whole.sort_by(f32::total_cmp);
        whole.dedup();
        assert_eq!(whole, [-2.0, -1.0, 0.0, 1.0]);
        let widest = made(Dtype::I64, Fill::Integers { low: i64::MIN, high: i64::MAX }, 10);
        assert!(widest.chunks_exact(8).any(|b| i64::from_ne_bytes(b.try_into().unwrap()) < i64::MIN / 2));
    }

    #[test]
    fn hardly_an_element_of_one_call_is_found_in_the_next() {
        let normal = Fill::Normal { mean: 0.0, std: 1.0, minus_infinity: 0.0 };
        let before: std::collections::HashSet<u32> =
            floats(&made(Dtype::F32, normal, 1)).iter().map(|x| x.to_bits()).collect();
        let again = floats(&made(Dtype::F32, normal, 2)).iter().filter(|x| before.contains(&x.to_bits())).count();
        assert!(again < 400, "{again} of 40000");
    }
}
