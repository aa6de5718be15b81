//! What does each step of an evaluation do?

use super::{
    Bench, Inner,
    check::{self, Pair, slots},
    context, lock,
    time::{self, Around, Remarks},
    verifier::{Side, broken},
};
use crate::profile;
use crate::{
    backend::native::trial::{self, trusted},
    profile::cuda::{Called, Waiting},
    result::{
        candidate::{Built, Candidate, Verified},
        error::{Attempt, outcome},
        evaluation::Timed,
        failure::{Failure, Fault},
        survey::Survey,
    },
    task::{Case, Task, layout::Plan, suite::Suite},
    workshop::{Baseline, TimingPlan},
};
use metrics::{MetricSet, Profile};
use std::{path::Path, time::Duration};

impl Bench {
    /// The reference's process, and the candidate's, each started where it is not there.
    fn pair<'a>(
        &'a mut self,
        inner: &'a Inner,
        task: &'a Task,
        [reference, candidate]: [&Path; 2],
    ) -> Attempt<Pair<'a>> {
        if self.reference.as_ref().is_none_or(|(object, _)| object != reference) {
            let arena = self.judge.handle(Side::Reference).map_err(broken)?;
            let mut runner = inner.launcher.start(arena)?;
            trusted(runner.load(reference), "while it was loaded")?;
            self.reference = Some((reference.to_owned(), runner));
        }
        if self.candidate.as_ref().is_none_or(|(object, _)| object != candidate) {
            self.candidate = None;
            let mut runner = inner.spare.take()?;
            runner.load(candidate)?;
            self.candidate = Some((candidate.to_owned(), runner));
        }
        let (Some((_, reference)), Some((_, candidate))) = (&mut self.reference, &mut self.candidate) else {
            return Err(Fault("both processes were just started, and one is gone".to_owned()).into());
        };
        let (floor, memory_mib) = (inner.options.deadline_floor, inner.options.memory_mib);
        let (context, tolerance) = (context(task), &task.tolerance);
        Ok(Pair { judge: &self.judge, reference, candidate, context, tolerance, floor, memory_mib })
    }
}

impl Inner {
    pub(super) fn fits(&self, task: &Task, case: &Case) -> Result<u64, String> {
        let plan = Plan::of(context(task), case)?;
        slots(self.bench().judge.arena_bytes(), &plan)?;
        match plan.array_bytes() {
            0 => Err(format!("case `{}` has no data", case.name)),
            bytes => Ok(bytes),
        }
    }

    fn reference(&self, task: &Task) -> Result<std::path::PathBuf, Fault> {
        let context = context(task);
        outcome(self.nvcc.build(context, &context.reference))?.map_err(|failure| no_reference(task, &failure))
    }

    /// The reference stands in for a candidate: it must agree with itself in another process.
    pub(super) fn prepare(&self, task: &Task, suite: &Suite, plan: &TimingPlan) -> Result<Baseline, Fault> {
        self.spare.prepare();
        let object = self.reference(task)?;
        let mut bench = self.bench();
        let timed = self.examined(&mut bench, task, &object, suite, plan);
        bench.candidate = None;
        let (timed, _) = outcome(timed)?.map_err(|failure| no_reference(task, &failure))?;
        self.get_ready();
        let timings = timed.cases.into_iter().map(|case| (case.case, case.reference)).collect();
        Ok(Baseline::new(timings, self.nvcc.command_line(context(task))?))
    }

    fn examined(
        &self,
        bench: &mut Bench,
        task: &Task,
        object: &Path,
        suite: &Suite,
        plan: &TimingPlan,
    ) -> Attempt<(Timed, Remarks)> {
        let rng = &mut self.rng();
        let mut pair = bench.pair(self, task, [object, object])?;
        check::check(&mut pair, &suite.cases, rng)?;
        let around =
            Around { timing: plan, machine: &self.machine, gpu: self.gpu.as_ref(), trusted: true, brief: true };
        time::time(&mut pair, suite, &around, rng)
    }

    /// Starts what the next candidate will need.
    fn get_ready(&self) {
        self.spare.prepare();
        let mut profiler = lock(&self.profiler);
        if profiler.is_none() {
            *profiler = self.options.metrics.as_ref().and_then(|set| Waiting::start(&self.launcher, set));
        }
    }

    pub(super) fn build(&self, task: &Task, candidate: Candidate) -> Attempt<Built> {
        let artifact = self.nvcc.build(context(task), candidate.source())?;
        Ok(Built { candidate, artifact })
    }

    pub(super) fn check(&self, task: &Task, built: Built, suite: &Suite) -> Attempt<Verified> {
        let reference = self.reference(task)?;
        let mut bench = self.bench();
        let pair = bench.pair(self, task, [&reference, &built.artifact]);
        let checked = pair.and_then(|mut pair| check::check(&mut pair, &suite.cases, &mut self.rng()));
        if checked.is_err() {
            bench.candidate = None;
            self.spare.prepare();
        }
        checked?;
        Ok(Verified { built })
    }

    pub(super) fn time(&self, task: &Task, verified: &Verified, suite: &Suite, plan: &TimingPlan) -> Attempt<Timed> {
        let reference = self.reference(task)?;
        let mut bench = self.bench();
        self.spare.settle();
        if let Some(waiting) = lock(&self.profiler).as_mut() {
            waiting.settle();
        }
        let timed = bench.pair(self, task, [&reference, &verified.built.artifact]).and_then(|mut pair| {
            let around =
                Around { timing: plan, machine: &self.machine, gpu: self.gpu.as_ref(), trusted: false, brief: true };
            time::time(&mut pair, suite, &around, &mut self.rng())
        });
        if timed.is_err() {
            bench.candidate = None;
        }
        self.spare.prepare();
        let (timed, remarks) = timed?;
        lock(&self.notes).insert(verified.candidate().id(), remarks.all());
        Ok(timed)
    }

    pub(super) fn profile(&self, task: &Task, verified: &Verified, suite: &Suite) -> Result<Profile, Fault> {
        let (plan, slot) = self.to_be_profiled(task, suite)?;
        let waiting = lock(&self.profiler).take();
        let object = verified.built.artifact();
        let set = self.options.metrics.as_ref();
        let deadline =
            if set.is_some_and(MetricSet::is_full) { profile::cuda_survey::DEADLINE } else { profile::cuda::DEADLINE };
        let profile = profile::cuda::profile(waiting, &self.called(&plan, &slot, object, deadline), set)?;
        self.get_ready();
        Ok(profile)
    }

    pub(super) fn survey(
        &self,
        task: &Task,
        verified: &Verified,
        suite: &Suite,
    ) -> Result<Result<Survey, String>, Fault> {
        let (plan, slot) = self.to_be_profiled(task, suite)?;
        // Another process under Nsight Compute would keep this one from the counters.
        drop(lock(&self.profiler).take());
        profile::cuda_survey::survey(&self.called(
            &plan,
            &slot,
            verified.built.artifact(),
            profile::cuda_survey::DEADLINE,
        ))
    }

    /// The largest timed case, drawn once.
    fn to_be_profiled(&self, task: &Task, suite: &Suite) -> Result<(Plan, Vec<u8>), Fault> {
        let case = suite.cases.iter().filter(|case| suite.timed.contains(&case.name));
        let case = case.max_by_key(|case| context(task).bytes(case).unwrap_or(0));
        let case = case.ok_or_else(|| Fault("the suite times no case, so there is none to profile".to_owned()))?;
        let plan = trial::plan(context(task), case)?;
        let slot = self.bench().judge.drawn(&plan, &mut self.rng()).map_err(broken)?;
        Ok((plan, slot))
    }

    fn called<'a>(&'a self, plan: &'a Plan, slot: &'a [u8], object: &'a Path, deadline: Duration) -> Called<'a> {
        Called { launcher: &self.launcher, plan, object, slot, deadline }
    }
}

fn no_reference(task: &Task, failure: &Failure) -> Fault {
    let log = match failure {
        Failure::Build { log } | Failure::Interface { log } => format!("\n{log}"),
        Failure::Crash { stderr, .. } | Failure::Exit { stderr, .. } => format!("\n{stderr}"),
        _ => String::new(),
    };
    Fault(format!("the reference of task `{}` is no reference: {failure}{log}", task.name))
}
