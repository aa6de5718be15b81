//! Candidates that are checked side by side on one device: does each come to the verdict that it comes to alone?

use crate::python::{self, PLAN, problems, workshop_with};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;
use warpsmith_kernelbench::{
    Candidate, Evaluation, Suite, Task, Workshop, load,
    stage::{Hold, Recorder, Stage, Stretch},
    torch::Torch,
};

/// What is done in place of a right answer, and the failure that comes of it.
const WRONG: [(&str, &str); 5] = [
    ("return super().forward(*x) + 1", "mismatch"),
    ("time.sleep(1000)", "hang"),
    ("os.abort()", "crash"),
    ("raise ValueError('no')", "raised"),
    ("os._exit(3)", "exit"),
];

/// The reference as a candidate, but for what its forward does.
fn candidate(task: &Task, forward: &str) -> Candidate {
    let forward = format!("class ModelNew(Right):\n    def forward(self, *x):\n        {forward}\n");
    Candidate::new(format!("{}\nimport os, time\nRight = ModelNew\n{forward}", task.reference_as_candidate()))
}

/// What came of it, in a word.
fn word(evaluation: &Evaluation) -> String {
    match evaluation {
        Evaluation::Passed(_) => "passed".to_owned(),
        Evaluation::Counted(_) => "counted".to_owned(),
        Evaluation::Compiled(_) => "compiled".to_owned(),
        Evaluation::Failed(failure) => {
            serde_json::to_value(failure).unwrap()["kind"].as_str().unwrap_or_default().to_owned()
        }
    }
}

async fn evaluated(workshop: &Torch, task: &Task, candidate: &Candidate) -> (String, Vec<Stretch>) {
    let recorder = Recorder::begin(0);
    let evaluation = recorder.record(workshop.evaluate(task, candidate, &Suite::of_task(task), &PLAN)).await;
    (word(&evaluation.unwrap()), recorder.stretches())
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
async fn what_fails_and_what_passes_does_so_with_others_beside_it_and_is_timed_alone() {
    let workshop = Arc::new(workshop_with(|options| options.beside = 4));
    let tasks: Vec<Task> = problems().iter().map(|path| load::task(path).unwrap()).collect();
    let right = ("return super().forward(*x)", "passed");
    let mut all = JoinSet::new();
    for (at, (forward, expected)) in WRONG.into_iter().chain([right, right]).enumerate() {
        let (workshop, task) = (Arc::clone(&workshop), tasks[at % tasks.len()].clone());
        all.spawn(async move {
            let candidate = candidate(&task, forward);
            let (found, stretches) = evaluated(&workshop, &task, &candidate).await;
            // Its clock may have been disagreed with: the machine is busy.
            assert!(found == expected || (expected, found.as_str()) == ("passed", "clocks"), "{forward}: {found}");
            let held = |how| stretches.iter().any(|one| one.held == Some(how));
            assert!(held(Hold::Shared), "{forward}: it was checked alone");
            assert_eq!(held(Hold::Exclusive), ["passed", "hang"].contains(&expected), "{forward}: {stretches:?}");
        });
    }
    all.join_all().await;
}

/// What Triton is for the harness, of a compiler that takes so many seconds a kernel, and a call that uses it so.
fn compiles(each: f64, call: &str) -> String {
    format!(
        "import os, sys, time, types
import torch.nn as nn

class JITFunction:
    compiled = 0

    def _do_compile(self):
        JITFunction.compiled += 1
        time.sleep({each})
        if JITFunction.compiled == 2:
            raise ValueError('this one does not compile')

jit = types.ModuleType('triton.runtime.jit')
jit.JITFunction = JITFunction
sys.modules['triton.runtime.jit'] = jit

class ModelNew(nn.Module):
    def forward(self, x):
        {call}
        return nn.functional.softplus(x)
"
    )
}

/// The milliseconds of first calls in which the device was held so, or not at all.
fn first_calls(stretches: &[Stretch], held: Option<Hold>) -> u64 {
    let so = |one: &&Stretch| one.stage == Stage::FirstCall && one.held == held;
    stretches.iter().filter(so).map(|one| one.us / 1000).sum()
}

#[tokio::test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
async fn what_compiles_in_a_first_call_holds_no_device_meanwhile_and_holds_it_again_for_the_rest() {
    let task = python::problem("1_Softplus");
    let candidate = |call: &str| Candidate::new(compiles(0.5, call));
    // Three kernels, of which the second does not compile; and as long on the device.
    let call = "if JITFunction.compiled < 3:
            for _ in range(3):
                try:
                    JITFunction()._do_compile()
                except ValueError:
                    pass
            time.sleep(1)";
    let workshop = workshop_with(|options| (options.beside, options.compiling) = (4, 2));
    let (found, stretches) = evaluated(&workshop, &task, &candidate(call)).await;
    assert!(["passed", "clocks"].contains(&&*found), "{found}");
    // It is looked a tenth of a second later whether it compiles for long.
    let aside = first_calls(&stretches, None);
    assert!((900..1500).contains(&aside), "{aside} ms: {stretches:?}");
    assert!(first_calls(&stretches, Some(Hold::Shared)) >= 1000, "{stretches:?}");

    // Where nobody may share it, nobody is let in.
    let workshop = workshop_with(|options| (options.beside, options.compiling) = (1, 2));
    let (found, stretches) = evaluated(&workshop, &task, &candidate(call)).await;
    assert!(["passed", "clocks"].contains(&&*found), "{found}");
    assert_eq!(first_calls(&stretches, None), 0);
}

#[tokio::test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
async fn what_compiles_aside_has_no_more_time_for_all_of_it_than_a_first_call() {
    let workshop = workshop_with(|options| {
        (options.beside, options.compiling) = (4, 2);
        (options.deadline_floor, options.first_call) = (Duration::from_secs(1), Duration::from_secs(2));
    });
    let call = "JITFunction.compiled = max(JITFunction.compiled, 2)
        while JITFunction.compiled < 20:
            JITFunction()._do_compile()";
    let (found, stretches) =
        evaluated(&workshop, &python::problem("1_Softplus"), &Candidate::new(compiles(0.5, call))).await;
    assert_eq!(found, "hang", "twenty times half a second are more than two: {stretches:?}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn who_says_at_another_time_that_it_compiles_tampers_with_the_line() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let task = python::problem("1_Softplus");
    let workshop = workshop_with(|options| (options.beside, options.compiling) = (4, 2));
    let says = |what: &str, when: &str| {
        format!(
            "if JITFunction.compiled {when}: os.write(int(sys.argv[1]), b'{what}'); time.sleep(0.2)\n        JITFunction.compiled += 1"
        )
    };
    // That it needs the device again may be left out: it has it for whatever comes after its answer.
    for (call, expected) in
        [(says("\\2", "== 0"), "passed"), (says("\\2", "== 1"), "forbidden"), (says("\\3", "== 1"), "forbidden")]
    {
        let candidate = Candidate::new(compiles(0.0, &call));
        let (found, stretches) = runtime.block_on(evaluated(&workshop, &task, &candidate));
        assert!(found == expected || (expected, &*found) == ("passed", "clocks"), "{call}: {found}");
        assert_eq!(first_calls(&stretches, None) > 0, expected == "passed", "{call}: {stretches:?}");
        let without = |one: &&Stretch| one.stage == Stage::Check && one.held.is_none() && one.us > 1000;
        assert_eq!(stretches.iter().find(without), None, "{call}");
    }
}
