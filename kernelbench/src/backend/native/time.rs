//! How fast is it, beside the reference?
//!
//! Pairs of samples on the same fresh contents, in random order, on the same core. A sample of a short kernel is a batch
//! of calls, each on contents of its own. The outputs of every timed call are compared.

use super::{
    check::Bench,
    trial::{self, Contents, Draw, Trial},
    worker::Clocked,
};
use crate::{
    result::{
        error::Attempt,
        evaluation::{CaseTiming, Timed},
        failure::{Failure, Fault},
    },
    task::{Case, layout::Plan, suite::Suite},
    workshop::TimingPlan,
};
use metrics::{Machine, Speedup, Statistic, Timing};
use rand::{Rng, rngs::StdRng};
use std::time::Duration;

/// What a batch of the reference's calls lasts at least, where memory allows.
const BATCH: Duration = Duration::from_micros(500);
/// What a batch's slots may take, in bytes.
const BATCH_BYTES: usize = 64 << 20;
/// The most calls in a batch.
const MOST_CALLS: usize = 512;
/// Independent draws behind the contents of the timed calls.
const POOL: usize = 2;
/// Empty requests and lone calls that a calibration takes.
const CALIBRATION: usize = 15;
/// Pairs of processes that a timing is spread over: where memory lies is settled when a process starts.
const LAUNCHES: u32 = 10;
/// What two clocks may disagree by on any machine, in nanoseconds.
const CLOCK_FLOOR_NS: f64 = 20_000.0;

/// Times reference and candidate on every timed case of a suite.
pub(crate) fn time(
    bench: &Bench<'_>,
    suite: &Suite,
    timing: &TimingPlan,
    machine: &Machine,
    rng: &mut StdRng,
) -> Attempt<Timed> {
    let _aside = bench.launch.cores.step_aside();
    let mut cases = vec![];
    for name in &suite.timed {
        let case = suite.cases.iter().find(|case| case.name == *name);
        let case = case.ok_or_else(|| Fault(format!("the suite times a case `{name}` that it does not hold")))?;
        cases.push(time_case(bench, case, timing, machine, rng)?);
    }
    let pairs: Vec<(&Timing, &Timing)> = cases.iter().map(|case| (&case.reference, &case.candidate)).collect();
    let speedup = Speedup::over(&pairs, timing.statistic)
        .ok_or_else(|| Fault("nothing was timed: the suite times no case, or the plan takes no samples".to_owned()))?;
    Ok(Timed { cases, speedup, statistic: timing.statistic })
}

fn time_case(
    bench: &Bench<'_>,
    case: &Case,
    timing: &TimingPlan,
    machine: &Machine,
    rng: &mut StdRng,
) -> Attempt<CaseTiming> {
    let plan = trial::plan(bench.context, case)?;
    let draws: Vec<Draw> = (0..POOL).map(|_| Draw::new(&plan, rng)).collect();
    let calls = calls_in_a_batch(bench, &plan, &draws[0], rng)?;
    let mut batch = Batch { bench, plan: &plan, draws: &draws, calls, deadline: None };
    let launches = LAUNCHES.clamp(1, timing.repetitions.max(1));
    let mut samples = vec![];
    for launch in 0..launches {
        samples.push(batch.launch(
            share(timing.warmup, launch, launches),
            share(timing.repetitions, launch, launches),
            rng,
        )?);
    }
    clocks_agree(case, &samples)?;
    let typical = |side: fn(&Launch) -> &[Clocked]| {
        let per_call = |c: &Clocked| c.outside.as_nanos() as f64 / calls as f64;
        Timing::of_launches(samples.iter().map(|launch| side(launch).iter().map(per_call).collect()))
    };
    let (reference, candidate) = (typical(|l| &l.reference), typical(|l| &l.candidate));
    let floor_ns = machine.floor_ns(plan.compulsory_bytes());
    above_floor(case, &candidate, floor_ns, timing.statistic)?;
    let speedup = Speedup::over(&[(&reference, &candidate)], timing.statistic)
        .ok_or_else(|| Fault("no samples were taken: the timing plan's repetitions are 0".to_owned()))?;
    Ok(CaseTiming { case: case.name.clone(), reference, candidate, speedup, floor_ns })
}

/// How many of so many fall to one launch.
fn share(all: u32, launch: u32, launches: u32) -> u32 {
    all / launches + u32::from(launch < all % launches)
}

/// How many calls make the reference's batch long enough to be timed.
fn calls_in_a_batch(bench: &Bench<'_>, plan: &Plan, draw: &Draw, rng: &mut StdRng) -> Attempt<usize> {
    let [reference, _] = bench.objects;
    let mut trial = Trial::start(bench.launch, plan, bench.tolerance, 1, [reference, reference])?;
    let mut least = u64::MAX;
    for _ in 0..CALIBRATION {
        trial.fill(0, &draw.as_drawn(), rng);
        let clocked = trial.run_reference(1)?;
        least = least.min(clocked.inside_ns);
        if clocked.outside > BATCH * 4 {
            break;
        }
    }
    let wanted = BATCH.as_nanos() as u64 / least.max(1) + 1;
    let fitting = (BATCH_BYTES / plan.slot_bytes.max(1)).clamp(1, MOST_CALLS);
    Ok(usize::try_from(wanted).unwrap_or(fitting).min(fitting))
}

/// What a request costs that calls nothing, in nanoseconds.
fn overhead(trial: &mut Trial<'_>) -> Attempt<f64> {
    let mut costs = vec![];
    for _ in 0..CALIBRATION {
        costs.push(trial.run_reference(0)?.outside.as_nanos() as f64);
    }
    Ok(Statistic::Median.of(&costs))
}

/// The calls of one sample.
struct Batch<'a> {
    bench: &'a Bench<'a>,
    plan: &'a Plan,
    draws: &'a [Draw],
    calls: usize,
    /// The candidate's, once the reference has run.
    deadline: Option<Duration>,
}

impl<'a> Batch<'a> {
    /// Starts a process for each of the two, warms them up, and takes samples.
    fn launch(&mut self, warmup: u32, samples: u32, rng: &mut StdRng) -> Attempt<Launch> {
        let (tolerance, objects) = (self.bench.tolerance, self.bench.objects);
        let mut trial = Trial::start(self.bench.launch, self.plan, tolerance, self.calls, objects)?;
        let mut launch = Launch { overhead: overhead(&mut trial)?, ..Launch::default() };
        self.warm_up(&mut trial, warmup, rng)?;
        for _ in 0..samples {
            let [reference, candidate] = self.sample(&mut trial, rng)?;
            launch.reference.push(reference);
            launch.candidate.push(candidate);
        }
        Ok(launch)
    }

    /// Runs both on the same contents again and again.
    fn warm_up(&mut self, trial: &mut Trial<'_>, rounds: u32, rng: &mut StdRng) -> Attempt<()> {
        self.fill(trial, rng);
        for _ in 0..rounds.max(1) {
            self.run_reference(trial)?;
            self.run_candidate(trial)?;
        }
        Ok(())
    }

    /// Runs both on fresh contents, in random order, and compares all outputs.
    fn sample(&mut self, trial: &mut Trial<'_>, rng: &mut StdRng) -> Attempt<[Clocked; 2]> {
        let contents = self.fill(trial, rng);
        let clocked = if rng.random() {
            let reference = self.run_reference(trial)?;
            [reference, self.run_candidate(trial)?]
        } else {
            let candidate = self.run_candidate(trial)?;
            [self.run_reference(trial)?, candidate]
        };
        for (slot, contents) in contents.iter().enumerate() {
            trial.verify(slot, contents, true)?;
        }
        Ok(clocked)
    }

    fn fill(&self, trial: &mut Trial<'_>, rng: &mut StdRng) -> Vec<Contents<'a>> {
        let mut contents = vec![];
        for slot in 0..self.calls {
            let turned = self.draws[rng.random_range(0..self.draws.len())].turned(self.plan, rng);
            trial.fill(slot, &turned, rng);
            contents.push(turned);
        }
        contents
    }

    fn run_reference(&mut self, trial: &mut Trial<'_>) -> Attempt<Clocked> {
        let clocked = trial.run_reference(self.calls)?;
        self.deadline.get_or_insert(trial::deadline(clocked.outside, self.bench.floor));
        Ok(clocked)
    }

    fn run_candidate(&self, trial: &mut Trial<'_>) -> Attempt<Clocked> {
        trial.run_candidate(self.calls, self.deadline.unwrap_or(self.bench.floor))
    }
}

/// Samples of one pair of processes.
#[derive(Default)]
struct Launch {
    /// What a request costs that calls nothing, in nanoseconds.
    overhead: f64,
    reference: Vec<Clocked>,
    candidate: Vec<Clocked>,
}

/// The child's clock against ours. Load parts the two now and then, and the reference's as well; a clock that was
/// tampered with is apart in every sample, or ahead of ours.
fn clocks_agree(case: &Case, launches: &[Launch]) -> Attempt<()> {
    let candidate: Vec<Clocked> = launches.iter().flat_map(|launch| launch.candidate.iter().copied()).collect();
    let overhead = Statistic::Median.of(&launches.iter().map(|launch| launch.overhead).collect::<Vec<_>>());
    let ours = overhead.max(least(launches.iter().flat_map(|launch| &launch.reference).map(gap)));
    let allowed = |c: &Clocked| 2.0 * ours + 0.1 * c.outside.as_nanos() as f64 + CLOCK_FLOOR_NS;
    let apart = candidate.iter().all(|c| gap(c) > allowed(c));
    let ahead = least(candidate.iter().map(gap)) < -CLOCK_FLOOR_NS;
    if candidate.is_empty() || !(apart || ahead) {
        return Ok(());
    }
    let median = |of: fn(&Clocked) -> f64| Statistic::Median.of(&candidate.iter().map(of).collect::<Vec<_>>());
    Err(Failure::Clocks {
        case: case.name.clone(),
        inside_ns: median(|c| c.inside_ns as f64) as u64,
        outside_ns: median(|c| c.outside.as_nanos() as f64) as u64,
    }
    .into())
}

/// By how much our clock is ahead of the child's, in nanoseconds.
fn gap(clocked: &Clocked) -> f64 {
    clocked.outside.as_nanos() as f64 - clocked.inside_ns as f64
}

fn least(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(f64::INFINITY, f64::min)
}

fn above_floor(case: &Case, candidate: &Timing, floor: Option<f64>, statistic: Statistic) -> Attempt<()> {
    let measured = candidate.typical_ns(statistic);
    match floor {
        Some(floor) if measured < floor => {
            Err(Failure::BelowFloor { case: case.name.clone(), measured_ns: measured as u64, floor_ns: floor as u64 }
                .into())
        }
        _ => Ok(()),
    }
}
