//! Which of two clocks counts, and by how much may they disagree?
//!
//! Ours stands outside a process and is not to be fooled, but also counts what it takes to reach that process (on a GPU, to
//! change over to it) and to hear its answer, which differs from one request to the next. The clock inside counts the calls
//! alone, and may lie. So times are what the clock inside says, but on the whole never less than ours less what reaching the
//! reference's process costs, and never more than ours.

use crate::result::{
    error::{Attempt, Trouble},
    failure::Failure,
};
use metrics::Statistic;

/// What the clock inside may fall short of ours without the cost of reaching the process, as a part of that.
const SHARE: f64 = 0.01;
/// By so many nanoseconds a request processes alike were seen to differ in that cost, on an H200: for a short request it may
/// be that, where it is no more than the second part of the same.
const ALIKE: (f64, f64) = (35_000.0, 0.03);
/// What the scatter of that cost may add to it, in standard errors, and with it at most, as a part of the same.
const CHANCE: (f64, f64) = (2.0, 0.05);
/// How much more than a request that calls nothing the reference's may cost beside its calls, in times and in nanoseconds.
const MORE_THAN_EMPTY: [f64; 2] = [3.0, 100_000.0];
/// The part of the reference's gaps that what is usual on this machine reaches.
const USUAL: f64 = 0.9;
/// The part of the values at either end that an average leaves out.
const ENDS: f64 = 0.1;

/// One request by both clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Reading {
    /// By ours, outside the process.
    pub outside_ns: f64,
    /// By the one in the process.
    pub inside_ns: f64,
}

/// A pair of requests: the reference's, the candidate's.
pub(crate) type Pair = [Reading; 2];

impl Reading {
    /// By how much ours is ahead of the one inside.
    fn gap(&self) -> f64 {
        self.outside_ns - self.inside_ns
    }
}

/// What it costs to reach a process, in nanoseconds a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reach {
    /// As the reference's process says, which has no cause to lie.
    pub(crate) cost_ns: f64,
    /// How well that is known, and what it is at most as a rule; nothing where the clock inside does not see all that is
    /// done there, because the reference itself works beside it.
    scatter: Option<Scatter>,
}

/// How what it costs to reach the reference's process differs between requests, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scatter {
    error_ns: f64,
    usual_ns: f64,
}

impl Scatter {
    /// What requests took by the clock inside, and at least what ours says beyond what the reference's cost as a rule.
    fn least_ns(self, readings: &[Reading]) -> Vec<f64> {
        let least = |ran: &Reading| {
            let beyond = (ran.outside_ns - self.usual_ns).max(0.0);
            ran.inside_ns.max(beyond - slack_ns(beyond, 0.0))
        };
        readings.iter().map(least).collect()
    }
}

impl Reach {
    /// What pairs of requests say of it, and what a request costs that calls nothing, where that was tried.
    pub(crate) fn of(pairs: &[Pair], empty_ns: Option<f64>) -> Self {
        Self::of_reference(&pairs.iter().map(|pair| pair[0]).collect::<Vec<_>>(), empty_ns)
    }

    /// The same of the reference's requests alone.
    pub(crate) fn of_reference(readings: &[Reading], empty_ns: Option<f64>) -> Self {
        let [times, more] = MORE_THAN_EMPTY;
        let (gap, error_ns) = average(readings.iter().map(Reading::gap));
        match empty_ns.filter(|empty| *empty > 0.0) {
            Some(empty) if gap > times * empty + more => Self { cost_ns: empty, scatter: None },
            _ => Self { cost_ns: gap, scatter: Some(Scatter { error_ns, usual_ns: usual_gap(readings).max(gap) }) },
        }
    }

    /// The times of a process's requests that count, in nanoseconds: those by the clock inside, unless on the whole they are
    /// shorter than ours say by more than chance and processes alike make of it; then longer by what is beyond that.
    pub(crate) fn counted_ns(&self, readings: &[Reading]) -> Vec<f64> {
        let Some(scatter) = &self.scatter else {
            let beside = |ran: &Reading| (ran.outside_ns - self.cost_ns).max(ran.outside_ns / 2.0);
            return readings.iter().map(beside).collect();
        };
        let least = scatter.least_ns(readings);
        let short = self.short_ns(readings, &least);
        readings.iter().zip(least).map(|(ran, time)| (time + short).min(ran.outside_ns).max(1.0)).collect()
    }

    /// By how much these times are too short on the whole, in nanoseconds.
    fn short_ns(&self, readings: &[Reading], times: &[f64]) -> f64 {
        let (beyond, error) = self.beyond_ns(readings);
        let beyond = beyond.max(0.0);
        (beyond - least_of(times) - slack_ns(beyond, error)).max(0.0)
    }

    /// What requests took by ours beyond the cost of reaching a process, and the standard error of that, in nanoseconds.
    fn beyond_ns(&self, readings: &[Reading]) -> (f64, f64) {
        let (outside, error) = average(readings.iter().map(|ran| ran.outside_ns));
        (outside - self.cost_ns, error.hypot(self.scatter.map_or(0.0, |scatter| scatter.error_ns)))
    }

    /// By how much a candidate's requests may have taken longer by ours alone, in nanoseconds: nobody knows whether its
    /// process is harder to reach than the reference's, or its clock goes slow. With what chance makes of it, so that a clock
    /// that lies has its truth within the interval as often as an interval says.
    pub(crate) fn doubt_ns(&self, pairs: &[Pair]) -> f64 {
        let readings: Vec<Reading> = pairs.iter().map(|pair| pair[1]).collect();
        let (beyond, error) = self.beyond_ns(&readings);
        (beyond + CHANCE.0 * error - least_of(&self.counted_ns(&readings))).max(0.0)
    }
}

/// The least of the median and the averages with and without the ends, for a clock may lie in most requests or in a few.
fn least_of(times: &[f64]) -> f64 {
    let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
    Statistic::Median.of(times).min(mean).min(average(times.iter().copied()).0)
}

/// What clocks inside may fall short of their requests' own part of ours: never more than a few percent of that, however
/// much it costs to reach the process beside it, and however little is known of that.
fn slack_ns(beyond: f64, error: f64) -> f64 {
    let alike = ALIKE.0.min(ALIKE.1 * beyond);
    (SHARE * beyond).max((alike + CHANCE.0 * error).min(CHANCE.1 * beyond).max(alike))
}

/// By how much ours is ahead of the one inside, in nanoseconds a request, as a rule.
pub(crate) fn gap_ns<'a>(readings: impl Iterator<Item = &'a Reading>) -> f64 {
    average(readings.map(Reading::gap)).0
}

/// The mean of values without those at either end, and its standard error: of gaps, of which a request has one of two, it
/// scatters less than a median.
fn average(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let ends = (values.len() as f64 * ENDS) as usize;
    let middle = &values[ends..values.len() - ends];
    let count = middle.len().max(1) as f64;
    let mean = middle.iter().sum::<f64>() / count;
    let squares: f64 = middle.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0) / count).sqrt())
}

/// By how much two clocks may disagree on any machine: in nanoseconds, and as a part of what was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) floor_ns: f64,
    pub(crate) share: f64,
}

/// The failure of a candidate whose clock is always further from ours than the reference's is now and then, or ahead of
/// ours: it was tampered with, or there is work beside it.
pub(crate) fn agree(case: &str, pairs: &[Pair], cost_ns: f64, allowance: Allowance) -> Attempt<()> {
    let usual = usual_gap(&pairs.iter().map(|pair| pair[0]).collect::<Vec<_>>()).max(cost_ns);
    let allowed = |ran: &Reading| 2.0 * usual + allowance.share * ran.outside_ns + allowance.floor_ns;
    let apart = pairs.iter().all(|[_, ran]| ran.gap() > allowed(ran));
    let ahead = pairs.iter().any(|[_, ran]| ran.gap() < -allowance.floor_ns);
    if pairs.is_empty() || !(apart || ahead) {
        return Ok(());
    }
    let median = |of: fn(&Reading) -> f64| {
        Statistic::Median.of(&pairs.iter().map(|[_, ran]| of(ran)).collect::<Vec<_>>()) as u64
    };
    Err(Failure::Clocks {
        case: case.to_owned(),
        inside_ns: median(|ran| ran.inside_ns),
        outside_ns: median(|ran| ran.outside_ns),
    }
    .into())
}

/// Blocks of samples that are taken until one is without such a contradiction.
const BLOCKS: usize = 3;

/// Takes a block of samples; and anew where the clocks disagree in it, or a time is impossible: on a machine that others use
/// that may be their doing, and then it passes. What stays is the candidate's. Also, in words, why a block was taken anew.
pub(crate) fn settled<T>(mut block: impl FnMut() -> Attempt<T>) -> Attempt<(T, Vec<String>)> {
    let mut told = vec![];
    loop {
        match block() {
            Ok(done) => return Ok((done, told)),
            Err(Trouble::Failure(failure)) if told.len() + 1 < BLOCKS && may_pass(&failure) => {
                told.push(format!("timed once more, for the time before would have been refused: {failure}"));
            }
            Err(trouble) => return Err(trouble),
        }
    }
}

fn may_pass(failure: &Failure) -> bool {
    matches!(failure, Failure::Clocks { .. } | Failure::BelowFloor { .. })
}

fn usual_gap(readings: &[Reading]) -> f64 {
    let mut gaps: Vec<f64> = readings.iter().map(Reading::gap).collect();
    gaps.sort_by(f64::total_cmp);
    let at = (gaps.len().saturating_sub(1)) as f64 * USUAL;
    gaps.get(at.round() as usize).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWANCE: Allowance = Allowance { floor_ns: 50_000.0, share: 0.03 };

    fn ran(outside_us: u32, inside_us: u32) -> Reading {
        Reading { outside_ns: f64::from(outside_us) * 1000.0, inside_ns: f64::from(inside_us) * 1000.0 }
    }

    fn pairs(candidate: impl Fn(u32) -> Reading) -> Vec<Pair> {
        (0..20).map(|n| [ran(3300 + n, 3000), candidate(n)]).collect()
    }

    fn times(pairs: &[Pair]) -> (f64, f64) {
        let reach = Reach::of(pairs, None);
        let counted = reach.counted_ns(&pairs.iter().map(|pair| pair[1]).collect::<Vec<_>>());
        (Statistic::Median.of(&counted), reach.doubt_ns(pairs))
    }

    #[test]
    fn a_process_that_is_a_little_harder_or_easier_to_reach_is_as_fast_as_its_clock_says() {
        for reached_in in [280, 310, 330] {
            let (time, _) = times(&pairs(|n| ran(3000 + reached_in + n, 3000)));
            assert!((time - 3_000_000.0).abs() < 1.0, "{reached_in}: {time}");
        }
    }

    #[test]
    fn a_clock_that_goes_slow_gains_no_more_than_its_doubt() {
        let (honest, _) = times(&pairs(|n| ran(3300 + n, 3000)));
        for tells in [2950, 2900, 1500, 1] {
            let (time, doubt) = times(&pairs(|n| ran(3300 + n, tells)));
            assert!(time < honest && time + doubt > honest - 20_000.0, "{tells}: {time} and {doubt}");
            assert!(time > 0.98 * honest, "{tells}: {time}");
        }
    }

    /// Requests whose cost beside the calls is one of two, in microseconds, as an H200 shows it; `far` of five cost the more.
    fn of_two(inside_us: u32, told_us: impl Fn(u32) -> u32, far: [u32; 2]) -> Vec<Pair> {
        let gap = |n: u32, far: u32| if n * 3 % 5 < far { 740 } else { 480 } + n;
        (0..20)
            .map(|n| {
                let told = told_us(n);
                [ran(inside_us + gap(n, far[0]), inside_us), ran(inside_us + gap(n, far[1]), told)]
            })
            .collect()
    }

    #[test]
    fn a_cost_of_one_of_two_makes_no_difference_by_which_of_them_was_drawn_more_often() {
        for far in [[2, 2], [2, 3], [3, 2]] {
            let (time, _) = times(&of_two(2060, |_| 2060, far));
            assert!((time - 2_060_000.0).abs() < 1.0, "{far:?}: {time}");
        }
    }

    #[test]
    fn a_clock_that_goes_slow_now_and_then_gains_no_more_than_one_that_always_does() {
        for (of_five, tells) in [(5, 1960), (5, 1030), (5, 1), (3, 1960), (3, 1500), (3, 1), (2, 1), (4, 1800)] {
            let (time, doubt) = times(&of_two(2060, |n| if n % 5 < of_five { tells } else { 2060 }, [2, 2]));
            assert!(time > 0.93 * 2_060_000.0, "{of_five} of 5 tell {tells}: {time} and {doubt}");
            assert!(time + doubt > 2_060_000.0, "{of_five} of 5 tell {tells}: {time} and {doubt}");
        }
    }

    #[test]
    fn a_clock_that_lies_in_few_requests_gains_no_more_in_their_mean() {
        let told = of_two(200, |n| if n % 10 == 1 { 0 } else { 186 }, [2, 2]);
        let readings: Vec<Reading> = told.iter().map(|pair| pair[1]).collect();
        let counted = Reach::of(&told, None).counted_ns(&readings);
        let mean = counted.iter().sum::<f64>() / counted.len() as f64;
        assert!(mean > 0.92 * 200_000.0, "{mean}");
    }

    #[test]
    fn a_request_that_nothing_is_left_of_counts_as_the_shortest_time_and_not_as_none() {
        let pairs: Vec<Pair> = (0..3).map(|n| [ran(700 + n, 100), ran(500, 0)]).collect();
        let counted = Reach::of(&pairs, None).counted_ns(&pairs.iter().map(|pair| pair[1]).collect::<Vec<_>>());
        assert!(counted.len() == 3 && counted.iter().all(|time| *time >= 1.0), "{counted:?}");
    }

    #[test]
    fn in_a_short_request_that_costs_much_to_reach_a_slow_clock_gains_no_more_either() {
        let short = |tells: u32| (0..20).map(|n| [ran(800 + n % 2, 100 + n % 2), ran(800, tells)]).collect::<Vec<_>>();
        let (honest, _) = times(&short(100));
        assert!((honest - 100_000.0).abs() < 1.0, "{honest}");
        for tells in [99, 60, 1] {
            let (time, doubt) = times(&short(tells));
            assert!(time >= 0.95 * honest && time + doubt >= honest - 1.0, "{tells}: {time} and {doubt}");
        }
    }

    #[test]
    fn work_beside_the_clock_of_the_reference_is_not_taken_off() {
        let aside = pairs(|n| ran(3300 + n, 3000))
            .iter()
            .map(|[_, ran]| [Reading { inside_ns: 1e5, ..*ran }; 2])
            .collect::<Vec<_>>();
        let reach = Reach::of(&aside, Some(200_000.0));
        assert!((reach.counted_ns(&[aside[0][1]])[0] - 3_100_000.0).abs() < 1.0);
    }

    #[test]
    fn what_passes_on_a_busy_machine_is_timed_anew_and_what_stays_is_refused() {
        let clocks = || Failure::Clocks { case: "a".to_owned(), inside_ns: 1, outside_ns: 9 };
        let mut blocks = 0;
        let mut after = |bad: usize| {
            blocks = 0;
            settled(|| {
                blocks += 1;
                if blocks > bad { Ok(blocks) } else { Err(clocks().into()) }
            })
        };
        assert!(matches!(after(2), Ok((3, told)) if told.len() == 2));
        assert!(matches!(after(3), Err(Trouble::Failure(failure)) if *failure == clocks()));
        let wrong = || Err::<(), _>(Failure::Interface { log: String::new() }.into());
        let mut tried = 0;
        assert!(
            settled(|| {
                tried += 1;
                wrong()
            })
            .is_err()
                && tried == 1
        );
    }

    #[test]
    fn a_clock_that_is_always_apart_from_ours_is_told_and_one_that_once_was_is_not() {
        let verdict = |candidate: fn(u32) -> Reading| agree("a", &pairs(candidate), 0.0, ALLOWANCE);
        assert!(verdict(|n| ran(3350 + 3000 * (n / 19), 3000)).is_ok());
        assert!(verdict(|_| ran(3350, 500)).is_err());
        assert!(verdict(|_| ran(3350, 3450)).is_err());
    }
}
