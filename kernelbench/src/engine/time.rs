//! Timing: how fast is a candidate beside its reference?
//!
//! Pairs of requests from one or several pairs of processes. The outputs of every timed call are compared. What something
//! disturbed is taken again, and so is what no honest candidate would explain: on a machine that others use too it may pass.

use super::backend::{Backend, Both, Pair, Processes, Standard};
use crate::{
    engine::notes::Remarks,
    measure::{
        floor::Floors,
        numbers::{Effort, TRIES},
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
    /// By what part the reference differed from itself in another process: a systematic error of this task's times.
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
    let mut remarks = Remarks::default();
    loop {
        let (blocks, disturbed) = read(backend, &mut both, what, rng)?;
        let again = remarks.again.len() + 1 < TRIES;
        match judged(backend, what, &blocks) {
            // Once, for a machine that others use all the time would never be timed.
            Ok(_) if !disturbed.others.is_empty() && remarks.again.is_empty() => {
                remarks.again.push(format!("timed again: {}", disturbed.others.join("; ")));
            }
            Ok(timed) => {
                remarks.take(&blocks, disturbed.all(), backend.nvml().is_some());
                return Ok((timed, remarks));
            }
            Err(EvalError::Candidate(failure)) if may_pass(&failure) && again => {
                remarks.again.push(format!("timed again, for the time before would have been refused: {failure}"));
            }
            Err(EvalError::Candidate(failure)) => return Err(whose_doing(failure, &disturbed.others)),
            Err(fault) => return Err(fault),
        }
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

fn timed_cases(suite: &Suite) -> Result<Vec<&Case>, Fault> {
    let find = |name: &String| {
        let case = suite.cases.iter().find(|case| case.name == *name);
        case.ok_or_else(|| Fault::Machine(format!("the suite times a case `{name}` that it does not hold")))
    };
    suite.timed.iter().map(find).collect()
}

/// Takes all pairs of requests: of each pair of processes, those of each case. Also what disturbed that.
fn read<'a, B: Backend>(
    backend: &B,
    Both { session, loaded, lease }: &mut Both<'_, '_, B>,
    what: &What<'a>,
    rng: &mut StdRng,
) -> Attempt<(Blocks<'a>, Disturbances)> {
    let numbers = backend.numbers();
    let mut disturbed = Disturbances::default();
    let cases = timed_cases(what.suite)?;
    let processes = what.processes(numbers.processes);
    let budget = numbers.budget.filter(|_| what.effort == Effort::Loop);
    let budget = budget.map(|all| all / (u32::try_from(cases.len()).unwrap_or(u32::MAX).max(1) * processes));
    let mut blocks: Blocks<'a> = cases.iter().map(|case| (*case, Floors::default(), vec![])).collect();
    for at in 0..processes {
        let which = if at == 0 { Processes::AtHand } else { Processes::New };
        if at > 0 {
            lease.let_others_in();
        }
        let mut pair =
            stage::during(Stage::Load, || backend.pair(what.task, session, loaded, (Standard::Times, which)))?;
        lease.be_alone();
        let (_quiet, watch) = (backend.quiet(), Watch::begin(backend.nvml()));
        for (case, floors, blocks) in &mut blocks {
            let how = Taking {
                plan: what.plan,
                effort: what.effort,
                numbers,
                tolerance: &what.task.tolerance,
                verify: !what.trusted,
                slack: backend.slack(),
                share: (processes, at),
                budget,
            };
            blocks.push(pairs::take(&mut pair, case, &how, rng)?);
            *floors = Floors::of(pair.traffic(), backend.machine(), numbers.floor_margin);
        }
        disturbed.extend(watch.end());
        disturbed.others.extend(pair.shared());
        pair.look_around()?;
    }
    Ok((blocks, disturbed))
}

impl What<'_> {
    /// Pairs of processes: as many as the plan says, or as is usual for this effort, but no more than it takes samples.
    fn processes(&self, (in_loop, certificate): (u32, u32)) -> u32 {
        let usual = if self.effort == Effort::Loop { in_loop } else { certificate };
        self.plan.processes.unwrap_or(usual).clamp(1, self.plan.repetitions.max(1))
    }
}

/// What was read comes to, or what only a cheat or a disturbed machine explains.
fn judged<B: Backend>(backend: &B, what: &What<'_>, blocks: &Blocks<'_>) -> Attempt<Timed> {
    let statistic = what.plan.statistic;
    let one = |(case, floors, blocks): &(&Case, Floors, Vec<Block>)| case_timing(backend, what, case, *floors, blocks);
    let cases = blocks.iter().map(one).collect::<Attempt<Vec<_>>>()?;
    let pairs: Vec<(&Timing, &Timing)> = cases.iter().map(|(case, _)| (&case.reference, &case.candidate)).collect();
    let hidden = cases.iter().map(|(_, hidden)| hidden).sum::<f64>() / cases.len().max(1) as f64;
    let speedup = Speedup::over(&pairs, statistic)
        .ok_or_else(|| {
            Fault::Machine("nothing was timed: the suite times no case, or the plan takes no samples".to_owned())
        })?
        .lowered_by(hidden)
        .widened_by(what.self_difference);
    let cases = cases.into_iter().map(|(case, _)| case).collect();
    let (widened_by, against) = (Some(what.self_difference), what.task.against());
    Ok(Timed { cases, speedup, statistic, labels: vec![], widened_by, object: None, against })
}

/// The times of one case that count, and what the candidate's clock may have hidden of them, as a part.
fn case_timing<B: Backend>(
    backend: &B,
    what: &What<'_>,
    case: &Case,
    floors: Floors,
    blocks: &[Block],
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
        let each = blocks.iter().zip(&overheads).map(|(block, overhead)| {
            side(block, of).iter().map(|ran| overhead.counted_ns(ran) / block.calls as f64).collect()
        });
        Timing::of_processes(each)
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
        .lowered_by(hidden)
        .widened_by(what.self_difference);
    let floor_ns = floors.roofline_ns;
    let case = case.name.clone();
    Ok((CaseTiming { case, reference, candidate, speedup, floor_ns, uncounted: hidden }, hidden))
}
