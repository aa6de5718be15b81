//! The dispatch overhead of a request, and the time that counts of it.
//!
//! Our clock stands outside a process and is not to be fooled, but it also counts what it takes to reach that process and
//! to hear its answer. The clock inside counts the calls alone, and a candidate's may lie. With the gap g = outside - inside
//! of the reference's requests, which have no cause to lie, G its 90th percentile plus the jitter of dispatch between
//! processes, and m its mean without the ends:
//!
//! ```text
//! t = min(outside, max(inside, outside - G))             what a request took
//! e = max(0, mean(outside - t) + 2 SE - m) / mean(t)     what a slow clock may have hidden on the whole
//! ```
//!
//! An honest process is timed by its own clock. One whose clock goes slow gains G less its own gap, a few dozen
//! microseconds a request, and its interval reaches down by e, which holds all of that.

use super::{numbers::Clock, reading::Reading};
use crate::result::failure::Failure;
use metrics::Statistic;

/// By how much the mean gap of processes alike was seen to differ, in nanoseconds (docs/results/clock.md), and what that
/// may be of a short request at most, as a part of it.
const DISPATCH_JITTER: (f64, f64) = (35_000.0, 0.02);
/// The part of the reference's gaps that what is usual reaches.
const GAP_QUANTILE: f64 = 0.9;
/// The part of the values at either end that a mean leaves out.
const TRIM_FRACTION: f64 = 0.1;
/// Standard errors of a mean that its doubt holds.
const CONFIDENCE_SE: f64 = 2.0;
/// How much more than a request that calls nothing the reference's may cost beside its calls, in times and in nanoseconds.
/// Above that its own clock does not see all of its work.
const MORE_THAN_EMPTY: (f64, f64) = (3.0, 100_000.0);

/// What it costs to reach a process and to hear its answer, in nanoseconds a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DispatchOverhead {
    clock: Clock,
    /// On the whole.
    pub(crate) typical_ns: f64,
    /// At most, as a rule.
    most_ns: f64,
}

impl DispatchOverhead {
    /// What the reference's requests say of it, and a request that calls nothing, where that was tried.
    pub(crate) fn of(clock: Clock, reference: &[Reading], empty_ns: Option<f64>) -> Self {
        let empty_ns = empty_ns.filter(|empty| *empty > 0.0);
        if clock == Clock::Outside {
            let cost = empty_ns.unwrap_or(0.0);
            return Self { clock, typical_ns: cost, most_ns: cost };
        }
        let gap = trimmed_mean(reference.iter().map(Reading::gap_ns));
        let (times, more) = MORE_THAN_EMPTY;
        match empty_ns {
            // The reference works beside its own clock: what an empty request costs is all that can be taken off.
            Some(empty) if gap > times * empty + more => {
                Self { clock: Clock::Outside, typical_ns: empty, most_ns: empty }
            }
            _ => Self { clock, typical_ns: gap, most_ns: usual_gap_ns(reference).max(gap) },
        }
    }

    /// The time that counts of a request, in nanoseconds.
    pub(crate) fn counted_ns(&self, ran: &Reading) -> f64 {
        let least = match self.clock {
            Clock::Outside => (ran.outside_ns - self.most_ns).max(ran.outside_ns / 2.0),
            Clock::Inside => {
                let beyond = ran.outside_ns - self.most_ns;
                ran.inside_ns.max(beyond - DISPATCH_JITTER.0.min(DISPATCH_JITTER.1 * beyond))
            }
        };
        least.min(ran.outside_ns).max(1.0)
    }

    /// What a clock that goes slow may have hidden of a candidate's requests, as a part of what was counted.
    pub(crate) fn hidden_part(&self, candidate: &[Reading]) -> f64 {
        if self.clock == Clock::Outside {
            return 0.0;
        }
        // No request has more that is not counted than is usual, so that nothing needs to be left out at the ends.
        let (aside, error) = mean(candidate.iter().map(|ran| ran.outside_ns - self.counted_ns(ran)));
        let (counted, _) = mean(candidate.iter().map(|ran| self.counted_ns(ran)));
        (aside + CONFIDENCE_SE * error - self.typical_ns).max(0.0) / counted.max(1.0)
    }
}

/// The mean of values, and its standard error.
fn mean(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.collect();
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0) / count).sqrt())
}

/// The mean of values without those at either end: of gaps, of which a request has one of two, it scatters less than a
/// median.
fn trimmed_mean(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let ends = (values.len() as f64 * TRIM_FRACTION) as usize;
    mean(values[ends..values.len() - ends].iter().copied()).0
}

fn usual_gap_ns(readings: &[Reading]) -> f64 {
    let mut gaps: Vec<f64> = readings.iter().map(Reading::gap_ns).collect();
    gaps.sort_by(f64::total_cmp);
    let at = (gaps.len().saturating_sub(1)) as f64 * GAP_QUANTILE;
    gaps.get(at.round() as usize).copied().unwrap_or(0.0)
}

/// The failure of a candidate whose clock is always further from ours than the reference's is now and then, or ahead of
/// ours: it was tampered with, or there is work beside it. `floor_ns` and `share` are what clocks may disagree by on any
/// machine.
pub(crate) fn contradiction(
    case: &str,
    pairs: &[[Reading; 2]],
    cost_ns: f64,
    (floor_ns, share): (f64, f64),
) -> Option<Failure> {
    let reference: Vec<Reading> = pairs.iter().map(|pair| pair[0]).collect();
    let usual = usual_gap_ns(&reference).max(cost_ns);
    let allowed = |ran: &Reading| 2.0 * usual + share * ran.outside_ns + floor_ns;
    let apart = pairs.iter().all(|[_, ran]| ran.gap_ns() > allowed(ran));
    let ahead = pairs.iter().any(|[_, ran]| ran.gap_ns() < -floor_ns);
    let median = |of: fn(&Reading) -> f64| {
        Statistic::Median.of(&pairs.iter().map(|[_, ran]| of(ran)).collect::<Vec<_>>()) as u64
    };
    (!pairs.is_empty() && (apart || ahead)).then(|| Failure::Clocks {
        case: case.to_owned(),
        inside_ns: median(|ran| ran.inside_ns),
        outside_ns: median(|ran| ran.outside_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISAGREEMENT: (f64, f64) = (50_000.0, 0.03);

    fn ran(outside_us: u32, inside_us: u32) -> Reading {
        Reading { outside_ns: f64::from(outside_us) * 1000.0, inside_ns: f64::from(inside_us) * 1000.0 }
    }

    fn pairs(reference: [u32; 2], candidate: impl Fn(u32) -> Reading) -> Vec<[Reading; 2]> {
        let [outside, inside] = reference;
        (0..20).map(|n| [ran(outside + n % 5, inside), candidate(n)]).collect()
    }

    /// The candidate's time on the whole, and what its clock may have hidden, as a part of it.
    fn timed(pairs: &[[Reading; 2]], empty_ns: Option<f64>) -> (f64, f64) {
        let [reference, candidate] = [0, 1].map(|side| pairs.iter().map(|pair| pair[side]).collect::<Vec<_>>());
        let overhead = DispatchOverhead::of(Clock::Inside, &reference, empty_ns);
        let counted: Vec<f64> = candidate.iter().map(|ran| overhead.counted_ns(ran)).collect();
        (counted.iter().sum::<f64>() / counted.len() as f64, overhead.hidden_part(&candidate))
    }

    #[test]
    fn a_process_that_is_a_little_harder_or_easier_to_reach_is_as_fast_as_its_clock_says() {
        for reached_in in [280, 302, 330] {
            let (time, _) = timed(&pairs([3300, 3000], |n| ran(3000 + reached_in + n % 5, 3000)), None);
            assert!((time - 3_000_000.0).abs() < 1.0, "{reached_in}: {time}");
        }
    }

    #[test]
    fn a_clock_that_goes_slow_gains_little_and_its_interval_holds_that() {
        for (outside, inside) in [(20_300, 20_000), (3_300, 3_000), (1_300, 1_200), (900, 400)] {
            let truth = f64::from(inside) * 1000.0;
            for told in [99, 50, 1] {
                let lie = inside * told / 100;
                let (time, hidden) = timed(&pairs([outside, inside], |n| ran(outside + n % 5, lie)), None);
                assert!(time > 0.965 * truth && time < truth + 1.0, "{inside} told as {lie}: {time}");
                assert!(time * (1.0 + hidden) > truth - 1.0, "{inside} told as {lie}: {time} and {hidden}");
            }
        }
    }

    #[test]
    fn a_clock_that_goes_slow_now_and_then_gains_no_more() {
        for (of_five, told) in [(5, 1960), (3, 1960), (3, 1500), (3, 1), (2, 1), (4, 1800)] {
            let liar = |n: u32| ran(2540 + n % 5, if n % 5 < of_five { told } else { 2060 });
            let (time, hidden) = timed(&pairs([2540, 2060], liar), None);
            assert!(time > 0.975 * 2_060_000.0, "{of_five} of 5 tell {told}: {time}");
            assert!(time * (1.0 + hidden) > 2_060_000.0 - 1.0, "{of_five} of 5 tell {told}: {time} and {hidden}");
        }
    }

    #[test]
    fn work_beside_the_clock_of_the_reference_is_not_taken_off() {
        let aside = pairs([3300, 100], |_| ran(3300, 100));
        let (time, hidden) = timed(&aside, Some(200_000.0));
        assert!((time - 3_100_000.0).abs() < 1.0 && hidden < 1e-9, "{time} and {hidden}");
    }

    #[test]
    fn a_request_that_nothing_is_left_of_counts_as_the_shortest_time_and_not_as_none() {
        let overhead = DispatchOverhead::of(Clock::Inside, &[ran(700, 100)], None);
        assert!(overhead.counted_ns(&ran(500, 0)) >= 1.0);
        let overhead = DispatchOverhead::of(Clock::Outside, &[ran(700, 100)], Some(600_000.0));
        assert!((overhead.counted_ns(&ran(700, 0)) - 350_000.0).abs() < 1.0);
    }

    #[test]
    fn clocks_contradict_each_other_where_one_is_always_apart_or_ever_ahead() {
        let found = |candidate: fn(u32) -> Reading| {
            contradiction("a", &pairs([3300, 3000], candidate), 300_000.0, DISAGREEMENT).is_some()
        };
        assert!(!found(|n| ran(3300 + n, 3000)));
        assert!(found(|n| ran(3300 + n, 1000)));
        assert!(!found(|n| ran(3300 + n, if n == 3 { 3000 } else { 1000 })), "once is a disturbance");
        assert!(found(|n| ran(3300, if n == 3 { 3400 } else { 3000 })), "nothing takes longer inside");
        assert!(contradiction("a", &[], 0.0, DISAGREEMENT).is_none());
    }
}
