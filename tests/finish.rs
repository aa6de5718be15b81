//! `warpsmith finish`: a run that waits, or was left, ends with what it has.

use crate::program::{SCRIPT, TASK, events, only_events, place, run, simulated};
use std::{fs, path::Path};

/// Cuts a record behind its first evaluation, as a program leaves it that was ended there.
fn cut(record: &Path) {
    cut_behind(record, "\"event\":\"evaluated\"");
}

fn cut_behind(record: &Path, words: &str) {
    let text = fs::read_to_string(record).unwrap();
    let first = text.find(words).unwrap();
    let end = first + text[first..].find('\n').unwrap() + 1;
    fs::write(record, &text[..end]).unwrap();
}

#[test]
fn a_run_that_was_left_is_certified_and_ended() {
    let (_folder, left_run) = place();
    simulated(&left_run, &[]).ended(0);
    cut(&only_events(Path::new(&left_run)));
    assert!(events(&left_run).iter().all(|event| event["event"] != "certified"));
    let told = run(&["finish", &left_run]).ended(0);
    assert!(told.out.contains("ended: told to finish"), "{told:?}");
    let now = events(&left_run);
    let certified = now.iter().find(|event| event["event"] == "certified").unwrap();
    assert!(certified["certificate"]["verdict"].to_string().contains("certified"), "{certified}");
    assert_eq!(now.last().unwrap()["end"], "finished");
    run(&["replay", &left_run]).ended(0);
    run(&["finish", &left_run]).ended(0);
    assert_eq!(events(&left_run).len(), now.len(), "a run that has ended stays as it is");
    let told = run(&["resume", &left_run]).ended(0);
    assert_eq!(events(&left_run).len(), now.len(), "{told:?}");
    run(&["resume", &left_run, "--rounds", "2"]).ended(0);
    assert_eq!(events(&left_run).last().unwrap()["end"], "out-of-rounds");
    run(&["replay", &left_run]).ended(0);
}

#[test]
fn a_run_that_is_finished_while_a_judge_is_asked_is_replayed_to_the_same() {
    let (_folder, left_run) = place();
    simulated(&left_run, &[]).ended(0);
    cut_behind(&only_events(Path::new(&left_run)), "\"round\":2,\"role\":\"judge\"");
    run(&["finish", &left_run]).ended(0);
    assert_eq!(events(&left_run).last().unwrap()["end"], "finished");
    run(&["replay", &left_run]).ended(0);
}

#[test]
fn of_a_batch_what_has_begun_is_certified_and_nothing_else_begins() {
    let (folder, batch) = place();
    let tasks = folder.path().join("tasks");
    for name in ["one", "two"] {
        let task = tasks.join(name);
        fs::create_dir_all(&task).unwrap();
        let text = fs::read_to_string(format!("{TASK}/task.toml")).unwrap();
        fs::write(task.join("task.toml"), text.replacen("name = \"silu_and_mul\"", &format!("name = \"{name}\""), 1))
            .unwrap();
        fs::copy(format!("{TASK}/reference.cpp"), task.join("reference.cpp")).unwrap();
    }
    let tasks = tasks.display().to_string();
    let arguments = ["batch", &tasks, "--model", SCRIPT, "--simulate", "--shapes", "task", "--at-once", "1"];
    run(&[&arguments[..], &["--repetitions", "5", "--out", &batch]].concat());
    cut(&Path::new(&batch).join("tasks/one/events.jsonl"));
    fs::remove_dir_all(Path::new(&batch).join("tasks/two")).unwrap();
    let begun = |name: &str| fs::read_to_string(format!("{batch}/tasks/{name}/events.jsonl"));
    run(&["finish", &batch]).ended(0);
    let last = begun("one").unwrap().trim_end().lines().last().unwrap().to_owned();
    assert!(last.contains("\"end\":\"finished\""), "{last}");
    assert!(begun("two").is_err(), "what had not begun is not begun");
}

#[test]
fn going_on_with_a_problem_names_the_python_that_is_tried() {
    let (folder, left_run) = place();
    let letters = format!("mailbox:{}", folder.path().join("letters").display());
    let problem = ["run", "examples/problems/level1/2_Matmul.py", "--simulate", "--out", &left_run];
    run(&[&problem[..], &["--model", &letters, "--exit-when-waiting"]].concat()).ended(10);
    let header = Path::new(&left_run).join("run.toml");
    let text = fs::read_to_string(&header).unwrap();
    fs::write(&header, text.replace("simulated = true", "simulated = false")).unwrap();
    for command in ["resume", "finish"] {
        let said = run(&[command, &left_run, "--python", "/nowhere/python"]).ended(3).err;
        assert!(said.contains("/nowhere/python"), "{command}: {said}");
    }
}
