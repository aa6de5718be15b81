//! Is it right on every case?

use super::{
    runner::{Ran, Runner},
    verifier::{Draw, Judge, Look, MOST_ARRAYS, MOST_SLOTS, broken},
};
use crate::{
    backend::native::trial::{self, deadline, trusted},
    result::{error::Attempt, failure::Fault},
    task::{Case, KernelContext, Tolerance, layout::Plan},
};
use rand::rngs::StdRng;
use std::time::Duration;

/// The reference's own deadline.
const PATIENCE: Duration = Duration::from_mins(1);
/// Draws on which each case is checked: the second lies at the same addresses as the first.
const DRAWS: usize = 2;

/// Both children at one GPU, and what decides about them.
pub(crate) struct Pair<'a> {
    pub(crate) judge: &'a Judge,
    pub(crate) reference: &'a mut Runner,
    pub(crate) candidate: &'a mut Runner,
    pub(crate) context: &'a KernelContext,
    pub(crate) tolerance: &'a Tolerance,
    /// What every deadline has beside twenty times the reference's time.
    pub(crate) floor: Duration,
    /// Memory that a kernel may take beyond its arguments, in MiB.
    pub(crate) memory_mib: u64,
}

/// Compares with the reference on every case.
pub(crate) fn check(pair: &mut Pair<'_>, cases: &[Case], rng: &mut StdRng) -> Attempt<()> {
    let before = pair.free()?;
    for case in cases {
        let plan = trial::plan(pair.context, case)?;
        pair.prepare(&plan, 1)?;
        pair.count(1, false)?;
        for number in 0..DRAWS {
            let draw = Draw::new(&plan, rng);
            pair.fill(&plan, 1, &draw)?;
            let reference = pair.call_reference()?;
            pair.call_candidate(deadline(reference.outside, pair.floor))?;
            let look = Look { tolerance: pair.tolerance, while_timed: false, twice: number == 0 };
            pair.judge.verify(&plan, 1, &draw, look)?;
        }
        if before.saturating_sub(pair.free()?) > pair.memory_mib << 20 {
            return Err(pair.candidate.too_much_memory());
        }
    }
    pair.candidate.be_alone()
}

/// How many slots of a case an arena holds.
///
/// # Errors
/// In words, where not one fits.
pub(crate) fn slots(judge_bytes: usize, plan: &Plan) -> Result<usize, String> {
    if plan.arrays.len() > MOST_ARRAYS {
        return Err(format!("case `{}` has {} arrays, the limit is {MOST_ARRAYS}", plan.case, plan.arrays.len()));
    }
    match judge_bytes / plan.slot_bytes.max(1) {
        0 => Err(format!(
            "case `{}` takes {} MiB, the limit is {} MiB",
            plan.case,
            plan.slot_bytes >> 20,
            judge_bytes >> 20
        )),
        slots => Ok(slots.min(MOST_SLOTS)),
    }
}

impl Pair<'_> {
    /// Tells both which case is called.
    pub(crate) fn prepare(&mut self, plan: &Plan, slots: usize) -> Attempt<()> {
        self::slots(self.judge.arena_bytes(), plan).map_err(Fault)?;
        trusted(self.reference.case(plan, slots), "before it was called")?;
        self.candidate.case(plan, slots)
    }

    /// Says how many calls a request makes, recorded if both can be. Whether they are.
    pub(crate) fn count(&mut self, count: usize, record: bool) -> Attempt<bool> {
        let recorded = trusted(self.reference.count(count, record), "before it was called")?
            && self.candidate.count(count, record)?;
        if !recorded {
            trusted(self.reference.count(count, false), "before it was called")?;
            self.candidate.count(count, false)?;
        }
        Ok(recorded)
    }

    /// Writes the same inputs for both.
    pub(crate) fn fill(&self, plan: &Plan, slots: usize, draw: &Draw) -> Attempt<()> {
        Ok(self.judge.fill(plan, slots, draw).map_err(broken)?)
    }

    /// Has the reference called, with the cache emptied before; its failure is the machine's or the task's fault.
    pub(crate) fn call_reference(&mut self) -> Attempt<Ran> {
        let mut idle = self.judge.flush().map_err(broken)?;
        trusted(self.reference.call(PATIENCE, &mut idle), "in its own process")
    }

    /// Has the candidate called, with the cache emptied before.
    pub(crate) fn call_candidate(&mut self, deadline: Duration) -> Attempt<Ran> {
        let mut idle = self.judge.flush().map_err(broken)?;
        self.candidate.call(deadline, &mut idle)
    }

    /// Bytes of the GPU's memory that are free.
    fn free(&self) -> Result<u64, Fault> {
        let memory = self.judge.device.enter().and_then(|()| self.judge.device.memory());
        memory.map(|[free, _]| free).map_err(broken)
    }
}
