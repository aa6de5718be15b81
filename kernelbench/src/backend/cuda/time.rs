//! How fast is it, beside the reference?
//!
//! Pairs of requests on the same fresh contents, in random order. A request is so many calls that our clock, outside the
//! process, is precise; each call finds arguments of its own, and none of them in the cache. Where both can be recorded into
//! a graph, they are, so that the processor does not hold short kernels up. The outputs of every timed call are compared. A
//! shape that something disturbed is timed anew, and so is one that an honest candidate could not explain otherwise.

use super::{
    check::{Pair, slots},
    verifier::{Draw, Look},
};
use crate::{
    backend::native::trial::{self, deadline},
    machine::gpu::Gpu,
    measure::clock::{self, Allowance, Pair as Readings, Reach, Reading, settled},
    measure::watch::{Disturbances, watched},
    result::{
        error::Attempt,
        evaluation::{CaseTiming, Timed},
        failure::{Failure, Fault},
    },
    task::{Case, layout::Plan, suite::Suite},
    workshop::TimingPlan,
};
use metrics::{Machine, Speedup, Timing};
use rand::{Rng, rngs::StdRng};
use std::time::{Duration, Instant};

/// What the reference's calls of a request last, in nanoseconds, where the arena holds so many.
const REQUEST_NS: u64 = 1_200_000;
/// What the candidate's last at least, likewise, as a part of that: what it costs to reach a process would hide it otherwise.
const OF_CANDIDATE: f64 = 0.5;
/// How many times as many calls that may take, and what the reference's may last then, in nanoseconds.
const LONGER: (f64, f64) = (16.0, 20e6);
/// How much longer the requests of a certificate are.
const OF_CERTIFICATE: u64 = 4;
/// Calls from which one call's time is estimated.
const ESTIMATE: usize = 32;
/// The most calls of a request.
const MOST_CALLS: usize = 1024;
/// What all shapes together may take for pairs beyond the fewest.
const BUDGET: Duration = Duration::from_millis(400);
/// The fewest pairs of a shape, where its requests hold as many calls as the plan has samples.
const FEWEST: u32 = 12;
/// What two clocks may disagree by on any machine, beside what reaching the reference's process costs.
const ALLOWANCE: Allowance = Allowance { floor_ns: 60_000.0, share: 0.1 };
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
    /// Whether pairs may be left out where a request holds many calls: not for a certificate.
    pub(crate) brief: bool,
}

/// What is to be known of how times came about, each with its case, in words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remarks {
    /// What disturbed the GPU.
    pub(crate) disturbed: Disturbances,
    /// Why a shape was timed anew: its time would have been refused.
    pub(crate) anew: Vec<String>,
    /// Where launches were timed as the processor issues them.
    pub(crate) issued: Vec<String>,
}

impl Remarks {
    /// All of them.
    pub(crate) fn all(self) -> Vec<String> {
        [self.disturbed, self.anew, self.issued].concat()
    }
}

/// Times both on every timed case of a suite, and says what is to be known of that.
pub(crate) fn time(
    pair: &mut Pair<'_>,
    suite: &Suite,
    around: &Around<'_>,
    rng: &mut StdRng,
) -> Attempt<(Timed, Remarks)> {
    let (mut cases, mut doubts, mut remarks) = (vec![], vec![], Remarks::default());
    for name in &suite.timed {
        let case = suite.cases.iter().find(|case| case.name == *name);
        let case = case.ok_or_else(|| Fault(format!("the suite times a case `{name}` that it does not hold")))?;
        let budget = BUDGET / u32::try_from(suite.timed.len()).unwrap_or(u32::MAX).max(1);
        let once = || settled(|| time_case(pair, case, around, budget, rng));
        let ((((timed, doubt), recorded), anew), disturbed) = watched(around.gpu, once)?;
        cases.push(timed);
        doubts.push(doubt);
        let issued =
            (!recorded).then(|| "timed as the processor issues the launches, for they cannot be recorded".to_owned());
        let of_case = |told: String| format!("case {name}: {told}");
        remarks.disturbed.extend(disturbed.into_iter().map(of_case));
        remarks.anew.extend(anew.into_iter().map(of_case));
        remarks.issued.extend(issued.into_iter().map(of_case));
    }
    pair.candidate.be_alone()?;
    let pairs: Vec<(&Timing, &Timing)> = cases.iter().map(|case| (&case.reference, &case.candidate)).collect();
    let statistic = around.timing.statistic;
    let speedup = Speedup::over(&pairs, statistic)
        .ok_or_else(|| Fault("nothing was timed: the suite times no case, or the plan takes no samples".to_owned()))?;
    let speedup = speedup.doubted(doubts.iter().sum::<f64>() / doubts.len().max(1) as f64);
    Ok((Timed { cases, speedup, statistic }, remarks))
}

fn time_case(
    pair: &mut Pair<'_>,
    case: &Case,
    around: &Around<'_>,
    budget: Duration,
    rng: &mut StdRng,
) -> Attempt<((CaseTiming, f64), bool)> {
    let plan = trial::plan(pair.context, case)?;
    let most = slots(pair.judge.arena_bytes(), &plan).map_err(Fault)?.min(MOST_CALLS);
    pair.prepare(&plan, most)?;
    let request_ns = if around.brief { REQUEST_NS } else { OF_CERTIFICATE * REQUEST_NS };
    let mut calls = calls_in_a_request(pair, &plan, request_ns, most, rng)?;
    let mut recorded = pair.count(calls, true)?;
    sample(pair, &plan, calls, rng)?;
    let enough = enough(calls, &sample(pair, &plan, calls, rng)?, request_ns as f64, most);
    if enough > calls {
        calls = enough;
        recorded = pair.count(calls, true)?;
    }
    let timing = around.timing;
    let warm_up = (timing.warmup as usize).div_ceil(calls).clamp(1, 5);
    for _ in 0..warm_up {
        sample(pair, &plan, calls, rng)?;
    }
    let (start, fewest, asked) = (Instant::now(), fewest(around, calls), timing.repetitions as usize);
    let mut pairs: Vec<Readings> = vec![];
    while pairs.len() < fewest || (pairs.len() < asked && start.elapsed() <= budget) {
        pairs.push(sample(pair, &plan, calls, rng)?);
    }
    Ok((timed(case, &plan, &pairs, calls, around)?, recorded))
}

/// How many calls make the candidate's request long enough too, where so many took so long. Its clock may lie, so ours has a
/// say, and the reference's request bounds it.
fn enough(calls: usize, [reference, ran]: &Readings, request_ns: f64, most: usize) -> usize {
    let by_ours = ran.outside_ns - (reference.outside_ns - reference.inside_ns);
    let times = OF_CANDIDATE * request_ns / ran.inside_ns.min(by_ours).max(1.0);
    let times = times.min(LONGER.0).min(LONGER.1 / reference.inside_ns.max(1.0));
    if times > 1.0 { ((calls as f64 * times) as usize + 1).min(most) } else { calls }
}

/// Pairs that are taken in any case: each stands for as many samples as its requests hold calls.
fn fewest(around: &Around<'_>, calls: usize) -> usize {
    let asked = around.timing.repetitions as usize;
    let stand_for_all = asked.div_ceil(calls.max(1)).max(FEWEST as usize);
    if around.brief { asked.min(stand_for_all) } else { asked }
}

/// How many calls make the reference's request so long: what one takes is found out once for a process of it.
fn calls_in_a_request(
    pair: &mut Pair<'_>,
    plan: &Plan,
    request_ns: u64,
    most: usize,
    rng: &mut StdRng,
) -> Attempt<usize> {
    let so_many = |call_ns: u64| (request_ns / call_ns.max(1) + 1).clamp(1, most as u64) as usize;
    let key = (plan.case.clone(), plan.slot_bytes);
    if let Some(known) = pair.reference.call_ns.get(&key) {
        return Ok(so_many(*known));
    }
    let count = ESTIMATE.min(most);
    let recorded = pair.count(count, true)?;
    let mut least = u64::MAX;
    for _ in 0..3 {
        let draw = Draw::new(plan, rng);
        pair.fill(plan, count, &draw)?;
        least = least.min(pair.call_reference()?.inside_ns / count as u64);
    }
    // A candidate that cannot be recorded has the reference's launches issued one by one: that is not its time elsewhere.
    if recorded {
        pair.reference.call_ns.insert(key, least);
    }
    Ok(so_many(least))
}

/// Has both called on fresh contents, in random order, and compares all outputs: the reference's and the candidate's times.
fn sample(pair: &mut Pair<'_>, plan: &Plan, calls: usize, rng: &mut StdRng) -> Attempt<Readings> {
    let draw = Draw::new(plan, rng);
    pair.fill(plan, calls, &draw)?;
    let ran = if rng.random() {
        let reference = pair.call_reference()?;
        [reference, pair.call_candidate(deadline(reference.outside, pair.floor))?]
    } else {
        let most = Duration::from_nanos(LONGER.1 as u64);
        let candidate = pair.call_candidate(deadline(most, pair.floor))?;
        [pair.call_reference()?, candidate]
    };
    let look = Look { tolerance: pair.tolerance, while_timed: true, twice: false };
    pair.judge.verify(plan, calls, &draw, look)?;
    Ok(ran.map(|ran| Reading { outside_ns: ran.outside.as_nanos() as f64, inside_ns: ran.inside_ns as f64 }))
}

/// The times that count, and by what share the candidate's is in doubt, because its process may cost more to reach.
fn timed(
    case: &Case,
    plan: &Plan,
    pairs: &[Readings],
    calls: usize,
    around: &Around<'_>,
) -> Attempt<(CaseTiming, f64)> {
    let statistic = around.timing.statistic;
    let reach = Reach::of(pairs, None);
    if !around.trusted {
        clock::agree(&case.name, pairs, reach.cost_ns, ALLOWANCE)?;
    }
    let times = |side: usize| {
        let readings: Vec<Reading> = pairs.iter().map(|pair| pair[side]).collect();
        Timing::of(reach.counted_ns(&readings).iter().map(|ns| ns / calls as f64))
    };
    let (reference, candidate) = (times(0), times(1));
    let measured = candidate.typical_ns(statistic);
    let bytes = plan.compulsory_bytes();
    let least = around.machine.floor_ns(bytes).map(|floor| floor / MARGIN);
    if let Some(floor) = least.filter(|floor| measured < *floor && !around.trusted) {
        let (measured_ns, floor_ns) = (measured as u64, floor as u64);
        return Err(Failure::BelowFloor { case: case.name.clone(), measured_ns, floor_ns }.into());
    }
    let doubt = (reach.doubt_ns(pairs) / calls as f64 / measured.max(1.0)).min(0.9);
    let speedup = Speedup::over(&[(&reference, &candidate)], statistic)
        .ok_or_else(|| Fault("no samples were taken: the timing plan's repetitions are 0".to_owned()))?
        .doubted(doubt);
    let floor_ns = around.machine.bandwidth_at(u64::MAX).map(|bandwidth| bytes as f64 / bandwidth * 1e9);
    Ok((CaseTiming { case: case.name.clone(), reference, candidate, speedup, floor_ns }, doubt))
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
        assert_eq!(enough(100, &pair(1300, 1200), 1.2e6, 1024), 100);
        assert_eq!(enough(100, &pair(340, 240), 1.2e6, 1024), 251);
        assert_eq!(enough(100, &pair(340, 240), 1.2e6, 200), 200);
        // One that says it takes long does not keep its requests short, nor makes one that says nothing them endless.
        assert_eq!(enough(100, &pair(340, 1200), 1.2e6, 1024), 251);
        assert_eq!(enough(10, &pair(340, 0), 1.2e6, 1024), 161);
        assert_eq!(enough(1, &[ran(19_100, 19_000), ran(150, 50)], 1.2e6, 1024), 2);
        assert_eq!(enough(1, &[ran(50_100, 50_000), ran(150, 50)], 1.2e6, 1024), 1);
    }
}
