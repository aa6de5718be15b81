//! Ten problems of the public KernelBench: a right candidate for each, and wrong ones, each in another way.
use crate::again;

use crate::file::File;
use crate::python::{problem, workshop};
use std::{io::Write, path::Path};

/// Those that an evaluation on a GPU is judged by.
const PROBLEMS: [(&str, &[u32]); 3] =
    [("level1", &[13, 29, 35, 89, 95]), ("level2", &[17, 28, 40]), ("level3", &[5, 32])];

fn candidates() -> Vec<File> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/candidates");
    PROBLEMS.iter().flat_map(|(level, _)| File::all(&folder.join(level))).collect()
}

#[test]
fn every_problem_has_a_right_candidate_and_a_wrong_one() {
    let of =
        |name: &str, line: &str| candidates().iter().filter(|f| f.problem() == name && f.line(line).is_some()).count();
    for (level, ids) in PROBLEMS {
        for id in ids {
            let name = format!("{level}/{id}");
            assert_eq!((of(&name, "right"), of(&name, "wrong").min(1)), (1, 1), "{name}");
        }
    }
    let expected =
        |file: &File| file.line("ours").is_some_and(|ours| (ours == "passed") == file.line("right").is_some());
    assert!(candidates().iter().all(expected));
}

/// The kinds of honest work that a harness is tempted to refuse, five files of each.
const HONEST: [&str; 4] = ["triton_many", "autotune", "graph", "long_compile"];

/// Their files: what compiles for long, at its first call or before, tries kernels against one another, or replays a graph.
fn honest() -> Vec<File> {
    File::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/candidates/honest"))
}

#[test]
fn there_are_five_honest_candidates_of_each_kind_that_is_easily_refused() {
    let all = honest();
    let of = |kind: &str| {
        let is = |file: &&File| file.path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(kind));
        all.iter().filter(is).count()
    };
    assert_eq!(HONEST.map(of), [5; 4]);
    assert!(all.iter().all(|file| file.line("right").is_some() && file.line("ours") == Some("passed")));
}

/// `WARPSMITH_KERNELBENCH` names a checkout of the public KernelBench, `WARPSMITH_DEVICE` a GPU such as `cuda:0`,
/// `WARPSMITH_PYTHON` a Python with torch and Triton. With `--nocapture` it says what came of each.
#[test]
#[ignore = "needs a checkout of KernelBench and a GPU"]
fn right_ones_pass_and_wrong_ones_fail_for_their_true_cause() {
    let workshop = workshop();
    for file in candidates().into_iter().chain(honest()) {
        let task = problem(file.problem());
        let outcome = again::evaluate(&workshop, &task, &file).unwrap();
        let said = outcome.as_ref().map_or_else(ToString::to_string, |timed| timed.speedup.to_string());
        writeln!(std::io::stderr(), "{}: {said}", file.path.display()).unwrap();
        assert!(file.as_said(&outcome, &[]), "{}: {outcome:?}", file.path.display());
        workshop.close(&task);
    }
}
