//! How fast is the reference where torch compiles it?
//!
//! A process like a candidate's compiles the problem's own model, and is timed beside eager torch as candidates are. What
//! came of it is kept on disk: once for a machine, a problem and a version of torch.

use super::{
    Inner,
    crowd::is_full,
    headers::Headers,
    runner::{Module, Runner},
    session::{Session, source_of},
    steps::{key, problem},
    time::{Bench, time},
};
use crate::{
    hash::Hash,
    result::{
        error::{Attempt, outcome},
        failure::Fault,
    },
    task::{Problem, Task},
    workshop::{TimingPlan, Variant},
};
use serde_json::json;
use std::{fs, path::PathBuf, time::Duration};

/// How long torch may compile.
const COMPILING: Duration = Duration::from_mins(15);

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

impl Inner {
    /// The problem's reference compiled, timed beside eager torch now or before. What fails is told in its note.
    pub(super) fn variant(
        &self,
        session: &mut Session,
        task: &Task,
        mode: Mode,
        plan: &TimingPlan,
    ) -> Result<Variant, Fault> {
        let problem = problem(task)?;
        let kept = self.kept(problem, mode, plan);
        let known = kept.as_ref().and_then(|path| serde_json::from_str(&fs::read_to_string(path).ok()?).ok());
        if let Some(variant) = known {
            return Ok(variant);
        }
        let name = format!("torch.compile ({})", mode.word());
        let compiled = self.with_room(Some(&key(problem)), session.wanted_bytes(), is_full, || {
            let mut runner = self.compiled(session, problem, mode)?;
            let _quiet = self.spares.quiet();
            // A graph that is replayed overwrites its outputs: one call to a request.
            let most_calls = if mode == Mode::MaxAutotune { 1 } else { usize::MAX };
            let (machine, floor) = (&self.machine, self.options.deadline_floor);
            let bench = Bench { tolerance: &task.tolerance, plan, machine, floor, most_calls, brief: false };
            time(session, &mut runner, &bench, &mut self.rng())
        });
        outcome(session.forget())?.map_err(|failure| Fault(failure.to_string()))?;
        Ok(match outcome(compiled)? {
            Err(failure) => Variant { name, timing: None, speedup: None, note: failure.to_string() },
            Ok((timed, _)) => {
                let timing = timed.cases.into_iter().next().map(|case| case.candidate);
                let variant = Variant { name, timing, speedup: Some(timed.speedup), note: String::new() };
                keep(kept, &variant);
                variant
            }
        })
    }

    fn compiled(&self, session: &mut Session, problem: &Problem, mode: Mode) -> Attempt<Runner> {
        let mut runner = Session::begin(&self.spares, &problem.source)?;
        let path = source_of(runner.folder());
        let module = Module { path: &path, name: "baseline", entry: "Model" };
        runner.load(&module, Headers::Stock, self.options.build_deadline)?;
        session.introduce_compiled(&mut runner, Some(mode.word()))?;
        session.draw(1, false, &mut self.rng())?;
        runner.inputs(&session.inputs)?;
        runner.run(&[0], COMPILING, &mut ())?;
        runner.release()?;
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
            self.harness.hash(),
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
