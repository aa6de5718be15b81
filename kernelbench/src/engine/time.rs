//! Timing: how fast is a candidate beside its reference?
//!
//! Pairs of requests from one or several pairs of processes. The outputs of every timed call are compared. What something
//! disturbed is taken again, and so is what no honest candidate would explain: on a machine that others use too it may pass.

use super::backend::{Backend, Both, Pair, Processes, Standard};
use crate::{
    engine::{check, notes::Remarks},
    measure::{
        floor::Floors,
        numbers::{Effort, Numbers, PAIRS_OF_UNSTEADY, TRIES, UNSTEADY},
        overhead::{self, DispatchOverhead},
        pairs::{self, Block, Taking},
        reading::Reading,
        watch::{Disturbances, Watch},
    },
    result::{
        error::{Attempt, EvalError},
        evaluation::{CaseTiming, Timed},
        failure::{Failure, Fault},
    },
    stage::{self, Stage},
    task::{Case, Task, suite::Suite},
    workshop::TimingPlan,
};
use metrics::{Speedup, Timing};
use rand::rngs::StdRng;

/// What is timed, and how.
pub(crate) struct What<'a> {
    pub(crate) task: &'a Task,
    pub(crate) suite: &'a Suite,
    pub(crate) plan: &'a TimingPlan,
    pub(crate) effort: Effort,
    /// Whether the candidate is the reference itself, which nobody suspects.
    pub(crate) trusted: bool,
    /// By what part the reference may differ from itself in another process ([`crate::Baseline::self_difference`]).
    pub(crate) self_difference: f64,
}

/// Everything that was read of the timed cases, by case.
type Blocks<'a> = Vec<(&'a Case, Floors, Vec<Block>)>;

/// Times both on every timed case of a suite, and says what is to be known of that. Nobody else holds the device then.
pub(crate) fn time<B: Backend>(
    backend: &B,
    mut both: Both<'_, '_, B>,
    what: &What<'_>,
    rng: &mut StdRng,
) -> Attempt<(Timed, Remarks)> {
    let mut sittings = Sittings::of(backend, what, 1)?;
    sittings.sit(&mut both, rng)?;
    sittings.settle(both, rng)
}

/// A timing in one or several stretches of time, with other work between them.
pub(crate) struct Sittings<'a, B: Backend> {
    backend: &'a B,
    what: &'a What<'a>,
    blocks: Blocks<'a>,
    disturbed: Disturbances,
    /// How many there are, and how many pairs of processes share them.
    all: u32,
    processes: u32,
    /// The pairs of processes of each that was.
    held: Vec<usize>,
}

impl<'a, B: Backend> Sittings<'a, B> {
    /// So many, if there are as many pairs of processes.
    pub(crate) fn of(backend: &'a B, what: &'a What<'a>, all: u32) -> Result<Self, Fault> {
        let processes = what.processes(backend.numbers());
        let blocks = timed_cases(what.suite)?.into_iter().map(|case| (case, Floors::default(), vec![])).collect();
        let disturbed = Disturbances::default();
        Ok(Self { backend, what, blocks, disturbed, all: all.clamp(1, processes), processes, held: vec![] })
    }

    /// Holds the next, if there is one left.
    pub(crate) fn sit(&mut self, both: &mut Both<'_, '_, B>, rng: &mut StdRng) -> Attempt<()> {
        let at = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        if at < self.all {
            let begins = |sitting: u32| sitting * self.processes / self.all;
            let processes = begins(at)..begins(at + 1);
            self.held.push(processes.len());
            let disturbed = self.read(both, processes, rng)?;
            self.disturbed.extend(disturbed);
            both.lease.let_others_in();
        }
        Ok(())
    }

    /// What they come to, and what is to be known of that. They are held again where something disturbed them, or they come
    /// to what no honest candidate would explain.
    pub(crate) fn settle(mut self, mut both: Both<'_, '_, B>, rng: &mut StdRng) -> Attempt<(Timed, Remarks)> {
        let mut remarks = Remarks::default();
        loop {
            let others = &self.disturbed.others;
            let again = remarks.again.len() + 1 < TRIES;
            match judged(self.backend, self.what, &self.blocks, &self.held) {
                // Once, for a machine that others use all the time would never be timed.
                Ok(_) if !others.is_empty() && remarks.again.is_empty() => {
                    remarks.again.push(format!("timed again: {}", others.join("; ")));
                }
                Ok(timed) => {
                    remarks.take(&self.blocks, self.disturbed.all(), self.backend.nvml().is_some());
                    return Ok((timed, remarks));
                }
                Err(EvalError::Candidate(failure)) if may_pass(&failure) && again => {
                    remarks.again.push(format!("timed again, for the time before would have been refused: {failure}"));
                }
                Err(EvalError::Candidate(failure)) => return Err(whose_doing(failure, others)),
                Err(fault) => return Err(fault),
            }
            self = Self::of(self.backend, self.what, self.all)?;
            for _ in 0..self.all {
                self.sit(&mut both, rng)?;
            }
        }
    }

    /// Takes the pairs of requests of some pairs of processes: of each, those of each case. What disturbed that.
    fn read(
        &mut self,
        Both { session, loaded, lease }: &mut Both<'_, '_, B>,
        processes: std::ops::Range<u32>,
        rng: &mut StdRng,
    ) -> Attempt<Disturbances> {
        let (backend, what) = (self.backend, self.what);
        let numbers = backend.numbers();
        let mut disturbed = Disturbances::default();
        let budget = numbers.budget.filter(|_| what.effort == Effort::Loop);
        let budget =
            budget.map(|all| all / (u32::try_from(self.blocks.len()).unwrap_or(u32::MAX).max(1) * self.processes));
        for at in processes {
            let which = if at == 0 { Processes::AtHand } else { Processes::New };
            if at > 0 {
                lease.let_others_in();
            }
            let which = (Standard::Times, which);
            let mut pair = stage::during(Stage::Load, || backend.pair(what.task, session, loaded, which))?;
            if let Some((case, ..)) = self.blocks.first().filter(|_| pair.is_new() && !what.trusted) {
                check::first_call(&mut pair, case, &what.task.tolerance, (backend.first_slack(), lease), rng)?;
            }
            lease.be_alone();
            let (_quiet, watch) = (backend.quiet(), Watch::begin(backend.nvml()));
            for (case, floors, blocks) in &mut self.blocks {
                let how = Taking {
                    plan: what.plan,
                    effort: what.effort,
                    numbers,
                    tolerance: &what.task.tolerance,
                    verify: !what.trusted,
                    slack: backend.slack(),
                    share: (self.processes, at),
                    calls: blocks.last().map(|block| block.calls),
                    budget,
                };
                blocks.push(pairs::take(&mut pair, case, &how, rng)?);
                *floors = Floors::of(pair.traffic(), backend.machine(), numbers.floor_margin);
            }
            disturbed.extend(watch.end());
            disturbed.others.extend(pair.shared());
            pair.look_around()?;
        }
        Ok(disturbed)
    }
}

/// What clocks say is not the candidate's doing where others were seen to use the machine.
fn whose_doing(failure: Box<Failure>, disturbed: &[String]) -> EvalError {
    if may_pass(&failure) && !disturbed.is_empty() {
        return Fault::Disturbed(format!("it could not be timed: {}; {failure}", disturbed.join("; "))).into();
    }
    EvalError::Candidate(failure)
}

/// What a machine that others use too may be behind.
fn may_pass(failure: &Failure) -> bool {
    matches!(failure, Failure::Clocks { .. } | Failure::BelowFloor { .. })
}

/// The cases of a suite that are timed.
pub(crate) fn timed_cases(suite: &Suite) -> Result<Vec<&Case>, Fault> {
    let find = |name: &String| {
        let case = suite.cases.iter().find(|case| case.name == *name);
        case.ok_or_else(|| Fault::Machine(format!("the suite times a case `{name}` that it does not hold")))
    };
    suite.timed.iter().map(find).collect()
}

impl What<'_> {
    /// By what part its intervals are wider than resampling makes them, of which so much is for few pairs of processes. How far a
    /// reference reaches from itself is what is asked for where it is its own candidate, so nothing is added there.
    fn widened_by(&self, between_processes: f64, speedup: &Speedup, few: f64) -> f64 {
        let others = between_processes.max(few);
        if self.trusted { 0.0 } else { speedup.of_itself(self.self_difference).max(others) }
    }

    /// Pairs of processes: as many as the plan says, or as is usual for this effort and this reference, but no more than it takes
    /// samples.
    fn processes(&self, numbers: &Numbers) -> u32 {
        let (in_loop, certificate) = numbers.processes;
        let usual = match self.effort {
            Effort::Loop if self.self_difference > UNSTEADY => in_loop.max(PAIRS_OF_UNSTEADY),
            Effort::Loop => in_loop,
            Effort::Certificate => certificate,
        };
        self.plan.processes.unwrap_or(usual).clamp(1, self.plan.repetitions.max(1))
    }
}

/// What was read comes to, or what only a cheat or a disturbed machine explains.
fn judged<B: Backend>(backend: &B, what: &What<'_>, blocks: &Blocks<'_>, held: &[usize]) -> Attempt<Timed> {
    let statistic = what.plan.statistic;
    let one = |(case, floors, blocks): &(&Case, Floors, Vec<Block>)| {
        case_timing(backend, what, (case, *floors), (blocks, held))
    };
    let cases = blocks.iter().map(one).collect::<Attempt<Vec<_>>>()?;
    let pairs: Vec<(&Timing, &Timing)> = cases.iter().map(|(case, _)| (&case.reference, &case.candidate)).collect();
    let hidden = cases.iter().map(|(_, hidden)| hidden).sum::<f64>() / cases.len().max(1) as f64;
    let speedup = Speedup::over(&pairs, statistic).ok_or_else(|| {
        Fault::Machine("nothing was timed: the suite times no case, or the plan takes no samples".to_owned())
    })?;
    let widened =
        what.widened_by(backend.numbers().between_processes, &speedup, speedup.of_few_processes(&pairs, statistic));
    let speedup = speedup.lowered_by(hidden).widened_by(widened);
    let widen = |(case, _): (CaseTiming, f64)| CaseTiming { speedup: case.speedup.widened_by(widened), ..case };
    let cases = cases.into_iter().map(widen).collect();
    let (widened_by, against) = (Some(widened), what.task.against());
    Ok(Timed { cases, speedup, statistic, labels: vec![], widened_by, object: None, against })
}

/// The times of one case that count, with an interval that nothing has widened yet, and what the candidate's clock may have
/// hidden of them, as a part.
fn case_timing<B: Backend>(
    backend: &B,
    what: &What<'_>,
    (case, floors): (&Case, Floors),
    (blocks, held): (&[Block], &[usize]),
) -> Attempt<(CaseTiming, f64)> {
    let (numbers, statistic) = (backend.numbers(), what.plan.statistic);
    let side = |block: &Block, side: usize| block.pairs.iter().map(|pair| pair[side]).collect::<Vec<Reading>>();
    let overheads: Vec<DispatchOverhead> =
        blocks.iter().map(|block| DispatchOverhead::of(numbers.clock, &side(block, 0), block.empty_ns)).collect();
    if !what.trusted {
        let pairs: Vec<[Reading; 2]> = blocks.iter().flat_map(|block| block.pairs.iter().copied()).collect();
        let cost = overheads.iter().map(|overhead| overhead.typical_ns).fold(0.0, f64::max);
        if let Some(failure) = overhead::contradiction(&case.name, &pairs, cost, numbers.disagreement) {
            return Err(failure.into());
        }
    }
    let times = |of: usize| {
        let mut each = blocks.iter().zip(&overheads).map(|(block, overhead)| {
            side(block, of).iter().map(|ran| overhead.counted_ns(ran) / block.calls as f64).collect()
        });
        Timing::of_sittings(held.iter().map(|processes| each.by_ref().take(*processes).collect()))
    };
    let (reference, candidate) = (times(0), times(1));
    let measured = candidate.typical_ns(statistic);
    if let Some(floor) = floors.impossible_below_ns.filter(|floor| measured < *floor && !what.trusted) {
        let (measured_ns, floor_ns) = (measured as u64, floor as u64);
        return Err(Failure::BelowFloor { case: case.name.clone(), measured_ns, floor_ns }.into());
    }
    let hidden = blocks.iter().zip(&overheads).map(|(block, overhead)| overhead.hidden_part(&side(block, 1)));
    let hidden = if what.trusted { 0.0 } else { hidden.sum::<f64>() / blocks.len().max(1) as f64 };
    let speedup = Speedup::over(&[(&reference, &candidate)], statistic)
        .ok_or_else(|| Fault::Machine("no samples were taken: the timing plan's repetitions are 0".to_owned()))?
        .lowered_by(hidden);
    let floor_ns = floors.roofline_ns;
    let case = case.name.clone();
    Ok((CaseTiming { case, reference, candidate, speedup, floor_ns, uncounted: hidden }, hidden))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;
    use metrics::Interval;
    use std::path::Path;

    #[test]
    fn a_reference_that_differs_from_itself_is_timed_over_several_pairs_of_processes() {
        let task = load::task(Path::new("../examples/matmul")).unwrap();
        let (suite, numbers) =
            (&Suite::of_task(&task), Numbers { processes: (1, 4), ..crate::backend::native::NUMBERS });
        let of = |effort, self_difference, processes| {
            let plan = &TimingPlan { processes, ..TimingPlan::median_of(20, 100) };
            What { task: &task, suite, plan, effort, trusted: false, self_difference }.processes(&numbers)
        };
        assert_eq!([of(Effort::Loop, 0.001, None), of(Effort::Loop, 0.2, None)], [1, 3]);
        assert_eq!([of(Effort::Certificate, 0.2, None), of(Effort::Loop, 0.2, Some(1))], [4, 1]);
    }

    #[test]
    fn how_far_a_reference_reaches_from_itself_counts_for_a_candidate_and_not_for_itself() {
        let task = load::task(Path::new("../examples/matmul")).unwrap();
        let (suite, plan) = (&Suite::of_task(&task), &TimingPlan::median_of(1, 1));
        let what = |trusted, self_difference| What {
            task: &task,
            suite,
            plan,
            effort: Effort::Loop,
            trusted,
            self_difference,
        };
        let speedup = Speedup { ratio: 1.2, interval: Interval { low: 1.19, high: 1.21 } };
        let widened = what(false, 0.69).widened_by(0.0005, &speedup, 0.0);
        assert!((widened - speedup.of_itself(0.69)).abs() < 1e-12 && widened > 0.6, "{widened}");
        // What few pairs of processes hide, or any GPU's, counts where it is more.
        assert!((what(false, 0.0001).widened_by(0.0005, &speedup, 0.01) - 0.01).abs() < 1e-12);
        assert!((what(false, 0.0).widened_by(0.0005, &speedup, 0.0) - 0.0005).abs() < 1e-12);
        assert!(what(true, 0.69).widened_by(0.0005, &speedup, 0.01).abs() < 1e-12);
    }
}
