//! Cheats that a harness like the field's accepts, and what ours makes of each.
#![expect(clippy::unwrap_used, reason = "a test may")]

mod python;

use python::{evaluate, problem, workshop};
use std::{
    path::{Path, PathBuf},
    process::Command,
};
use warpsmith_kernelbench::{Failure, Timed};

fn cheats() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cheats");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// A line of a cheat's heading.
fn heading<'a>(source: &'a str, name: &str) -> &'a str {
    let start = format!("# {name}: ");
    source.lines().find_map(|line| line.strip_prefix(start.as_str())).unwrap()
}

/// What ours makes of it, in a word.
fn word(outcome: &Result<Timed, Failure>) -> String {
    match outcome {
        Ok(timed) if timed.speedup.ratio < 4.0 => "not faster".to_owned(),
        Ok(timed) => format!("accepted at {}", timed.speedup),
        Err(failure) => serde_json::to_value(failure).unwrap()["kind"].as_str().unwrap().to_owned(),
    }
}

#[test]
fn no_cheat_is_accepted() {
    let Some(workshop) = workshop() else { return };
    for path in cheats() {
        let source = std::fs::read_to_string(&path).unwrap();
        let outcome = evaluate(&workshop, &problem(heading(&source, "problem")), &source).unwrap();
        assert_eq!(word(&outcome), heading(&source, "ours"), "{}: {outcome:?}", path.display());
    }
}

#[test]
fn every_cheat_works_on_a_harness_of_one_process() {
    let Some(workshop) = workshop() else { return };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(workshop.python())
        .arg(here.join("tests/python/naive.py"))
        .arg(here.join("../examples/problems/level1"))
        .args(cheats())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.lines().count(), cheats().len(), "{errors}");
    for (path, line) in cheats().iter().zip(text.lines()) {
        assert!(line.contains("\"correct\": true"), "{}: {line}", path.display());
    }
}

#[test]
fn problems_that_accept_what_is_no_answer_are_labelled() {
    let Some(workshop) = workshop() else { return };
    let labels = |name| workshop.audit(&problem(name)).unwrap().join("; ");
    assert_eq!(labels("1_Softplus"), "");
    assert!(labels("7_ReLU").contains("an input passes"));
    assert!(labels("8_Nothing").contains("zeros pass"));
    assert!(labels("8_Nothing").contains("insensitive"));
}
