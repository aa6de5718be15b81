//! What is left of a compiler that hangs?

use super::program::{Told, executable, small_task, warpsmith};
use serde_json::json;
use std::{path::Path, process::Stdio, time::Duration};

/// A run of two rounds in this folder, whose compiler hangs on what holds this word: it starts `sleep` for so many seconds.
fn with_a_hanging_compiler(folder: &Path, word: &str, seconds: u32) -> std::process::Command {
    let compiler = folder.join("bin/g++");
    let script = format!("#!/bin/sh\nif grep -qs {word} unit.cpp; then sleep {seconds} & wait; fi\nexec g++ \"$@\"\n");
    std::fs::create_dir(folder.join("bin")).unwrap();
    executable(&compiler, &script);
    let reply = |text: &str| json!({ "role": "coder", "reply": format!("```cpp\n{text}\n```") }).to_string();
    std::fs::write(
        folder.join("script.jsonl"),
        [reply("void silu_and_mul() {} // it hangs"), reply("void silu_and_mul() { nothing; }")].join("\n"),
    )
    .unwrap();
    let settings = "[run]\npolicy = 'self-refine'\nrounds = 2\nshapes = 'task'\n[model]\nspec = 'scripted:script.jsonl'\n\
                    [workshop]\ncache = 'cache'\ncompiler_s = 3\n[timing]\nrepetitions = 2\n";
    std::fs::write(folder.join("warpsmith.toml"), settings).unwrap();
    let mut command = warpsmith(&["run", &small_task(folder), "--out", "run"]);
    command.current_dir(folder).env("CXX", compiler);
    command
}

/// Whether somebody sleeps for so many seconds, a number that is a test's own.
fn sleeps(seconds: u32) -> bool {
    let expected = format!("sleep\0{seconds}\0");
    let processes = std::fs::read_dir("/proc").unwrap().map(|process| process.unwrap().path());
    processes
        .map(|process| std::fs::read(process.join("cmdline")))
        .any(|line| line.is_ok_and(|line| line == expected.as_bytes()))
}

#[test]
fn a_compiler_that_hangs_is_ended_at_its_deadline_with_what_it_started_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let told = with_a_hanging_compiler(folder.path(), "hangs", 71_237).output().map(Told::of).unwrap().ended(1);
    assert!(told.out.contains("did not end within its deadline of 3 s"), "{told:?}");
    assert!(told.out.contains("round 2 of 2"), "{told:?}");
    assert!(!sleeps(71_237), "what the compiler started still runs");
    assert_eq!(warpsmith::store::Lock::owner(&folder.path().join("run")), None);
}

#[test]
fn a_run_that_is_interrupted_while_its_compiler_hangs_leaves_no_process_and_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = with_a_hanging_compiler(folder.path(), "silu", 71_238);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while !sleeps(71_238) && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::process::Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    let told = Told::of(child.wait_with_output().unwrap()).ended(130);
    assert!(!sleeps(71_238), "what the compiler started still runs: {told:?}");
    assert_eq!(warpsmith::store::Lock::owner(&folder.path().join("run")), None);
}
