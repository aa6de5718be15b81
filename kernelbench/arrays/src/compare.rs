//! Does an output count as the same?
//!
//! Every element is compared: `|c - r| <= atol + rtol * |r|`. NaN never passes, not even where the reference has one, and
//! an infinity passes only beside the same infinity. `kernelbench/tests/comparison/cases.json` has the cases that this rule, the GPU
//! verifier's and Python's all pass.

use crate::{Dtype, Spread, e4m3};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// When an output counts as the same: `|c - r| <= atol + rtol * |r|` for at least `share` of the elements, NaN never
/// (Hawkeye G.3, with a share of 1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolerance {
    /// Absolute.
    pub atol: f64,
    /// Relative to the reference.
    pub rtol: f64,
    /// The share of elements that must pass, 0 to 1.
    pub share: f64,
}

/// Elements that are looked at in one go.
const STRETCH: usize = 1024;
/// What a core looks at at least, in bytes, and how many do at most.
const LEAST_BYTES: usize = 256 << 10;
const MOST_CORES: usize = 8;

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Elements in all.
    pub total: u64,
    /// Elements outside the tolerance.
    pub wrong: u64,
    /// Elements that are NaN in the candidate's output.
    pub nan: u64,
    /// Wrong elements that still hold the poison.
    pub unwritten: u64,
    /// The index of the element that is furthest outside; 0 where none is.
    pub worst_at: u64,
    /// The reference's value there.
    pub expected: f64,
    /// The candidate's value there.
    pub got: f64,
    /// Where the wrong elements lie, and how wrong they are at most.
    pub spread: Spread,
}

impl Comparison {
    /// Whether at least `share` (0 to 1) of the elements are right.
    #[must_use]
    pub fn passes(&self, share: f64) -> bool {
        self.wrong == 0 || (self.total - self.wrong) as f64 >= share * self.total as f64
    }
}

/// Compares two arrays of `dtype` in native byte order. `poison` is the element that outputs held before the call.
///
/// # Panics
/// Where the arrays differ in length: both are ours.
#[must_use]
pub fn compare(
    dtype: Dtype,
    reference: &[u8],
    candidate: &[u8],
    tolerance: &Tolerance,
    poison: Option<&[u8]>,
) -> Comparison {
    part(dtype, reference, candidate, tolerance, poison).found
}

/// The same, on several cores at once where there is much to look at.
///
/// # Panics
/// As `compare`.
#[must_use]
pub fn compare_on_cores(
    dtype: Dtype,
    reference: &[u8],
    candidate: &[u8],
    tolerance: &Tolerance,
    poison: Option<&[u8]>,
) -> Comparison {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MOST_CORES);
    let bytes = reference.len().div_ceil(cores).max(LEAST_BYTES).next_multiple_of(STRETCH * dtype.bytes());
    if bytes >= reference.len() {
        return compare(dtype, reference, candidate, tolerance, poison);
    }
    assert_eq!(reference.len(), candidate.len(), "both arrays were laid out by the same plan");
    let parts = reference.chunks(bytes).zip(candidate.chunks(bytes));
    let found = std::thread::scope(|scope| {
        let begun: Vec<_> = parts.map(|(r, c)| scope.spawn(move || part(dtype, r, c, tolerance, poison))).collect();
        begun.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    joined(found)
}

/// What was found in a part of an array, and how far its worst element is outside.
struct Part {
    found: Comparison,
    worst: f64,
}

/// What was found in all parts, in their order.
fn joined(parts: Vec<Part>) -> Comparison {
    let mut all = Part { found: Comparison::default(), worst: 0.0 };
    for Part { found, worst } in parts {
        if worst > all.worst {
            all.worst = worst;
            all.found.worst_at = all.found.total + found.worst_at;
            (all.found.expected, all.found.got) = (found.expected, found.got);
        }
        all.found.spread.join(&found.spread, all.found.total);
        all.found.total += found.total;
        all.found.wrong += found.wrong;
        all.found.nan += found.nan;
        all.found.unwritten += found.unwritten;
    }
    all.found.spread.shape = vec![all.found.total];
    all.found
}

fn part(dtype: Dtype, reference: &[u8], candidate: &[u8], tolerance: &Tolerance, poison: Option<&[u8]>) -> Part {
    assert_eq!(reference.len(), candidate.len(), "both arrays were laid out by the same plan");
    let size = dtype.bytes();
    let mut found = Comparison { total: (reference.len() / size) as u64, ..Comparison::default() };
    found.spread.shape = vec![found.total];
    let mut worst = 0.0;
    let (mut r, mut c) = ([0.0; STRETCH], [0.0; STRETCH]);
    let stretches = reference.chunks(STRETCH * size).zip(candidate.chunks(STRETCH * size));
    for (stretch, (reference, candidate)) in stretches.enumerate() {
        let count = reference.len() / size;
        if reference == candidate && dtype == Dtype::I64 {
            continue;
        }
        widen(dtype, reference, &mut r);
        widen(dtype, candidate, &mut c);
        if dtype != Dtype::I64 && all_close(&r[..count], &c[..count], tolerance) {
            continue;
        }
        for i in 0..count {
            let bytes = &candidate[i * size..(i + 1) * size];
            let excess = match dtype {
                Dtype::I64 => whole_excess(&reference[i * size..], bytes, tolerance),
                _ => excess(r[i], c[i], tolerance),
            };
            if excess <= 0.0 {
                continue;
            }
            found.wrong += 1;
            found.nan += u64::from(c[i].is_nan());
            found.unwritten += u64::from(poison == Some(bytes));
            found.spread.take((stretch * STRETCH + i) as u64, r[i], c[i]);
            if excess > worst {
                worst = excess;
                (found.worst_at, found.expected, found.got) = ((stretch * STRETCH + i) as u64, r[i], c[i]);
            }
        }
    }
    Part { found, worst }
}

/// What is allowed beside a number of this size.
fn allowed(size: f64, tolerance: &Tolerance) -> f64 {
    tolerance.atol + tolerance.rtol * size
}

/// The plain case without branches: a NaN or an infinity on either side makes it false.
fn all_close(reference: &[f64], candidate: &[f64], tolerance: &Tolerance) -> bool {
    let close = |(r, c): (&f64, &f64)| ((c - r).abs() <= allowed(r.abs(), tolerance)) & r.is_finite() & c.is_finite();
    reference.iter().zip(candidate).map(close).fold(true, |all, one| all & one)
}

/// How far outside the tolerance, at most infinitely; 0 where it is inside.
fn excess(reference: f64, candidate: f64, tolerance: &Tolerance) -> f64 {
    #[expect(clippy::float_cmp, reason = "an infinity passes only beside the same infinity")]
    if reference.is_nan() || candidate.is_nan() {
        f64::INFINITY
    } else if reference.is_infinite() || candidate.is_infinite() {
        if reference == candidate { 0.0 } else { f64::INFINITY }
    } else {
        beyond((candidate - reference).abs(), allowed(reference.abs(), tolerance))
    }
}

/// The same for 64-bit integers, whose difference a double would round away.
fn whole_excess(reference: &[u8], candidate: &[u8], tolerance: &Tolerance) -> f64 {
    let whole = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| i128::from(i64::from_ne_bytes(*bytes)));
    let (r, c) = (whole(reference), whole(candidate));
    beyond((c - r).abs() as f64, allowed(r.abs() as f64, tolerance))
}

/// How far a distance is beyond what is allowed. Both may be infinite, of numbers near the greatest.
fn beyond(distance: f64, allowed: f64) -> f64 {
    if distance <= allowed { 0.0 } else { distance - allowed }
}

fn widen(dtype: Dtype, from: &[u8], to: &mut [f64; STRETCH]) {
    match dtype {
        Dtype::F32 => each(from, to, |b| f64::from(f32::from_ne_bytes(b))),
        Dtype::F64 => each(from, to, f64::from_ne_bytes),
        Dtype::F16 => each(from, to, |b| f16::from_ne_bytes(b).to_f64()),
        Dtype::Bf16 => each(from, to, |b| bf16::from_ne_bytes(b).to_f64()),
        Dtype::E4m3 => each(from, to, |[bits]| e4m3::to_f64(bits)),
        Dtype::I32 => each(from, to, |b| f64::from(i32::from_ne_bytes(b))),
        Dtype::I64 => each(from, to, |b| i64::from_ne_bytes(b) as f64),
    }
}

fn each<const N: usize>(from: &[u8], to: &mut [f64; STRETCH], value: impl Fn([u8; N]) -> f64) {
    for (bytes, place) in from.chunks_exact(N).zip(to) {
        *place = value(bytes.try_into().unwrap_or([0; N]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: Tolerance = Tolerance { atol: 0.0, rtol: 0.0, share: 1.0 };

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_ne_bytes()).collect()
    }

    fn wrong(reference: &[f32], candidate: &[f32], tolerance: Tolerance) -> u64 {
        compare(Dtype::F32, &bytes(reference), &bytes(candidate), &tolerance, None).wrong
    }

    #[test]
    fn the_tolerance_is_absolute_plus_relative_to_the_reference() {
        let tolerance = Tolerance { atol: 1.0, rtol: 0.5, share: 1.0 };
        assert_eq!(wrong(&[10.0, 10.0, -10.0, 0.0], &[16.0, 16.1, -16.0, 1.1], tolerance), 2);
        assert_eq!(wrong(&[16.1], &[10.0], tolerance), 0);
    }

    #[test]
    fn nan_never_passes_and_infinities_must_be_the_same() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let loose = Tolerance { atol: f64::MAX, rtol: 1.0, share: 1.0 };
        assert_eq!(wrong(&[nan, 1.0, nan], &[nan, nan, 1.0], loose), 3);
        assert_eq!(wrong(&[inf, -inf], &[inf, -inf], loose), 0);
        assert_eq!(wrong(&[inf, inf, 1.0, -inf], &[-inf, 1.0, inf, f32::MIN], loose), 4);
    }

    #[test]
    fn the_worst_element_the_nans_and_what_was_never_written_are_counted() {
        let poison = f32::from_bits(0x7fc1_2345);
        let mut candidate = vec![1.0; 3000];
        (candidate[5], candidate[2048], candidate[2999]) = (1.5, 9.0, 2.0);
        let found = compare(Dtype::F32, &bytes(&vec![1.0; 3000]), &bytes(&candidate), &EXACT, None);
        assert_eq!((found.total, found.wrong, found.worst_at, found.got), (3000, 3, 2048, 9.0));
        assert_eq!((found.spread.ranges, found.spread.max_relative), (vec![[5, 2999]], Some(8.0)));
        candidate[7] = poison;
        candidate[8] = f32::NAN;
        let poison = poison.to_ne_bytes();
        let found = compare(Dtype::F32, &bytes(&vec![1.0; 3000]), &bytes(&candidate), &EXACT, Some(&poison));
        assert_eq!((found.wrong, found.nan, found.unwritten, found.worst_at), (5, 2, 1, 7));
    }

    #[test]
    fn on_several_cores_the_same_is_found() {
        let right = vec![1.0_f32; 3 * LEAST_BYTES / 4 + 7];
        let mut got = right.clone();
        let (last, poison) = (got.len() - 1, f32::from_bits(0x7fc1_2345));
        (got[3], got[LEAST_BYTES / 4 - 1], got[LEAST_BYTES / 4], got[last]) = (2.0, 9.0, 9.0, 3.0);
        for also in [3.5, f32::NAN, poison] {
            got[LEAST_BYTES / 3] = also;
            let [right, got] = [bytes(&right), bytes(&got)];
            let poison = Some(poison.to_ne_bytes());
            let poison = poison.as_ref().map(<[u8; 4]>::as_slice);
            let found = compare_on_cores(Dtype::F32, &right, &got, &EXACT, poison);
            assert_eq!(found.wrong, 5);
            let one = compare(Dtype::F32, &right, &got, &EXACT, poison);
            // A NaN is not equal to itself.
            assert_eq!(format!("{found:?}"), format!("{one:?}"));
        }
        let parts = [0..2000, 2000..4048]
            .map(|range| part(Dtype::F32, &bytes(&right[range.clone()]), &bytes(&got[range]), &EXACT, None));
        assert_eq!((joined(parts.into()).total, joined(vec![]).total), (4048, 0));
    }

    #[test]
    fn a_share_below_one_forgives_that_many_and_no_more() {
        let found = Comparison { total: 100, wrong: 1, ..Comparison::default() };
        assert!(found.passes(0.99) && !found.passes(0.995) && !found.passes(1.0));
    }

    #[test]
    fn every_type_is_compared_by_its_value() {
        let half = |x: f32| f16::from_f32(x).to_ne_bytes();
        let brain = |x: f32| bf16::from_f32(x).to_ne_bytes();
        let close = Tolerance { atol: 0.5, rtol: 0.0, share: 1.0 };
        assert_eq!(compare(Dtype::F16, &half(2.0), &half(2.5), &close, None).wrong, 0);
        assert_eq!(compare(Dtype::Bf16, &brain(2.0), &brain(3.0), &close, None).wrong, 1);
        assert_eq!(compare(Dtype::I32, &7_i32.to_ne_bytes(), &8_i32.to_ne_bytes(), &close, None).wrong, 1);
        assert_eq!(compare(Dtype::I64, &(-7_i64).to_ne_bytes(), &(-7_i64).to_ne_bytes(), &close, None).wrong, 0);
    }

    #[test]
    fn large_integers_that_one_double_stands_for_are_told_apart() {
        let wrong = |r: i64, c: i64| compare(Dtype::I64, &r.to_ne_bytes(), &c.to_ne_bytes(), &EXACT, None).wrong;
        assert_eq!((wrong(i64::MAX, i64::MAX - 1), wrong(1 << 53, (1 << 53) + 1)), (1, 1));
        assert_eq!((wrong(i64::MIN, i64::MAX), wrong(i64::MIN, i64::MIN)), (1, 0));
    }
}
