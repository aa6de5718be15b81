//! Is it said which of a task's shapes a policy replaces, and can they be kept?

use crate::program::{self, SCRIPT, TASK, events, place, run};

/// A simulated run of a task with four cases, all of them timed.
fn simulated(recorded: &str, more: &[&str]) -> program::Told {
    let arguments = ["run", TASK, "--model", SCRIPT, "--simulate", "--policy", "cudaforge", "--repetitions", "5"];
    run(&[&arguments[..], &["--out", recorded], more].concat())
}

fn timed(recorded: &str) -> usize {
    let frozen = events(recorded).into_iter().find(|event| event["event"] == "suite-frozen").unwrap_or_default();
    frozen["suite"]["timed"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_policy_s_shapes_and_timed_cases_are_said_at_the_start_with_what_keeps_the_task_s() {
    let (_folder, recorded) = place();
    let told = simulated(&recorded, &[]);
    assert!(told.out.contains("in place of the 4 of silu_and_mul: --shapes task keeps these"), "{told:?}");
    assert!(told.out.contains("the largest case (cudaforge), where silu_and_mul says all cases"), "{told:?}");
    assert_eq!(timed(&recorded), 1);
}

#[test]
fn what_keeps_the_task_s_shapes_and_timed_cases_does_and_nothing_is_said() {
    let (_folder, recorded) = place();
    let told = simulated(&recorded, &["--shapes", "task", "--timed", "task"]);
    assert!(!told.out.contains("--shapes") && !told.out.contains("--timed"), "{told:?}");
    assert_eq!(timed(&recorded), 4);
}

#[test]
fn one_case_may_be_timed_and_one_that_is_not_there_is_refused_with_those_that_are() {
    let (_folder, recorded) = place();
    let told = simulated(&recorded, &["--shapes", "task", "--timed", "16x4"]).ended(2);
    assert!(told.err.contains("expected task, all, largest or 16x4096, 32x5120"), "{told:?}");
    let told = simulated(&recorded, &["--timed", "16x4096"]).ended(2);
    assert!(told.err.contains("add --shapes task"), "{told:?}");
    simulated(&recorded, &["--shapes", "task", "--timed", "16x4096"]);
    assert_eq!(timed(&recorded), 1);
}
