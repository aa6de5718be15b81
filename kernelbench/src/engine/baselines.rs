//! Baselines: what else computes the same, checked beside the reference and timed beside what speedups are over.
//!
//! Nothing stands for the reference that was not seen to agree with it: the oracle on all small cases, every other baseline
//! on all cases. One that differs is the task's fault, in a sentence.

use super::{
    Inner,
    backend::{Backend, Both, Processes, Standard, Toolchain},
    check,
    time::{self, What},
};
use crate::{
    lease::Lease,
    measure::numbers::Effort,
    result::{
        error::{Attempt, EvalError},
        failure::{Failure, Fault},
    },
    stage::{self, Stage},
    task::{Case, Task, baseline::BaselineKernel, suite::Suite},
    workshop::{TimingPlan, Variant},
};
use rand::rngs::StdRng;

/// The cases for which the reference itself says what is right.
pub(super) fn small(task: &Task, cases: &[Case]) -> Vec<Case> {
    cases.iter().filter(|case| !task.baselines().is_large(&case.name)).cloned().collect()
}

impl<B: Backend> Inner<B> {
    /// Checks the task's baselines on these cases: all, or those that stand for the reference anywhere.
    pub(super) fn check_baselines(
        &self,
        task: &Task,
        (session, lease): (&mut B::Session, &mut Lease<'_>),
        (cases, toolchain): (&[Case], Toolchain),
        rng: &mut StdRng,
    ) -> Attempt<()> {
        let all = task.baselines();
        let stands = |kernel: &BaselineKernel| all.against() == Some(kernel) || all.oracle() == Some(kernel);
        let small = small(task, cases);
        // The oracle comes first: others are compared with it.
        let oracle = all.oracle();
        let others = all.kernels.iter().filter(|kernel| oracle != Some(*kernel));
        for kernel in oracle.into_iter().chain(others) {
            if toolchain == Toolchain::Stock && !stands(kernel) {
                continue;
            }
            let (standard, cases) =
                if oracle == Some(kernel) { (Standard::Reference, &small[..]) } else { (Standard::Outputs, cases) };
            let mut loaded = stage::during(Stage::Build, || self.backend.load_baseline(task, kernel, toolchain))?;
            let mut pair = self.backend.pair(task, session, &mut loaded, (standard, Processes::AtHand))?;
            check::check(&mut pair, cases, (&self.checking(task), lease), rng)
                .map_err(|error| refused(task, kernel, error))?;
        }
        Ok(())
    }

    /// What is timed in the reference's place before any candidate: the baseline that speedups are over, where there is one.
    pub(super) fn load_against(&self, task: &Task) -> Attempt<Option<B::Loaded>> {
        let load = |kernel| self.backend.load_baseline(task, kernel, Toolchain::Quick);
        task.baselines().against().map(load).transpose()
    }

    /// Times every other baseline beside what speedups are over.
    pub(super) fn time_baselines(
        &self,
        (task, suite, plan): (&Task, &Suite, &TimingPlan),
        session: &mut B::Session,
        lease: &mut Lease<'_>,
        rng: &mut StdRng,
    ) -> Attempt<Vec<Variant>> {
        let all = task.baselines();
        let others = all.kernels.iter().filter(|kernel| all.against() != Some(*kernel));
        let one = |kernel: &BaselineKernel| {
            let loaded = &mut self.backend.load_baseline(task, kernel, Toolchain::Quick)?;
            let what = What { task, suite, plan, effort: Effort::Loop, trusted: true, self_difference: 0.0 };
            let timed = time::time(&self.backend, Both { session, loaded, lease }, &what, rng);
            lease.let_others_in();
            let (timed, _) = timed.map_err(|error| refused(task, kernel, error))?;
            let timing = timed.cases.into_iter().next().map(|case| case.candidate);
            Ok(Variant { name: kernel.name.clone(), timing, speedup: Some(timed.speedup), note: String::new() })
        };
        others.map(one).collect()
    }
}

/// What is wrong with a baseline, as a fault of the task.
fn refused(task: &Task, kernel: &BaselineKernel, error: EvalError) -> EvalError {
    let EvalError::Candidate(failure) = error else { return error };
    let is_oracle = task.baselines().oracle() == Some(kernel);
    let wrong = matches!(*failure, Failure::Mismatch { .. });
    let name = &kernel.name;
    let fault = match (is_oracle, wrong) {
        (true, true) => Fault::Reference(format!(
            "the oracle `{name}` is refused: it differs from the reference, and cannot stand for it on large cases: {failure}"
        )),
        (false, true) => {
            Fault::Reference(format!("the baseline `{name}` is refused: it does not compute the same: {failure}"))
        }
        _ => kernel.unusable(failure),
    };
    fault.into()
}
