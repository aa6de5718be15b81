//! Candidates that hang, crash, exhaust, fork, exit and close: one after another in one program.
#![expect(clippy::unwrap_used, reason = "a test may")]

mod file;
mod python;

use file::File;
use python::{evaluate, problem, workshop};
use std::path::Path;

/// Those that end soon, without a GPU; the others are for `examples/verdicts.rs`.
fn quick() -> Vec<File> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/misbehaving");
    let (last, others): (Vec<File>, Vec<File>) = File::all(&folder)
        .into_iter()
        .filter(|file| file.line("where").is_none())
        .partition(|f| f.line("right").is_some());
    others.into_iter().chain(last).collect()
}

#[test]
fn whatever_a_candidate_does_is_named_and_the_next_one_is_unaffected() {
    let Some(workshop) = workshop() else { return };
    for file in quick() {
        let outcome = evaluate(&workshop, &problem(file.problem()), &file.source).unwrap();
        assert!(file.as_said(&outcome, &[]), "{}: {outcome:?}", file.path.display());
    }
}
