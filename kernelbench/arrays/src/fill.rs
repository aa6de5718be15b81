//! What does an array hold before the call?

use crate::{Dtype, e4m3};
use half::{bf16, f16};
use rand::{Rng, rngs::StdRng};
use serde::{Deserialize, Serialize};

/// What an array holds before the call. Every element is drawn on its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fill {
    /// All zero.
    Zeros,
    /// All one.
    Ones,
    /// Uniform in `[low, high)`.
    Uniform {
        /// The least value.
        low: f64,
        /// The bound above.
        high: f64,
    },
    /// Normal.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        std: f64,
        /// The share of elements that are minus infinity instead, 0 to 1.
        #[serde(default)]
        minus_infinity: f64,
    },
    /// Whole numbers from `low` to `high`, both included.
    Integers {
        /// The least value.
        low: i64,
        /// The greatest value.
        high: i64,
    },
}

/// Fills an array of `dtype`, native byte order, every element drawn on its own. A rest shorter than an element stays as it is.
pub fn fill(array: &mut [u8], dtype: Dtype, fill: Fill, rng: &mut StdRng) {
    if matches!(fill, Fill::Zeros) {
        array.fill(0);
        return;
    }
    if let (Dtype::I64, Fill::Integers { low, high }) = (dtype, fill) {
        return each(array, || rng.random_range(low..=high.max(low)).to_ne_bytes());
    }
    let mut draw = || draw(fill, rng);
    match dtype {
        Dtype::F32 => each(array, || (draw() as f32).to_ne_bytes()),
        Dtype::F64 => each(array, || draw().to_ne_bytes()),
        Dtype::F16 => each(array, || f16::from_f64(draw()).to_ne_bytes()),
        Dtype::Bf16 => each(array, || bf16::from_f64(draw()).to_ne_bytes()),
        Dtype::E4m3 => each(array, || [e4m3::from_f64(draw())]),
        Dtype::I32 => each(array, || (draw().floor() as i32).to_ne_bytes()),
        Dtype::I64 => each(array, || (draw().floor() as i64).to_ne_bytes()),
    }
}

fn each<const N: usize>(array: &mut [u8], mut element: impl FnMut() -> [u8; N]) {
    for place in array.chunks_exact_mut(N) {
        place.copy_from_slice(&element());
    }
}

fn draw(fill: Fill, rng: &mut StdRng) -> f64 {
    match fill {
        Fill::Zeros => 0.0,
        Fill::Ones => 1.0,
        Fill::Uniform { low, high } => low + (high - low) * rng.random::<f64>(),
        Fill::Normal { minus_infinity, .. } if minus_infinity > 0.0 && rng.random::<f64>() < minus_infinity => {
            f64::NEG_INFINITY
        }
        Fill::Normal { mean, std, .. } => mean + std * standard_normal(rng),
        Fill::Integers { low, high } => rng.random_range(low..=high.max(low)) as f64,
    }
}

/// Box and Muller's transform.
fn standard_normal(rng: &mut StdRng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn floats(how: Fill, seed: u64) -> Vec<f32> {
        let mut bytes = vec![0; 40_000];
        fill(&mut bytes, Dtype::F32, how, &mut StdRng::seed_from_u64(seed));
        bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn a_normal_fill_has_its_mean_its_spread_and_its_share_of_infinities() {
        let drawn = floats(Fill::Normal { mean: 3.0, std: 2.0, minus_infinity: 0.25 }, 1);
        let finite: Vec<f64> = drawn.iter().filter(|x| x.is_finite()).map(|x| f64::from(*x)).collect();
        let mean = finite.iter().sum::<f64>() / finite.len() as f64;
        let spread = (finite.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / finite.len() as f64).sqrt();
        assert!((mean - 3.0).abs() < 0.1 && (spread - 2.0).abs() < 0.1, "{mean} {spread}");
        assert!((2200..2800).contains(&(drawn.len() - finite.len())), "{}", finite.len());
    }

    #[test]
    fn uniform_and_integers_keep_within_their_bounds_and_reach_them() {
        let uniform = floats(Fill::Uniform { low: -1.0, high: 2.0 }, 2);
        assert!(uniform.iter().all(|x| (-1.0..=2.0).contains(x)) && uniform.iter().any(|x| *x > 1.9));
        let mut whole = floats(Fill::Integers { low: -2, high: 1 }, 3);
        whole.sort_by(f32::total_cmp);
        whole.dedup();
        assert_eq!(whole, [-2.0, -1.0, 0.0, 1.0]);
    }

    #[test]
    fn the_seed_decides_the_content() {
        let normal = Fill::Normal { mean: 0.0, std: 1.0, minus_infinity: 0.0 };
        assert_eq!(floats(normal, 7), floats(normal, 7));
        assert_ne!(floats(normal, 7), floats(normal, 8));
    }

    #[test]
    fn halves_and_whole_numbers_are_rounded_to_their_type() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut bytes = [0; 6];
        fill(&mut bytes, Dtype::Bf16, Fill::Ones, &mut rng);
        assert_eq!(bytes, [0x80, 0x3f, 0x80, 0x3f, 0x80, 0x3f]);
        fill(&mut bytes, Dtype::E4m3, Fill::Integers { low: 17, high: 17 }, &mut rng);
        assert_eq!(bytes, [0x58; 6], "17 lies between 16 and 18, and 16 is even");
        let mut bytes = [0; 8];
        fill(&mut bytes, Dtype::I64, Fill::Integers { low: i64::MAX, high: i64::MAX }, &mut rng);
        assert_eq!(i64::from_ne_bytes(bytes), i64::MAX);
    }
}
