//! Is code that differs in a comment alone taken for what it is?

use crate::program::{events, place, run, small_task};
use std::fs;

/// A candidate that is the reference with a comment.
fn reply(comment: &str) -> String {
    let source = fs::read_to_string("examples/silu_and_mul/reference.cpp").unwrap();
    serde_json::json!({ "role": "coder", "reply": format!("```cpp\n// {comment}\n{source}\n```") }).to_string()
}

#[test]
fn two_candidates_that_compile_to_the_same_code_are_timed_as_one() {
    let (folder, recorded) = place();
    let script = folder.path().join("script.jsonl");
    fs::write(&script, [reply("a guess"), reply("another guess")].join("\n")).unwrap();
    let task = small_task(folder.path());
    let model = format!("scripted:{}", script.display());
    let arguments = ["run", &task, "--model", &model, "--policy", "self-refine", "--shapes", "task"];
    let told = run(&[&arguments[..], &["--rounds", "2", "--repetitions", "6", "--out", &recorded]].concat());
    let rounds: Vec<_> = events(&recorded).into_iter().filter(|event| event["event"] == "evaluated").collect();
    let passed = |round: usize| &rounds[round]["evaluation"]["passed"];
    assert_ne!(rounds[0]["candidate"], rounds[1]["candidate"]);
    assert_eq!(passed(0)["object"], passed(1)["object"], "{told:?}");
    assert_eq!(passed(1)["labels"].as_array().unwrap().last().unwrap()["kind"], "same-code", "{told:?}");
    assert!(told.out.contains("the same code as candidate"), "{told:?}");
    run(&["replay", &recorded]).ended(0);
}
