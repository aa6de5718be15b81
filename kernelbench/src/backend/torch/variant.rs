//! The reference as torch compiles it, timed beside eager torch.
//!
//! A process like a candidate's compiles the problem's own model, and is timed beside eager torch as candidates are. What
//! came of it is kept on disk: once for a machine, a problem and a version of torch.

use super::{
    TorchBackend,
    problem::{OpenProblem, problem},
    runner::{Role, Runner},
};
use crate::{
    engine::{
        backend::Both,
        time::{self, What},
    },
    hash::Hash,
    lease::Lease,
    measure::numbers::Effort,
    result::{
        error::{Attempt, outcome, trusted},
        evaluation::Timed,
        failure::Fault,
    },
    task::{Problem, Task, suite::Suite},
    workshop::{TimingPlan, Variant},
};
use serde_json::json;
use std::{fs, path::PathBuf, time::Duration};

/// How long torch may compile, with the timings of others meanwhile, for which it stands still.
const COMPILING: Duration = Duration::from_mins(45);

/// A way of `torch.compile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As it is without a mode.
    Default,
    /// It tries kernels against one another, and replays the whole forward as one CUDA graph.
    MaxAutotune,
}

impl Mode {
    /// All modes, by the words that name them.
    pub const NAMED: [(&'static str, Self); 2] = [("compile", Self::Default), ("max-autotune", Self::MaxAutotune)];

    /// What torch calls it.
    fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::MaxAutotune => "max-autotune",
        }
    }
}

impl TorchBackend {
    /// The problem's reference compiled, timed beside eager torch now or before. What fails is said in its note.
    pub(super) fn variant(
        &self,
        task: &Task,
        session: &mut OpenProblem,
        (mode, plan): (Mode, &TimingPlan),
        lease: &mut Lease<'_>,
    ) -> Result<Variant, Fault> {
        let problem = problem(task)?;
        let kept = self.kept(problem, mode, plan);
        let known = kept.as_ref().and_then(|path| serde_json::from_str(&fs::read_to_string(path).ok()?).ok());
        if let Some(variant) = known {
            return Ok(variant);
        }
        let name = format!("torch.compile ({})", mode.word());
        let timed = self.time_compiled(task, session, (mode, plan), lease);
        outcome(trusted(session.trim_memory()))?.map_err(|failure| Fault::of_reference(&failure))?;
        Ok(match outcome(timed)? {
            Err(failure) => Variant { name, timing: None, speedup: None, note: failure.to_string() },
            Ok(timed) => {
                let timing = timed.cases.into_iter().next().map(|case| case.candidate);
                let variant = Variant { name, timing, speedup: Some(timed.speedup), note: String::new() };
                // What lacked memory is timed again.
                if !session.is_refused() {
                    keep(kept, &variant);
                }
                variant
            }
        })
    }

    fn time_compiled(
        &self,
        task: &Task,
        session: &mut OpenProblem,
        (mode, plan): (Mode, &TimingPlan),
        lease: &mut Lease<'_>,
    ) -> Attempt<Timed> {
        let mut runner = self.compiled(session, problem(task)?, mode, lease)?;
        let suite = Suite::of_task(task);
        let plan = &TimingPlan { processes: Some(1), ..*plan };
        let (effort, rng) = (Effort::Certificate, &mut self.fresh_rng());
        let what = What { task, suite: &suite, plan, effort, trusted: true, self_difference: 0.0 };
        let timed = time::time(self, Both { session, loaded: &mut runner, lease }, &what, rng);
        lease.let_others_in();
        timed.map(|(timed, _)| timed)
    }

    /// A process that holds the compiled model. That takes a minute and more, most of it on the processor: others have the
    /// device meanwhile, and while one of them is timed it stands still.
    fn compiled(
        &self,
        session: &mut OpenProblem,
        problem: &Problem,
        mode: Mode,
        lease: &mut Lease<'_>,
    ) -> Attempt<Runner> {
        // A graph that is replayed overwrites its outputs: one call to a request.
        let most_calls = if mode == Mode::MaxAutotune { 1 } else { usize::MAX };
        let reference = Role::reference(&problem.source);
        let mut runner = self.loaded(Role { name: "baseline", compile: Some(mode.word()), most_calls, ..reference })?;
        session.bind(&mut runner)?;
        session.draw(1, false, &mut self.fresh_rng())?;
        runner.set_inputs(&session.inputs)?;
        lease.step_aside();
        let id = runner.peer.id();
        let compiled = self.starting.while_starting(id, true, || runner.run(&[0], COMPILING, &mut ()));
        lease.let_others_in();
        compiled?;
        runner.release_outputs()?;
        Ok(runner)
    }

    /// Where such a time is kept.
    fn kept(&self, problem: &Problem, mode: Mode, plan: &TimingPlan) -> Option<PathBuf> {
        let folder = self.options.cache.as_ref()?.join("baselines");
        let driver = fs::read_to_string("/sys/module/nvidia/version").unwrap_or_default();
        let facts = &self.facts;
        let key = json!([
            problem.source,
            problem.precision.torch_name(),
            problem.reference.name(),
            mode.word(),
            self.options.device,
            self.options.threads,
            self.options.tf32,
            facts.device,
            facts.torch,
            facts.cuda,
            facts.python,
            driver.trim(),
            plan,
            self.python.harness.hash(),
        ]);
        fs::create_dir_all(&folder).ok()?;
        Some(folder.join(format!("{}.json", Hash::of(key.to_string().as_bytes()))))
    }
}

/// Writes it down for the next time; where that is not possible, it is measured again then.
fn keep(path: Option<PathBuf>, variant: &Variant) {
    let text = serde_json::to_string(variant).unwrap_or_default();
    if let Some(path) = path {
        let fresh = path.with_extension(format!("{}", std::process::id()));
        let _ = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &path));
    }
}
