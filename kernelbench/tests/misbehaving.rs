//! Candidates that hang, crash, exhaust, fork, exit and close: one after another in one program.
use crate::again;

use crate::file::File;
use crate::python::{self, problem, workshop, workshop_with};
use std::path::Path;
use warpsmith_kernelbench::Failure;

/// Those that end soon, without a GPU, and those that are right; the others are for `examples/verdicts.rs`.
fn quick() -> (Vec<File>, Vec<File>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/misbehaving");
    let all = File::all(&folder).into_iter().filter(|file| file.line("where").is_none());
    all.partition(|file| file.line("right").is_none())
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn whatever_a_candidate_does_is_named_and_the_next_one_is_unaffected() {
    let (wrong, right) = quick();
    assert!(wrong.len() > 2 && !right.is_empty());
    let in_a_row = |wrong: &[File]| {
        let workshop = workshop_with(|options| options.spares = 1);
        for file in wrong.iter().chain(&right) {
            let task = problem(file.problem());
            let outcome = again::evaluate(&workshop, &task, file).unwrap();
            assert!(file.as_said(&outcome, &[]), "{}: {outcome:?}", file.path.display());
        }
    };
    // Two rows beside each other: most of an evaluation is one process waiting for another.
    let (one, other) = wrong.split_at(wrong.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| in_a_row(one));
        scope.spawn(|| in_a_row(other));
    });
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_a_compiler_says_at_the_first_call_is_of_the_build() {
    let workshop = workshop();
    let source = "import torch.nn as nn\n\nclass CompilationError(Exception):\n    pass\n\nclass ModelNew(nn.Module):\n    \
                  def forward(self, x):\n        raise CompilationError('at 3:21: nothing_like_this')\n";
    let failure = python::evaluate(&workshop, &problem("1_Softplus"), source, &python::PLAN).unwrap().unwrap_err();
    assert!(matches!(&failure, Failure::Build { log } if log.contains("nothing_like_this")), "{failure:?}");
}
