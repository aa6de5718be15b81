//! Cheats that a harness like the field's accepts, and what ours makes of each.
use crate::again;

use crate::file::File;
use crate::python::{problem, workshop, workshop_with};
use std::{path::Path, process::Command, sync::Mutex};
use warpsmith_kernelbench::{Candidate, Label};

/// Those that need no GPU.
fn cheats() -> Vec<File> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cheats");
    File::all(&folder).into_iter().filter(|file| file.line("where").is_none()).collect()
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn no_cheat_is_accepted() {
    let left = Mutex::new(cheats());
    let one_after_another = || {
        let workshop = workshop_with(|options| options.spares = 1);
        loop {
            let Some(file) = left.lock().unwrap().pop() else { break };
            let task = problem(file.problem());
            let outcome = again::evaluate(&workshop, &task, &file).unwrap();
            let mut labels: Vec<Label> = workshop.audit(&task).unwrap();
            labels.extend(workshop.labels(&Candidate::new(&file.source).id()));
            assert!(file.as_said(&outcome, &labels), "{}: {outcome:?} {labels:?}", file.path.display());
        }
    };
    // Two at a time: most of an evaluation is one process waiting for another.
    std::thread::scope(|scope| {
        scope.spawn(one_after_another);
        scope.spawn(one_after_another);
    });
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn every_cheat_works_on_a_harness_of_one_process() {
    let workshop = workshop();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(workshop.python())
        .arg(here.join("tests/python/naive.py"))
        .arg("cpu")
        .arg(here.join("../examples/problems/level1"))
        .args(cheats().iter().map(|file| &file.path))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.lines().count(), cheats().len(), "{errors}");
    for (file, line) in cheats().iter().zip(text.lines()) {
        assert!(line.contains("\"correct\": true"), "{}: {line}", file.path.display());
    }
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn problems_that_accept_what_is_no_answer_are_labelled() {
    let workshop = workshop();
    let labels = |name| {
        let labels = workshop.audit(&problem(name)).unwrap();
        labels.iter().map(|label| label.text.as_str()).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(labels("1_Softplus"), "");
    assert!(labels("7_ReLU").contains("an input passes"));
    assert!(labels("8_Nothing").contains("zeros pass"));
    assert!(labels("8_Nothing").contains("insensitive"));
}
