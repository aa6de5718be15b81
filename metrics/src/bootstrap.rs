//! The bootstrap: the one definition of a 95 % interval (METHODOLOGY.md).

use crate::{speedup::Interval, timing::quantile};
use rand::{SeedableRng, rngs::StdRng};

/// Resamplings behind an interval.
const RESAMPLINGS: usize = 2000;
/// How much of the resampled values an interval holds.
const LEVEL: f64 = 0.95;

/// Where 95 % of the values lie that `resample` comes to, again and again; what comes to none is left out.
pub(crate) fn interval(mut resample: impl FnMut(&mut StdRng) -> Option<f64>) -> Interval {
    // Seeded by nothing secret: the same samples give the same interval on every machine.
    let mut rng = StdRng::seed_from_u64(0x5eed);
    let mut values: Vec<f64> = (0..RESAMPLINGS).filter_map(|_| resample(&mut rng)).collect();
    Interval { low: quantile(&mut values, (1.0 - LEVEL) / 2.0), high: quantile(&mut values, f64::midpoint(1.0, LEVEL)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn an_interval_holds_the_middle_of_what_is_drawn() {
        let Interval { low, high } = interval(|rng| Some(rng.random_range(0.0..1.0)));
        assert!((low - 0.025).abs() < 0.01 && (high - 0.975).abs() < 0.01, "{low} {high}");
        assert!(interval(|_| None).low.is_nan());
    }
}
