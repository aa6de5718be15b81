//! How fast is it, beside the reference?
//!
//! Pairs of samples on the same fresh contents, in random order. A sample of a short forward is a request of several calls,
//! each on inputs of its own. The outputs of every timed call are compared.

use super::{
    CASE,
    runner::{Ran, Runner},
    session::Session,
    verify::Look,
};
use crate::{
    evaluation::{CaseTiming, Timed},
    failure::{Failure, Fault},
    native::trouble::Attempt,
    task::Tolerance,
    workshop::TimingPlan,
};
use metrics::{Interval, Machine, Speedup, Statistic, Timing};
use rand::{Rng, rngs::StdRng};
use std::time::Duration;

/// What the calls of a request last at least, where the arena allows.
const REQUEST: Duration = Duration::from_millis(5);
/// Empty requests that tell what a request costs.
const CALIBRATION: usize = 15;
/// What two clocks may disagree by on any machine, in nanoseconds.
const CLOCK_FLOOR_NS: f64 = 100_000.0;
/// How far above the best bandwidth seen the physical limit may lie.
const MARGIN: f64 = 1.15;

/// What a timing needs to know.
pub(crate) struct Bench<'a> {
    pub(crate) tolerance: &'a Tolerance,
    pub(crate) plan: &'a TimingPlan,
    pub(crate) machine: &'a Machine,
    pub(crate) floor: Duration,
}

/// Times both.
pub(crate) fn time(
    session: &mut Session,
    candidate: &mut Runner,
    bench: &Bench<'_>,
    rng: &mut StdRng,
) -> Attempt<Timed> {
    let overhead = overhead(session)?;
    let calls = calls_in_a_request(session, overhead);
    let deadline = bench.floor + session.typical * (calls as u32 * 20);
    let mut round = Round { session, candidate, bench, slots: (0..calls).collect(), deadline };
    for _ in 0..bench.plan.warmup.max(1) {
        round.warm_up(rng)?;
    }
    let mut samples = vec![];
    for _ in 0..bench.plan.repetitions {
        samples.push(round.sample(rng)?);
    }
    clocks_agree(&samples, overhead)?;
    let floors = floors(session, bench.machine);
    timed(&samples, overhead, calls, floors, bench.plan.statistic)
}

/// Times the reference alone, by the same clock.
pub(crate) fn time_reference(session: &mut Session, plan: &TimingPlan, rng: &mut StdRng) -> Attempt<Timing> {
    let overhead = overhead(session)?;
    let calls = calls_in_a_request(session, overhead);
    let slots: Vec<usize> = (0..calls).collect();
    let mut times = vec![];
    for round in 0..plan.warmup.max(1) + plan.repetitions {
        session.draw(calls, false, rng)?;
        session.flush()?;
        let ran = session.run_reference(&slots)?;
        session.reference.release()?;
        if round >= plan.warmup.max(1) {
            times.push(counted(&ran, overhead) / calls as f64);
        }
    }
    Ok(Timing::of(times))
}

fn calls_in_a_request(session: &Session, overhead: f64) -> usize {
    let typical = session.typical.as_nanos() as f64;
    let one = (typical - overhead).max(typical / 20.0).max(1.0);
    ((REQUEST.as_nanos() as f64 / one) as usize + 1).clamp(1, session.slots)
}

/// What a request costs that calls nothing, in nanoseconds: asked of the reference's process, which has no cause to lie.
fn overhead(session: &mut Session) -> Attempt<f64> {
    let mut costs = vec![];
    for _ in 0..CALIBRATION {
        costs.push(session.run_reference(&[])?.outside.as_nanos() as f64);
    }
    Ok(Statistic::Median.of(&costs))
}

struct Round<'a> {
    session: &'a mut Session,
    candidate: &'a mut Runner,
    bench: &'a Bench<'a>,
    slots: Vec<usize>,
    deadline: Duration,
}

impl Round<'_> {
    fn warm_up(&mut self, rng: &mut StdRng) -> Attempt<()> {
        self.sample(rng).map(|_| ())
    }

    /// Runs both on fresh contents, in random order, and compares all outputs.
    fn sample(&mut self, rng: &mut StdRng) -> Attempt<[Ran; 2]> {
        self.session.draw(self.slots.len(), false, rng)?;
        self.candidate.inputs(&self.session.inputs)?;
        let [reference, got] = if rng.random() {
            let reference = self.reference()?;
            [reference, self.candidate(rng)?]
        } else {
            let got = self.candidate(rng)?;
            [self.reference()?, got]
        };
        let look = Look { tolerance: self.bench.tolerance, case: CASE, oracle: false, while_timed: true };
        self.session.verify(self.candidate, &reference, &got, &self.slots, &look)?;
        self.candidate.release()?;
        self.session.reference.release()?;
        Ok([reference, got])
    }

    fn reference(&mut self) -> Attempt<Ran> {
        self.session.flush()?;
        self.session.run_reference(&self.slots)
    }

    fn candidate(&mut self, rng: &mut StdRng) -> Attempt<Ran> {
        self.session.flush()?;
        self.session.run_candidate(self.candidate, &self.slots, self.deadline, rng)
    }
}

/// The time that counts, in nanoseconds: ours, less what any request costs, but never less than half of it.
fn counted(ran: &Ran, overhead: f64) -> f64 {
    let outside = ran.outside.as_nanos() as f64;
    (outside - overhead).max(outside / 2.0)
}

fn timed(
    samples: &[[Ran; 2]],
    overhead: f64,
    calls: usize,
    [refused_below, floor]: [Option<f64>; 2],
    statistic: Statistic,
) -> Attempt<Timed> {
    let times = |side: usize| Timing::of(samples.iter().map(|pair| counted(&pair[side], overhead) / calls as f64));
    let (reference, candidate) = (times(0), times(1));
    let measured = candidate.typical_ns(statistic);
    if let Some(floor) = refused_below.filter(|floor| measured < *floor) {
        let (measured_ns, floor_ns) = (measured as u64, floor as u64);
        return Err(Failure::BelowFloor { case: CASE.to_owned(), measured_ns, floor_ns }.into());
    }
    let speedup = Speedup::over(&[(&reference, &candidate)], statistic)
        .ok_or_else(|| Fault("no samples were taken: the timing plan's repetitions are 0".to_owned()))?;
    let speedup = doubted(speedup, candidate.typical_ns(statistic), apart(samples) / calls as f64);
    let case = CaseTiming { case: CASE.to_owned(), reference, candidate, speedup, floor_ns: floor };
    Ok(Timed { cases: vec![case], speedup, statistic })
}

/// By how much the two sides' clocks differ from one another, in nanoseconds a request: what reaching one process costs more
/// than reaching the other. A candidate's own clock may lie; then the doubt grows, or is what it was.
fn apart(samples: &[[Ran; 2]]) -> f64 {
    let gap = |side: usize| {
        let gaps: Vec<f64> =
            samples.iter().map(|pair| pair[side].outside.as_nanos() as f64 - pair[side].inside_ns as f64).collect();
        Statistic::Median.of(&gaps)
    };
    (gap(0) - gap(1)).abs()
}

/// The interval, widened by a doubt about the candidate's time.
fn doubted(speedup: Speedup, candidate_ns: f64, doubt_ns: f64) -> Speedup {
    let part = (doubt_ns / candidate_ns.max(1.0)).min(0.9);
    let Interval { low, high } = speedup.interval;
    Speedup { interval: Interval { low: low / (1.0 + part), high: high / (1.0 - part) }, ..speedup }
}

/// Below what a time is impossible, and what the roofline says: a candidate may do without some of its inputs (half of a
/// triangular matrix, rows that no index names), but none of its outputs.
fn floors(session: &Session, machine: &Machine) -> [Option<f64>; 2] {
    let Session { input_bytes, output_bytes, parameter_bytes, .. } = session;
    let all = input_bytes + output_bytes + parameter_bytes;
    let least = machine.floor_ns(output_bytes / 2 + output_bytes / 2 + input_bytes / 2).map(|floor| floor / MARGIN);
    [least, machine.bandwidth_at(all).map(|bandwidth| all as f64 / bandwidth * 1e9)]
}

/// The candidate's clock against ours, as the reference's stands against ours.
fn clocks_agree(samples: &[[Ran; 2]], overhead: f64) -> Attempt<()> {
    let gap = |ran: &Ran| ran.outside.as_nanos() as f64 - ran.inside_ns as f64;
    let least = |side: usize| samples.iter().map(|pair| gap(&pair[side])).fold(f64::INFINITY, f64::min);
    let ours = overhead.max(least(0));
    let allowed = |ran: &Ran| 2.0 * ours + 0.1 * ran.outside.as_nanos() as f64 + CLOCK_FLOOR_NS;
    let apart = samples.iter().all(|[_, ran]| gap(ran) > allowed(ran));
    if samples.is_empty() || !(apart || least(1) < -CLOCK_FLOOR_NS) {
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

    fn ran(outside_us: u64, inside_us: u64) -> Ran {
        Ran { outside: Duration::from_micros(outside_us), inside_ns: inside_us * 1000, outputs: vec![] }
    }

    #[test]
    fn a_process_that_is_only_harder_to_reach_is_not_called_slower() {
        let samples: Vec<_> = (0..20).map(|n| [ran(3300 + n, 3000 + n), ran(3500 + n % 3, 3000)]).collect();
        let timed = timed(&samples, 300_000.0, 1, [None, None], Statistic::Median);
        let Ok(timed) = timed else { panic!("it was timed") };
        let Interval { low, high } = timed.speedup.interval;
        assert!(low < 1.0 && 1.0 < high, "{low} {high}");
    }
}
