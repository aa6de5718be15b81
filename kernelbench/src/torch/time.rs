//! How fast is it, beside the reference?
//!
//! Pairs of samples on the same fresh contents, in random order. A sample of a short forward is a request of several calls,
//! each on inputs of its own. The outputs of every timed call are compared.

use super::{
    CASE,
    runner::{Ran, Runner, trusted},
    sample::{Sampler, empties, empty},
    session::Session,
};
use crate::{
    evaluation::{CaseTiming, Timed},
    failure::{Failure, Fault},
    native::trouble::Attempt,
    task::Tolerance,
    workshop::TimingPlan,
};
use metrics::{Machine, Speedup, Statistic, Timing};
use rand::rngs::StdRng;
use std::time::Duration;

/// What the calls of a request last at least, where the arena allows.
const REQUEST: Duration = Duration::from_millis(20);
/// Empty requests among the samples.
const EMPTY: u32 = 5;
/// How much more than an empty request a request may cost, in times and in nanoseconds.
const MORE_THAN_EMPTY: [f64; 2] = [3.0, 100_000.0];
/// Calls of the reference that tell how many make a request.
const TRIED: usize = 3;
/// What two clocks may disagree by on any machine, in nanoseconds.
const CLOCK_FLOOR_NS: f64 = 50_000.0;
/// The same as a part of what was measured.
const CLOCK_SHARE: f64 = 0.03;
/// How far above the best bandwidth seen the physical limit may lie.
const MARGIN: f64 = 1.15;

/// How a time came about: what the clock outside says beside the one inside.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Clocks {
    /// Calls in a request.
    pub calls: usize,
    /// What a request costs beside its calls, in nanoseconds: by what our clock exceeds the reference's own, which has no
    /// cause to lie. It is taken off every sample.
    pub overhead_ns: f64,
    /// What a request costs that calls nothing, in nanoseconds.
    pub empty_ns: f64,
    /// By what our clock exceeds the one inside, for a request: the reference's process and the candidate's, in nanoseconds.
    pub gaps_ns: [f64; 2],
    /// Samples that were lost because outputs lay where none had lain.
    pub lost: usize,
}

/// What a timing needs to know.
pub(crate) struct Bench<'a> {
    pub(crate) tolerance: &'a Tolerance,
    pub(crate) plan: &'a TimingPlan,
    pub(crate) machine: &'a Machine,
    pub(crate) floor: Duration,
    /// Calls of a request, at most.
    pub(crate) most_calls: usize,
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
    let slots = (0..calls).collect();
    let deadline = bench.floor + typical * (calls as u32 * 20);
    let mut both = Sampler { session, candidate, tolerance: bench.tolerance, slots, deadline, lost: 0 };
    both.described_pair(rng)?;
    for _ in 0..bench.plan.warmup.max(1) {
        both.pair(rng)?;
    }
    let (mut samples, mut costs) = (vec![], vec![]);
    let between = bench.plan.repetitions.div_ceil(EMPTY).max(1);
    for round in 0..bench.plan.repetitions {
        if round % between == 0 {
            costs.push(empty(both.session, calls, rng)?);
        }
        samples.push(both.pair(rng)?);
    }
    let (lost, empty_ns) = (both.lost, Statistic::Median.of(&costs));
    let gaps_ns = [0, 1].map(|side: usize| gap(samples.iter().map(|pair| &pair[side])));
    let clocks = Clocks { calls, overhead_ns: overhead(gaps_ns[0], empty_ns), empty_ns, gaps_ns, lost };
    clocks_agree(&samples, clocks.overhead_ns)?;
    let floors = floors(session, bench.machine);
    Ok((timed(&samples, &clocks, floors, bench.plan.statistic)?, clocks))
}

/// What a request costs beside its calls: what the reference's process says, unless it works where its own clock does not
/// look, and then what an empty request costs.
fn overhead(gap_ns: f64, empty_ns: f64) -> f64 {
    let [times, more] = MORE_THAN_EMPTY;
    if gap_ns <= times * empty_ns + more { gap_ns } else { empty_ns }
}

/// Times the reference alone, by the same clock.
pub(crate) fn time_reference(session: &mut Session, plan: &TimingPlan, rng: &mut StdRng) -> Attempt<Timing> {
    let (calls, _) = request(session, rng)?;
    let empty_ns = empties(session, calls, EMPTY as usize, rng)?;
    let slots: Vec<usize> = (0..calls).collect();
    for _ in 0..plan.warmup.max(1) {
        reference_alone(session, &slots, rng)?;
    }
    let rounds = 0..plan.repetitions;
    let samples = rounds.map(|_| reference_alone(session, &slots, rng)).collect::<Attempt<Vec<Ran>>>()?;
    trusted(session.reference.release())?;
    let overhead = overhead(gap(samples.iter()), empty_ns);
    Ok(Timing::of(samples.iter().map(|ran| counted(ran, overhead) / calls as f64)))
}

fn reference_alone(session: &mut Session, slots: &[usize], rng: &mut StdRng) -> Attempt<Ran> {
    if session.inputs.as_array().map_or(0, Vec::len) != slots.len() {
        session.draw(slots.len(), false, rng)?;
    }
    trusted(session.reference.inputs(&session.inputs))?;
    trusted(session.reference.prepare(slots))?;
    session.draw_and(slots.len(), false, true, rng)?;
    if trusted(session.reference.inputs(&session.inputs))? {
        trusted(session.reference.prepare(slots))?;
    }
    match session.time_reference(slots)? {
        Some(ran) => Ok(ran),
        None => session.run_reference(slots),
    }
}

/// How many calls make a request, and what one takes.
fn request(session: &mut Session, rng: &mut StdRng) -> Attempt<(usize, Duration)> {
    let empty_ns = empties(session, 1, TRIED, rng)?;
    let mut least = f64::INFINITY;
    for _ in 0..TRIED {
        least = least.min(counted(&reference_alone(session, &[0], rng)?, empty_ns));
    }
    let calls = (REQUEST.as_nanos() as f64 / least.max(1.0)) as usize + 1;
    Ok((calls.clamp(1, session.slots), Duration::from_nanos(least as u64)))
}

/// The time that counts, in nanoseconds: ours, less what any request costs, but never less than half of it.
fn counted(ran: &Ran, overhead: f64) -> f64 {
    let outside = ran.outside.as_nanos() as f64;
    (outside - overhead).max(outside / 2.0)
}

fn timed(
    samples: &[[Ran; 2]],
    clocks: &Clocks,
    [refused_below, floor]: [Option<f64>; 2],
    statistic: Statistic,
) -> Attempt<Timed> {
    let calls = clocks.calls as f64;
    let times = |side: usize| Timing::of(samples.iter().map(|pair| counted(&pair[side], clocks.overhead_ns) / calls));
    let (reference, candidate) = (times(0), times(1));
    let measured = candidate.typical_ns(statistic);
    if let Some(floor) = refused_below.filter(|floor| measured < *floor) {
        let (measured_ns, floor_ns) = (measured as u64, floor as u64);
        return Err(Failure::BelowFloor { case: CASE.to_owned(), measured_ns, floor_ns }.into());
    }
    let speedup = Speedup::over(&[(&reference, &candidate)], statistic)
        .ok_or_else(|| Fault("no samples were taken: the timing plan's repetitions are 0".to_owned()))?;
    let apart = (clocks.gaps_ns[0] - clocks.gaps_ns[1]).abs() / calls;
    let speedup = speedup.doubted(apart / measured.max(1.0));
    let case = CaseTiming { case: CASE.to_owned(), reference, candidate, speedup, floor_ns: floor };
    Ok(Timed { cases: vec![case], speedup, statistic })
}

/// By how much our clock exceeds the one inside, in nanoseconds a request. The difference of both sides is what reaching one
/// process costs more than reaching the other. A candidate's own clock may lie; then the doubt grows, or is what it was.
fn gap<'a>(ran: impl Iterator<Item = &'a Ran>) -> f64 {
    let gaps: Vec<f64> = ran.map(|ran| ran.outside.as_nanos() as f64 - ran.inside_ns as f64).collect();
    Statistic::Median.of(&gaps)
}

/// Below what a time is impossible, and what the roofline says: a candidate may do without some of its inputs (half of a
/// triangular matrix, rows that no index names), but none of its outputs.
fn floors(session: &Session, machine: &Machine) -> [Option<f64>; 2] {
    let Session { input_bytes, output_bytes, parameter_bytes, .. } = session;
    let all = input_bytes + output_bytes + parameter_bytes;
    let least = machine.floor_ns(output_bytes + input_bytes / 2).map(|floor| floor / MARGIN);
    [least, machine.bandwidth_at(all).map(|bandwidth| all as f64 / bandwidth * 1e9)]
}

/// The candidate's clock against ours, as the reference's stands against ours.
fn clocks_agree(samples: &[[Ran; 2]], overhead: f64) -> Attempt<()> {
    let gap = |ran: &Ran| ran.outside.as_nanos() as f64 - ran.inside_ns as f64;
    let gaps = |side: usize| samples.iter().map(move |pair| gap(&pair[side]));
    let ours = Statistic::Median.of(&gaps(0).collect::<Vec<_>>()).max(overhead);
    let allowed = |ran: &Ran| 2.0 * ours + CLOCK_SHARE * ran.outside.as_nanos() as f64 + CLOCK_FLOOR_NS;
    let apart = samples.iter().all(|[_, ran]| gap(ran) > allowed(ran));
    let least = gaps(1).fold(f64::INFINITY, f64::min);
    if samples.is_empty() || !(apart || least < -CLOCK_FLOOR_NS) {
        return Ok(());
    }
    let median =
        |of: fn(&Ran) -> f64| Statistic::Median.of(&samples.iter().map(|[_, ran]| of(ran)).collect::<Vec<_>>());
    Err(Failure::Clocks {
        case: CASE.to_owned(),
        inside_ns: median(|ran| ran.inside_ns as f64) as u64,
        outside_ns: median(|ran| ran.outside.as_nanos() as f64) as u64,
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::Interval;

    fn ran(outside_us: u64, inside_us: u64) -> Ran {
        Ran { outside: Duration::from_micros(outside_us), inside_ns: inside_us * 1000, outputs: vec![] }
    }

    #[test]
    fn a_process_that_is_only_harder_to_reach_is_not_called_slower() {
        let samples: Vec<_> = (0..20).map(|n| [ran(3300 + n, 3000 + n), ran(3500 + n % 3, 3000)]).collect();
        let gaps_ns = [0, 1].map(|side: usize| gap(samples.iter().map(|pair| &pair[side])));
        let clocks = Clocks { calls: 1, overhead_ns: 300_000.0, empty_ns: 250_000.0, gaps_ns, lost: 0 };
        let timed = timed(&samples, &clocks, [None, None], Statistic::Median);
        let Ok(timed) = timed else { panic!("it was timed") };
        let Interval { low, high } = timed.speedup.interval;
        assert!(low < 1.0 && 1.0 < high, "{low} {high}");
    }
}
