//! Eight bits of floating point: OCP's E4M3 (8-bit Floating Point Specification, 1.0, §5), as `__nv_fp8_e4m3`.
//!
//! A sign, four bits of exponent with a bias of 7, three of fraction; no infinity, one NaN of either sign, 448 the largest.

/// The largest value.
pub const LARGEST: f64 = 448.0;
/// The bits of NaN; with a sign before them it is one too.
pub const NAN: u8 = 0x7f;

/// The bits of the largest value.
const LARGEST_BITS: u8 = 0x7e;
/// The least normal value, and the step below it.
const LEAST_NORMAL: f64 = 1.0 / 64.0;
const STEP: f64 = 1.0 / 512.0;
const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
/// What a double's exponent is more by.
const REBIAS: u64 = 1023 - 7;

/// The nearest, halves to even; what is larger than the largest, infinity too, becomes the largest (as CUDA's saturation to
/// finite does).
#[must_use]
pub fn from_f64(value: f64) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let size = value.abs();
    if value.is_nan() {
        return sign | NAN;
    }
    if size >= LARGEST {
        return sign | LARGEST_BITS;
    }
    if size < LEAST_NORMAL {
        return sign | (size / STEP).round_ties_even() as u8;
    }
    let drop = FRACTION_BITS - 3;
    let bits = size.to_bits() - (REBIAS << FRACTION_BITS);
    let half = (1_u64 << (drop - 1)) - 1 + (bits >> drop & 1);
    sign | ((bits + half) >> drop) as u8
}

/// The value of these bits.
#[must_use]
pub fn to_f64(bits: u8) -> f64 {
    let (exponent, fraction) = (u64::from(bits >> 3 & 15), u64::from(bits & 7));
    let size = if bits & 0x7f == NAN {
        f64::NAN
    } else if exponent == 0 {
        fraction as f64 * STEP
    } else {
        f64::from_bits((exponent + REBIAS) << FRACTION_BITS | fraction << (FRACTION_BITS - 3))
    };
    if bits & 0x80 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_back_and_the_ends_are_those_of_the_specification() {
        for bits in 0..=u8::MAX {
            let value = to_f64(bits);
            assert_eq!(value.is_nan(), bits & 0x7f == NAN, "{bits:#x}");
            assert!(value.is_nan() || from_f64(value) == bits, "{bits:#x}: {value}");
        }
        let ends = [STEP, 7.0 * STEP, LEAST_NORMAL, 1.0, 448.0, -448.0].map(f64::to_bits);
        assert_eq!([0x01, 0x07, 0x08, 0x38, 0x7e, 0xfe].map(|bits| to_f64(bits).to_bits()), ends);
    }

    #[test]
    fn between_two_values_the_nearer_is_taken_and_at_a_half_the_even_one() {
        let values: Vec<f64> = (0..=LARGEST_BITS).map(to_f64).collect();
        for (low, pair) in values.windows(2).enumerate() {
            let (low, half) = (low as u8, f64::midpoint(pair[0], pair[1]));
            assert_eq!(from_f64(half), low + (low & 1), "{half}");
            assert_eq!((from_f64(half * (1.0 - 1e-9)), from_f64(half * (1.0 + 1e-9))), (low, low + 1), "{half}");
        }
        assert_eq!([449.0, 470.0, 1e3, f64::INFINITY, -1e30].map(from_f64), [0x7e, 0x7e, 0x7e, 0x7e, 0xfe]);
        assert_eq!([-0.0, f64::NAN].map(|value| from_f64(value) & 0x7f), [0, NAN]);
    }
}
