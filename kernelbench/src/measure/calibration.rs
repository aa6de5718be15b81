//! Calibration: how many calls make a request long enough for a clock outside?

use super::{numbers::Numbers, reading::Reading};
use crate::{
    engine::{
        backend::{Inputs, Pair, Side},
        check::REFERENCE_PATIENCE,
    },
    result::error::Attempt,
};
use rand::rngs::StdRng;

/// What a candidate's calls of a request last at least, as a part of what the reference's do: what it costs to reach a
/// process would hide it otherwise.
const OF_CANDIDATE: f64 = 0.5;
/// What a slow candidate's calls last at most in a glance, in the length of a request.
const SLOW: f64 = 4.0;
/// The same outside a glance.
const ENDLESS: f64 = 16.0;
/// How many times as many calls that may take.
const MORE: f64 = 16.0;

/// What one call takes by the reference's own clock, in nanoseconds: found out once for a session and a case.
pub(crate) fn call_ns(pair: &mut impl Pair, numbers: &Numbers, most: usize, rng: &mut StdRng) -> Attempt<f64> {
    if let Some(known) = pair.known_call_ns() {
        return Ok(known);
    }
    let (calls, times) = numbers.calibration;
    let calls = calls.clamp(1, most);
    let recorded = pair.prepare(calls, true)?;
    let mut least = f64::INFINITY;
    for _ in 0..times.max(1) {
        pair.draw(Inputs::Drawn, rng)?;
        if let Some(ran) = pair.call(Side::Reference, REFERENCE_PATIENCE, rng)? {
            least = least.min(ran.inside_ns / calls as f64);
        }
    }
    if !least.is_finite() {
        least = numbers.request_ns;
    }
    // A candidate that cannot be recorded has the reference's launches issued one by one: that is not its time elsewhere.
    if recorded {
        pair.note_call_ns(least);
    }
    Ok(least)
}

/// How many calls make a request of this length.
pub(crate) fn calls(request_ns: f64, call_ns: f64, most: usize) -> usize {
    ((request_ns / call_ns.max(1.0)) as usize + 1).clamp(1, most.max(1))
}

/// How many calls make the candidate's request long enough too, where so many took so long. Its clock may lie, so ours has a
/// say, and the reference's request bounds it.
pub(crate) fn enough(
    calls: usize,
    [reference, ran]: &[Reading; 2],
    request_ns: f64,
    longest_ns: f64,
    most: usize,
) -> usize {
    let by_ours = ran.outside_ns - reference.gap_ns();
    let times = OF_CANDIDATE * request_ns / ran.inside_ns.min(by_ours).max(1.0);
    let times = times.min(MORE).min(longest_ns / reference.inside_ns.max(1.0));
    if times > 1.0 { ((calls as f64 * times) as usize + 1).min(most) } else { calls }
}

/// At most so many calls for a glance, where one of the candidate takes so long: those of a candidate that is many times slower
/// than its reference last no longer than a few requests. What is only ranked by it may say that it is slow.
pub(crate) fn few_enough(calls: usize, ran_once: &Reading, request_ns: f64) -> usize {
    ((SLOW * request_ns / ran_once.inside_ns.max(1.0)) as usize).clamp(1, calls)
}

/// At most so many calls in the loop, where a request of so many took the candidate so long: one that is many times slower than
/// its reference is not waited for as long as a precise ratio would take. By both clocks, for its own may lie.
pub(crate) fn not_endless(calls: usize, [reference, ran]: &[Reading; 2], request_ns: f64) -> usize {
    let by_ours = ran.outside_ns - reference.gap_ns();
    let part = ENDLESS * request_ns / ran.inside_ns.min(by_ours).max(1.0);
    if part < 1.0 { ((calls as f64 * part) as usize).clamp(1, calls) } else { calls }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_holds_more_calls_of_a_candidate_that_is_much_faster_and_no_more_than_fit() {
        let ran = |outside_us: u32, inside_us: u32| Reading {
            outside_ns: f64::from(outside_us) * 1000.0,
            inside_ns: f64::from(inside_us) * 1000.0,
        };
        let pair = |outside_us, inside_us| [ran(1300, 1200), ran(outside_us, inside_us)];
        let enough = |calls, pair: &[Reading; 2], most| super::enough(calls, pair, 1.2e6, 20e6, most);
        assert_eq!(enough(100, &pair(1300, 1200), 1024), 100);
        assert_eq!(enough(100, &pair(340, 240), 1024), 251);
        assert_eq!(enough(100, &pair(340, 240), 200), 200);
        // One that says it takes long does not keep its requests short, nor makes one that says nothing them endless.
        assert_eq!(enough(100, &pair(340, 1200), 1024), 251);
        assert_eq!(enough(10, &pair(340, 0), 1024), 161);
        assert_eq!(enough(1, &[ran(19_100, 19_000), ran(150, 50)], 1024), 2);
        assert_eq!(enough(1, &[ran(50_100, 50_000), ran(150, 50)], 1024), 1);
    }

    #[test]
    fn a_glance_at_a_candidate_that_is_many_times_slower_holds_fewer_calls_and_one_at_least() {
        let few = |ns| few_enough(48, &Reading { outside_ns: ns, inside_ns: ns }, 1.2e6);
        assert_eq!([0.0, 25e3, 100e3, 200e3, 2.4e6, 36e6].map(few), [48, 48, 48, 24, 2, 1]);
    }

    #[test]
    fn a_request_of_a_candidate_that_is_many_times_slower_lasts_no_longer_than_sixteen() {
        let read = |ns| Reading { outside_ns: ns, inside_ns: ns };
        let fewer = |ns| not_endless(48, &[read(1.2e6), read(ns)], 1.2e6);
        assert_eq!([0.0, 1.2e6, 19.2e6, 38.4e6, 153.6e6, 4e9].map(fewer), [48, 48, 48, 24, 6, 1]);
        let lies = Reading { outside_ns: 1.3e6, inside_ns: 4e9 };
        assert_eq!(not_endless(48, &[read(1.2e6), lies], 1.2e6), 48, "its own clock says so alone");
    }
}
