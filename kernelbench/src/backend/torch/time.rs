//! How fast is it, beside the reference?
//!
//! Pairs of samples on the same fresh contents, in random order. A sample of a short forward is a request of several calls,
//! each on inputs of its own. The outputs of every timed call are compared. A block of pairs that something disturbed is
//! taken anew, and so is one that an honest candidate could not explain otherwise.

use super::{
    CASE,
    runner::{Runner, trusted},
    sample::{Sampler, empties, empty},
    session::Session,
};
use crate::{
    measure::clock::{self, Allowance, Pair, Reach, Reading, settled},
    measure::watch::{Disturbances, watched},
    result::{
        error::Attempt,
        evaluation::{CaseTiming, Timed},
        failure::{Failure, Fault},
    },
    task::Tolerance,
    workshop::TimingPlan,
};
use metrics::{Machine, Speedup, Statistic, Timing};
use rand::rngs::StdRng;
use std::time::{Duration, Instant};

/// What the calls of a request last at least, where the arena allows.
const REQUEST: Duration = Duration::from_millis(20);
/// Empty requests among the samples.
const EMPTY: u32 = 5;
/// Calls of the reference that tell how many make a request.
const TRIED: usize = 3;
/// The fewest pairs of a block where pairs may be left out, and the most before it.
const FEWEST: u32 = 20;
const MOST_BEFORE: u32 = 2;
/// What such a block may take for more than the fewest.
const LONG: Duration = Duration::from_secs(1);
/// What a block may take on a GPU for more pairs than were asked for, and how many times as many at most.
const MORE: (Duration, u32) = (Duration::from_millis(800), 5);
/// What two clocks may disagree by on any machine, beside what reaching the reference's process costs.
const ALLOWANCE: Allowance = Allowance { floor_ns: 50_000.0, share: 0.03 };
/// How far above the best bandwidth seen the physical limit may lie.
const MARGIN: f64 = 1.15;

/// How a time came about: what the clock outside says beside the one inside.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Clocks {
    /// Calls in a request.
    pub calls: usize,
    /// What a request costs beside its calls, in nanoseconds: by what our clock exceeds the reference's own, which has no
    /// cause to lie.
    pub overhead_ns: f64,
    /// What a request costs that calls nothing, in nanoseconds.
    pub empty_ns: f64,
    /// By what our clock exceeds the one inside, for a request: the reference's process and the candidate's, in nanoseconds.
    pub gaps_ns: [f64; 2],
    /// Samples that were lost because outputs lay where none had lain.
    pub lost: usize,
    /// Whether the GPU was asked, before and after, how it is doing.
    pub watched: bool,
    /// What disturbed the GPU meanwhile, in words.
    pub disturbed: Disturbances,
    /// Why a block was taken anew: its time would have been refused.
    pub anew: Vec<String>,
    /// Every pair of requests by both clocks, the reference's first.
    pub readings: Vec<[Reading; 2]>,
}

/// What a timing needs to know.
pub(crate) struct Bench<'a> {
    pub(crate) tolerance: &'a Tolerance,
    pub(crate) plan: &'a TimingPlan,
    pub(crate) machine: &'a Machine,
    pub(crate) floor: Duration,
    /// Calls of a request, at most.
    pub(crate) most_calls: usize,
    /// Whether pairs may be left out on a GPU, where a request holds many calls or lasts long: not for a certificate, nor for what
    /// is timed once on a machine.
    pub(crate) brief: bool,
}

/// Requests of each side: before a block, in it at least, and in it unless that takes too long.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Requests {
    before: u32,
    fewest: u32,
    asked: u32,
}

impl Requests {
    /// Those of the plan; or so many that their calls are as many.
    fn of(plan: &TimingPlan, calls: usize, brief: bool) -> Self {
        if !brief {
            return Self { before: plan.warmup.max(1), fewest: plan.repetitions, asked: plan.repetitions };
        }
        let calls = u32::try_from(calls).unwrap_or(u32::MAX).max(1);
        let asked = plan.repetitions.min(plan.repetitions.div_ceil(calls).max(FEWEST));
        Self { before: plan.warmup.div_ceil(calls).clamp(1, MOST_BEFORE), fewest: asked.min(FEWEST), asked }
    }
}

/// Times both.
pub(crate) fn time(
    session: &mut Session,
    candidate: &mut Runner,
    bench: &Bench<'_>,
    rng: &mut StdRng,
) -> Attempt<(Timed, Clocks)> {
    let (calls, typical) = request(session, rng)?;
    let calls = calls.min(bench.most_calls);
    session.scatter(Some(candidate), calls)?;
    let slots = (0..calls).collect();
    let deadline = bench.floor + typical * (calls as u32 * 20);
    let (gpu, floors) = (session.gpu, floors(session, bench.machine));
    let mut both = Sampler { session, candidate, tolerance: bench.tolerance, slots, deadline, lost: 0 };
    both.described_pair(rng)?;
    let requests = Requests::of(bench.plan, calls, bench.brief && both.session.on_gpu);
    for _ in 0..requests.before {
        both.pair(rng)?;
    }
    let block = || settled(|| block(&mut both, requests, rng)?.judged(calls, floors, bench.plan.statistic));
    let (((timed, mut clocks), anew), disturbed) = watched(gpu.as_ref(), block)?;
    (clocks.lost, clocks.watched, clocks.disturbed, clocks.anew) = (both.lost, gpu.is_some(), disturbed, anew);
    Ok((timed, clocks))
}

/// Pairs of requests, and what requests cost that call nothing.
struct Block {
    pairs: Vec<Pair>,
    empty_ns: f64,
}

/// So many pairs; on a GPU more while they are cheap.
fn block(both: &mut Sampler<'_>, requests: Requests, rng: &mut StdRng) -> Attempt<Block> {
    let Requests { fewest, asked, .. } = requests;
    let start = Instant::now();
    let most = if both.session.on_gpu { asked.saturating_mul(MORE.1) } else { asked };
    let (mut pairs, mut costs) = (vec![], vec![]);
    let between = fewest.div_ceil(EMPTY).max(1);
    for round in 0..most {
        let elapsed = start.elapsed();
        if (round >= asked && elapsed > MORE.0) || (round >= fewest && elapsed > LONG) {
            break;
        }
        if round % between == 0 {
            costs.push(empty(both.session, both.slots.len(), rng)?);
        }
        pairs.push(both.pair(rng)?);
    }
    Ok(Block { pairs, empty_ns: Statistic::Median.of(&costs) })
}

impl Block {
    /// What it says of the candidate, or what only a cheat or a disturbed machine explains.
    fn judged(
        self,
        calls: usize,
        [refused_below, floor]: [Option<f64>; 2],
        statistic: Statistic,
    ) -> Attempt<(Timed, Clocks)> {
        let Self { pairs, empty_ns } = self;
        let reach = Reach::of(&pairs, Some(empty_ns));
        clock::agree(CASE, &pairs, reach.cost_ns, ALLOWANCE)?;
        let times = |side: usize| {
            let readings: Vec<Reading> = pairs.iter().map(|pair| pair[side]).collect();
            Timing::of(reach.counted_ns(&readings).iter().map(|ns| ns / calls as f64))
        };
        let (reference, candidate) = (times(0), times(1));
        let measured = candidate.typical_ns(statistic);
        if let Some(floor) = refused_below.filter(|floor| measured < *floor) {
            let (measured_ns, floor_ns) = (measured as u64, floor as u64);
            return Err(Failure::BelowFloor { case: CASE.to_owned(), measured_ns, floor_ns }.into());
        }
        let doubt = reach.doubt_ns(&pairs) / calls as f64 / measured.max(1.0);
        let speedup = Speedup::over(&[(&reference, &candidate)], statistic)
            .ok_or_else(|| Fault("no samples were taken: the timing plan's repetitions are 0".to_owned()))?
            .doubted(doubt);
        let case = CaseTiming { case: CASE.to_owned(), reference, candidate, speedup, floor_ns: floor };
        let gaps_ns = [0, 1].map(|side: usize| clock::gap_ns(pairs.iter().map(|pair| &pair[side])));
        let (overhead_ns, lost, watched, disturbed, anew) = (reach.cost_ns, 0, false, vec![], vec![]);
        let clocks = Clocks { calls, overhead_ns, empty_ns, gaps_ns, lost, watched, disturbed, anew, readings: pairs };
        Ok((Timed { cases: vec![case], speedup, statistic }, clocks))
    }
}

/// Times the reference alone, by the same clock.
pub(crate) fn time_reference(session: &mut Session, plan: &TimingPlan, rng: &mut StdRng) -> Attempt<Timing> {
    let (calls, _) = request(session, rng)?;
    session.scatter(None, calls)?;
    let empty_ns = empties(session, calls, EMPTY as usize, rng)?;
    let slots: Vec<usize> = (0..calls).collect();
    let requests = Requests::of(plan, calls, session.on_gpu);
    for _ in 0..requests.before {
        reference_alone(session, &slots, rng)?;
    }
    let (start, mut samples) = (Instant::now(), vec![]);
    for round in 0..requests.asked {
        if round >= requests.fewest && start.elapsed() > LONG {
            break;
        }
        samples.push(reference_alone(session, &slots, rng)?);
    }
    trusted(session.reference.release())?;
    let reach = Reach::of_reference(&samples, Some(empty_ns));
    Ok(Timing::of(reach.counted_ns(&samples).iter().map(|ns| ns / calls as f64)))
}

fn reference_alone(session: &mut Session, slots: &[usize], rng: &mut StdRng) -> Attempt<Reading> {
    if session.inputs.as_array().map_or(0, Vec::len) != slots.len() {
        session.draw(slots.len(), false, rng)?;
    }
    trusted(session.reference.inputs(&session.inputs))?;
    trusted(session.reference.prepare(slots))?;
    session.draw_and(slots.len(), false, true, rng)?;
    if trusted(session.reference.inputs(&session.inputs))? {
        trusted(session.reference.prepare(slots))?;
    }
    let ran = match session.time_reference(slots)? {
        Some(ran) => ran,
        None => session.run_reference(slots)?,
    };
    Ok(ran.reading())
}

/// How many calls make a request, and what one takes.
fn request(session: &mut Session, rng: &mut StdRng) -> Attempt<(usize, Duration)> {
    let empty_ns = empties(session, 1, TRIED, rng)?;
    let mut least = f64::INFINITY;
    for _ in 0..TRIED {
        let outside = reference_alone(session, &[0], rng)?.outside_ns;
        least = least.min((outside - empty_ns).max(outside / 2.0));
    }
    let calls = (REQUEST.as_nanos() as f64 / least.max(1.0)) as usize + 1;
    Ok((calls.clamp(1, session.slots), Duration::from_nanos(least as u64)))
}

/// Below what a time is impossible, and what the roofline says: a candidate may do without some of its inputs (half of a
/// triangular matrix, rows that no index names), but none of its outputs.
fn floors(session: &Session, machine: &Machine) -> [Option<f64>; 2] {
    let Session { input_bytes, output_bytes, parameter_bytes, .. } = session;
    let all = input_bytes + output_bytes + parameter_bytes;
    let least = machine.floor_ns(output_bytes + input_bytes / 2).map(|floor| floor / MARGIN);
    [least, machine.bandwidth_at(all).map(|bandwidth| all as f64 / bandwidth * 1e9)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_request_holds_many_calls_fewer_are_as_many_samples_and_a_certificate_leaves_none_out() {
        let plan = TimingPlan { warmup: 20, repetitions: 100, statistic: Statistic::Median };
        let requests = |calls, brief| {
            let Requests { before, fewest, asked } = Requests::of(&plan, calls, brief);
            [before, fewest, asked]
        };
        assert_eq!(requests(7, true), [2, 20, 20]);
        assert_eq!(requests(2, true), [2, 20, 50]);
        assert_eq!(requests(1, true), [2, 20, 100]);
        assert_eq!(requests(7, false), [20, 100, 100]);
        let few = TimingPlan { warmup: 0, repetitions: 3, ..plan };
        assert_eq!(Requests::of(&few, 1, true), Requests { before: 1, fewest: 3, asked: 3 });
    }
}
