//! How fast is it, beside the reference?
//!
//! Pairs of requests on the same fresh contents, in random order. A request is so many calls that our clock, outside the
//! process, is precise; each call finds arguments of its own, and none of them in the cache. Where both can be recorded into
//! a graph, they are, so that the processor does not hold short kernels up. The outputs of every timed call are compared.

use super::{
    check::{Pair, slots},
    judge::{Draw, Look},
    runner::Ran,
};
use crate::{
    evaluation::{CaseTiming, Timed},
    failure::{Failure, Fault},
    gpu::{Disturbances, Gpu, watched},
    native::{
        plan::Plan,
        trial::{self, deadline},
        trouble::Attempt,
    },
    suite::Suite,
    task::Case,
    workshop::TimingPlan,
};
use metrics::{Machine, Speedup, Statistic, Timing};
use rand::{Rng, rngs::StdRng};

/// What the reference's calls of a request last, in nanoseconds, where the arena holds so many.
const REQUEST_NS: u64 = 1_200_000;
/// Calls from which one call's time is estimated.
const ESTIMATE: usize = 32;
/// The most calls of a request.
const MOST_CALLS: usize = 1024;
/// What two clocks may disagree by on any machine, in nanoseconds.
const CLOCK_FLOOR_NS: f64 = 60_000.0;
/// How far above the best bandwidth seen the physical limit may lie.
const MARGIN: f64 = 1.15;

/// What is around a timing.
pub(crate) struct Around<'a> {
    pub(crate) timing: &'a TimingPlan,
    pub(crate) machine: &'a Machine,
    /// The GPU to be asked how it is doing.
    pub(crate) gpu: Option<&'a Gpu>,
    /// Whether the candidate is the reference itself, which nobody suspects.
    pub(crate) trusted: bool,
}

/// Times both on every timed case of a suite, and says what disturbed it.
pub(crate) fn time(
    pair: &mut Pair<'_>,
    suite: &Suite,
    around: &Around<'_>,
    rng: &mut StdRng,
) -> Attempt<(Timed, Disturbances)> {
    let (mut cases, mut doubts, mut disturbed) = (vec![], vec![], vec![]);
    for name in &suite.timed {
        let case = suite.cases.iter().find(|case| case.name == *name);
        let case = case.ok_or_else(|| Fault(format!("the suite times a case `{name}` that it does not hold")))?;
        let (((timed, doubt), recorded), told) = watched(around.gpu, || time_case(pair, case, around, rng))?;
        cases.push(timed);
        doubts.push(doubt);
        if !recorded {
            disturbed
                .push(format!("case {name}: timed as the processor issues the launches, for they cannot be recorded"));
        }
        disturbed.extend(told.into_iter().map(|what| format!("case {name}: {what}")));
    }
    pair.candidate.be_alone()?;
    let pairs: Vec<(&Timing, &Timing)> = cases.iter().map(|case| (&case.reference, &case.candidate)).collect();
    let statistic = around.timing.statistic;
    let speedup = Speedup::over(&pairs, statistic)
        .ok_or_else(|| Fault("nothing was timed: the suite times no case, or the plan takes no samples".to_owned()))?;
    let speedup = speedup.doubted(doubts.iter().sum::<f64>() / doubts.len().max(1) as f64);
    Ok((Timed { cases, speedup, statistic }, disturbed))
}

fn time_case(
    pair: &mut Pair<'_>,
    case: &Case,
    around: &Around<'_>,
    rng: &mut StdRng,
) -> Attempt<((CaseTiming, f64), bool)> {
    let plan = trial::plan(pair.context, case)?;
    let most = slots(pair.judge.arena_bytes(), &plan).map_err(Fault)?.min(MOST_CALLS);
    pair.prepare(&plan, most)?;
    let calls = calls_in_a_request(pair, &plan, most, rng)?;
    let recorded = pair.count(calls, true)?;
    let timing = around.timing;
    let warm_up = (timing.warmup as usize).div_ceil(calls).clamp(1, 5);
    for _ in 0..warm_up {
        sample(pair, &plan, calls, rng)?;
    }
    let mut samples = vec![];
    for _ in 0..timing.repetitions {
        samples.push(sample(pair, &plan, calls, rng)?);
    }
    let reached = reached(&samples);
    if !around.trusted {
        clocks_agree(&case.name, &samples)?;
    }
    Ok((timed(case, &plan, &samples, calls, reached, around)?, recorded))
}

/// How many calls make the reference's request long enough.
fn calls_in_a_request(pair: &mut Pair<'_>, plan: &Plan, most: usize, rng: &mut StdRng) -> Attempt<usize> {
    let count = ESTIMATE.min(most);
    pair.count(count, true)?;
    let mut least = u64::MAX;
    for _ in 0..3 {
        let draw = Draw::new(plan, rng);
        pair.fill(plan, count, &draw)?;
        least = least.min(pair.call_reference()?.inside_ns / count as u64);
    }
    Ok((REQUEST_NS / least.max(1) + 1).clamp(1, most as u64) as usize)
}

/// Has both called on fresh contents, in random order, and compares all outputs: the reference's and the candidate's times.
fn sample(pair: &mut Pair<'_>, plan: &Plan, calls: usize, rng: &mut StdRng) -> Attempt<[Ran; 2]> {
    let draw = Draw::new(plan, rng);
    pair.fill(plan, calls, &draw)?;
    let ran = if rng.random() {
        let reference = pair.call_reference()?;
        [reference, pair.call_candidate(deadline(reference.outside, pair.floor))?]
    } else {
        let most = std::time::Duration::from_nanos(2 * REQUEST_NS);
        let candidate = pair.call_candidate(deadline(most, pair.floor))?;
        [pair.call_reference()?, candidate]
    };
    let look = Look { tolerance: pair.tolerance, while_timed: true, twice: false };
    pair.judge.verify(plan, calls, &draw, look)?;
    Ok(ran)
}

/// By how much our clock is ahead of the one in the process, in nanoseconds.
fn gap(ran: &Ran) -> f64 {
    ran.outside.as_nanos() as f64 - ran.inside_ns as f64
}

/// What it costs to reach the reference's process and the candidate's, in nanoseconds a request.
fn reached(samples: &[[Ran; 2]]) -> [f64; 2] {
    [0, 1].map(|side| Statistic::Median.of(&samples.iter().map(|pair| gap(&pair[side])).collect::<Vec<_>>()))
}

/// Times by our clock, less what it costs to reach the reference's process, which has no cause to lie; and by what share
/// the candidate's time is in doubt, because its own process may cost more or less to reach.
fn timed(
    case: &Case,
    plan: &Plan,
    samples: &[[Ran; 2]],
    calls: usize,
    reached: [f64; 2],
    around: &Around<'_>,
) -> Attempt<(CaseTiming, f64)> {
    let statistic = around.timing.statistic;
    let counted = |ran: &Ran| {
        let outside = ran.outside.as_nanos() as f64;
        (outside - reached[0]).max(outside / 4.0) / calls as f64
    };
    let times = |side: usize| Timing::of(samples.iter().map(|pair| counted(&pair[side])));
    let (reference, candidate) = (times(0), times(1));
    let measured = candidate.typical_ns(statistic);
    let bytes = plan.compulsory_bytes();
    let least = around.machine.floor_ns(bytes).map(|floor| floor / MARGIN);
    if let Some(floor) = least.filter(|floor| measured < *floor && !around.trusted) {
        let (measured_ns, floor_ns) = (measured as u64, floor as u64);
        return Err(Failure::BelowFloor { case: case.name.clone(), measured_ns, floor_ns }.into());
    }
    let speedup = Speedup::over(&[(&reference, &candidate)], statistic)
        .ok_or_else(|| Fault("no samples were taken: the timing plan's repetitions are 0".to_owned()))?;
    let doubt = ((reached[0] - reached[1]).abs() / calls as f64 / measured.max(1.0)).min(0.9);
    let speedup = speedup.doubted(doubt);
    let floor_ns = around.machine.bandwidth_at(u64::MAX).map(|bandwidth| bytes as f64 / bandwidth * 1e9);
    Ok((CaseTiming { case: case.name.clone(), reference, candidate, speedup, floor_ns }, doubt))
}

/// The candidate's clock against ours, as the reference's stands against ours at its worst: load parts the two now and then;
/// a clock that was tampered with, or work beside the stream, does so every time.
fn clocks_agree(case: &str, samples: &[[Ran; 2]]) -> Attempt<()> {
    let ours = samples.iter().map(|[ran, _]| gap(ran)).fold(0.0, f64::max);
    let allowed = |ran: &Ran| 2.0 * ours + 0.1 * ran.outside.as_nanos() as f64 + CLOCK_FLOOR_NS;
    let apart = samples.iter().all(|[_, ran]| gap(ran) > allowed(ran));
    let ahead = samples.iter().map(|[_, ran]| gap(ran)).fold(f64::INFINITY, f64::min) < -CLOCK_FLOOR_NS;
    if samples.is_empty() || !(apart || ahead) {
        return Ok(());
    }
    let median =
        |of: fn(&Ran) -> f64| Statistic::Median.of(&samples.iter().map(|[_, ran]| of(ran)).collect::<Vec<_>>());
    Err(Failure::Clocks {
        case: case.to_owned(),
        inside_ns: median(|ran| ran.inside_ns as f64) as u64,
        outside_ns: median(|ran| ran.outside.as_nanos() as f64) as u64,
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn ran(outside_us: u64, inside_us: u64) -> Ran {
        Ran { outside: Duration::from_micros(outside_us), inside_ns: inside_us * 1000 }
    }

    #[test]
    fn a_clock_that_is_always_apart_from_ours_is_told_and_one_that_once_was_is_not() {
        let honest: Vec<_> = (0..9).map(|n| [ran(1050, 1000), ran(1050 + 900 * (n / 8), 1000)]).collect();
        assert!(clocks_agree("a", &honest).is_ok());
        let lying: Vec<_> = (0..9).map(|_| [ran(1050, 1000), ran(1050, 500)]).collect();
        assert!(clocks_agree("a", &lying).is_err());
        let ahead: Vec<_> = (0..9).map(|_| [ran(1050, 1000), ran(1050, 1200)]).collect();
        assert!(clocks_agree("a", &ahead).is_err());
    }
}
