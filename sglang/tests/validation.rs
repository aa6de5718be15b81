//! Does a validation see what it must see, and does a hook around another library's function let go again? The tests are
//! in Python, under `tests/validation`, and need torch on the processor.

#![expect(clippy::unwrap_used, reason = "in a test, to panic is to fail")]

use std::process::Command;

/// Runs the tests of this file, with these folders of the repository in front of what Python has installed.
fn pass(file: &str, folders: &[&str]) {
    let root = env!("CARGO_MANIFEST_DIR");
    let python = env!("PYTHON_WITH_TORCH");
    let paths = folders.iter().map(|folder| format!("{root}/{folder}")).collect::<Vec<_>>().join(":");
    let script = format!("{root}/tests/validation/{file}");
    let told =
        Command::new(python).arg(script).env("PYTHONPATH", paths).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let said = String::from_utf8_lossy(&told.stderr);
    // unittest ends well where it found no test, too.
    assert!(told.status.success() && said.contains("\nOK") && !said.contains("Ran 0 tests"), "{said}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs torch")]
fn a_kernel_that_does_otherwise_than_the_original_fails_the_checks() {
    pass("checks_fail.py", &["python/validate", "../kernelbench/harness"]);
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs torch")]
fn times_are_compared_over_shapes_as_they_should_be() {
    pass("times_compare.py", &["python/validate", "../kernelbench/harness"]);
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs torch")]
fn sglangs_own_tests_blame_the_kernel_for_what_it_breaks_and_for_nothing_else() {
    pass("own_tests_blame.py", &["python/validate", "../kernelbench/harness"]);
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs torch")]
fn a_hook_around_another_librarys_function_serves_what_was_certified_and_lets_go() {
    pass("hooks_let_go.py", &["../tests/putback/standin"]);
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs torch")]
fn a_chain_is_called_step_by_step_in_a_layer_and_its_kernel_is_checked() {
    pass("chains_checked.py", &["python/validate", "../kernelbench/harness"]);
}
