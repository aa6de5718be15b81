//! Candidates that are checked side by side on one device: does each come to the verdict that it comes to alone?
#![expect(clippy::unwrap_used, reason = "a test may")]
#![cfg_attr(not(has_torch), expect(dead_code, unused_imports, reason = "all of it needs a Python with torch"))]

#[allow(dead_code, clippy::allow_attributes, reason = "each test uses the part that it needs")]
mod python;

use python::{PLAN, problems, workshop_with};
use std::sync::Arc;
use tokio::task::JoinSet;
use warpsmith_kernelbench::{
    Candidate, Evaluation, Suite, Task, Workshop, load,
    stage::{Hold, Recorder, Stretch},
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
