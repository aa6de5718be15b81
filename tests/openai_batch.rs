//! Does a batch of tasks go on with the batch of its model that it began before it was killed?
use crate::endpoint;

use crate::batches::{Batches, Stage, answer};
use crate::program::{KEY, Told, files, warpsmith};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// A folder of two tasks that are alike but for their names.
fn tasks(folder: &Path) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/silu_and_mul");
    let text = fs::read_to_string(from.join("task.toml")).unwrap();
    for name in ["one", "two"] {
        let own = folder.join("tasks").join(name);
        fs::create_dir_all(&own).unwrap();
        fs::copy(from.join("reference.cpp"), own.join("reference.cpp")).unwrap();
        let text = text.replacen("name = \"silu_and_mul\"", &format!("name = \"{name}\""), 1);
        fs::write(own.join("task.toml"), text).unwrap();
    }
    folder.join("tasks")
}

fn with_key(mut command: Command, batches: &Batches) -> Command {
    command.env("OPENAI_BASE_URL", batches.endpoint.url()).env("OPENAI_API_KEY", KEY);
    command
}

/// One round of each task, on the simulated machine.
fn start(batches: &Batches, folder: &Path) -> Command {
    let settings = folder.join("settings.toml");
    fs::write(&settings, "[model]\nbatch_window_s = 1\n").unwrap();
    let all = [settings, tasks(folder), folder.join("run")].map(|path| path.display().to_string());
    let what = ["--config", &all[0], "batch", &all[1], "--model", "openai-batch:gpt-4o", "--simulate"];
    let how = ["--shapes", "task", "--rounds", "1", "--repetitions", "5", "--out", &all[2]];
    with_key(warpsmith(&[&what[..], &how].concat()), batches)
}

fn candidate(_: &Value) -> String {
    "```cpp\n// simulate: us=50 build_ms=1 run_ms=1\nvoid silu_and_mul() {}\n```".to_owned()
}

#[test]
fn killed_between_a_batch_and_its_answers_it_resumes_without_a_second_one() {
    let ready = Arc::new(AtomicBool::new(false));
    let is_ready = ready.clone();
    let batches = Batches::start(move |_, _, lines| {
        if !is_ready.load(Ordering::SeqCst) {
            return Stage::going();
        }
        let mut stage = Stage::all(lines, candidate);
        stage.output.push(answer(&json!({"custom_id": "a-stranger"}), "hello"));
        stage
    });
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut first = start(&batches, folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !batches.paths().iter().any(|path| path == "/v1/batches/batch_0") {
        assert!(first.try_wait().unwrap().is_none(), "it ended by itself: {:?}", batches.paths());
        std::thread::sleep(Duration::from_millis(10));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    ready.store(true, Ordering::SeqCst);
    let told = Told::of(with_key(warpsmith(&["resume", &run.display().to_string()]), &batches).output().unwrap());
    assert_eq!(told.code, Some(0), "{told:?}");
    assert_eq!((batches.asked().len(), batches.made()), (1, 1), "{:?}", batches.paths());
    assert_eq!(batches.asked()[0].len(), 2, "both tasks met in the batch");
    for task in ["one", "two"] {
        let events = fs::read_to_string(run.join("tasks").join(task).join("events.jsonl")).unwrap();
        let answered: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let answered: Vec<_> = answered.into_iter().filter(|event| event["event"] == "answered").collect();
        assert_eq!(answered.len(), 1);
        assert!((answered[0]["usd"].as_f64().unwrap() - 0.0015).abs() < 1e-9, "half the price: {}", answered[0]);
    }
    let log = fs::read_to_string(run.join("warpsmith.log")).unwrap();
    assert!(log.contains("a-stranger") && log.contains("not in it: ignored"), "{log}");
    let header = fs::read_to_string(run.join("run.toml")).unwrap();
    assert!(header.contains("in batches at 0.5 of the list price"), "{header}");
    for file in files(&run) {
        assert!(!String::from_utf8_lossy(&fs::read(&file).unwrap()).contains(KEY), "{}", file.display());
    }
}

#[test]
fn a_wrong_key_stops_it_at_once_with_one_sentence() {
    let wrong = |_: &endpoint::Request| Some(endpoint::Act::error(401, "invalid_api_key", "no such key"));
    let batches = Batches::meeting(wrong, |_, _, _| Stage::going());
    let folder = tempfile::tempdir().unwrap();
    let told = Told::of(start(&batches, folder.path()).output().unwrap()).ended(4);
    let said: Vec<&str> = told.err.lines().filter(|line| line.contains("status 401")).collect();
    assert!(said.len() == 1 && said[0].contains("OPENAI_API_KEY"), "{told:?}");
    assert_eq!(batches.paths(), ["/v1/files"]);
}

#[test]
fn the_key_goes_to_no_address_that_only_the_run_s_folder_names() {
    let batches = Batches::start(|_, _, lines| Stage::all(lines, candidate));
    let folder = tempfile::tempdir().unwrap();
    Told::of(start(&batches, folder.path()).output().unwrap()).ended(0);
    let before = batches.paths().len();
    let run = folder.path().join("run").display().to_string();
    let mut resume = warpsmith(&["resume", &run, "--rounds", "3"]);
    let told = Told::of(resume.env("OPENAI_API_KEY", KEY).output().unwrap()).ended(2);
    assert!(told.err.contains("not sent to an address that only a run's folder names"), "{told:?}");
    assert_eq!(batches.paths().len(), before);
}
