//! What do the checkpoints of a workflow cost a person who waits for them?
//!
//! `cargo bench --bench workflow` prints a line of JSON, in milliseconds: `warpsmith tree` of a record with a thousand
//! checkpoints, and `warpsmith checkpoint` there and in a record of nine, each with the start of the program and the reading
//! of the record. The goals are under 50 ms and under 5 ms.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its numbers, and stops where one is missing"
)]

use kernelbench::Hash;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// The record that is made longer, and its task.
const RECORDED: &str = "examples/h100/peak-h200-fp16";
const EVENTS: &str = "tasks/matmul_fp16/events.jsonl";
/// Checkpoints of the long record.
const CHECKPOINTS: usize = 1000;
/// How often each is done: the fastest counts.
const TIMES: usize = 10;

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copied(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The record of a workflow up to its last checkpoint, and so many more, each made of the one before it as the last was.
fn record(folder: &Path, checkpoints: usize) -> PathBuf {
    let run = folder.join(checkpoints.to_string());
    copied(&Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDED), &run);
    let text = fs::read_to_string(run.join(EVENTS)).unwrap();
    let mut events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is = |event: &Value, kind: &str| event["event"] == kind;
    let end = events.iter().rposition(|event| is(event, "checkpointed")).unwrap();
    let begin = events.iter().rposition(|event| is(event, "ordered")).unwrap();
    events.truncate(end + 1);
    let step =
        |event: &&Value| ["ordered", "began", "wrote", "evaluated", "checkpointed"].iter().any(|kind| is(event, kind));
    let last: Vec<Value> = events[begin..].iter().filter(step).cloned().collect();
    let made = events.iter().filter(|event| is(event, "checkpointed")).count();
    let (mut parent, mut round) = (events[end]["id"].clone(), events[end]["round"].as_u64().unwrap());
    for at in made..checkpoints {
        let id = json!(Hash::of(at.to_string().as_bytes()));
        round += 1;
        for event in &last {
            let mut event = event.clone();
            event["seq"] = json!(events.len());
            match event["event"].as_str().unwrap() {
                "ordered" => event["from"] = parent.clone(),
                "began" => event["round"] = json!(round),
                "checkpointed" => {
                    (event["parent"], event["id"]) = (parent.clone(), id.clone());
                    (event["name"], event["round"]) = (json!(format!("c{at}")), json!(round));
                    event["kept"].as_array_mut().unwrap().truncate(4);
                }
                _ => {}
            }
            events.push(event);
        }
        parent = id;
    }
    // What was recorded stays as it was written.
    let made = events[end + 1..].iter().map(ToString::to_string);
    let lines: Vec<String> =
        text.lines().take(end + 1).map(str::to_owned).chain(made).map(|line| line + "\n").collect();
    fs::write(run.join(EVENTS), lines.concat()).unwrap();
    run
}

/// The fastest of several starts of the program, in milliseconds; what it says last has so many lines at least.
fn fastest(arguments: impl Fn(usize) -> Vec<String>, lines: usize) -> f64 {
    let one = |nth| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
        command.args(arguments(nth)).stdin(Stdio::null());
        let began = Instant::now();
        let output = command.output().unwrap();
        let took = began.elapsed().as_secs_f64() * 1e3;
        let said = String::from_utf8_lossy(&output.stdout).lines().count();
        assert!(output.status.success() && said >= lines, "{said} lines; {}", String::from_utf8_lossy(&output.stderr));
        took
    };
    (0..TIMES).map(one).fold(f64::INFINITY, f64::min)
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let (few, many) = (record(folder.path(), 9), record(folder.path(), CHECKPOINTS));
    let said = |path: &Path| path.display().to_string();
    let tree = |run: &Path, lines| fastest(|_| vec!["tree".to_owned(), said(run)], lines);
    let name = |run: &Path| fastest(|nth| vec!["checkpoint".to_owned(), said(run), format!("name-{nth}")], 1);
    let help = fastest(|_| vec!["--help".to_owned()], 1);
    println!(
        "{}",
        json!({
            "tree_of_1000_ms": tree(&many, CHECKPOINTS), "tree_of_9_ms": tree(&few, 9), "checkpoint_of_9_ms": name(&few),
            "checkpoint_of_1000_ms": name(&many), "help_ms": help, "best_of": TIMES,
            "record_of_1000_mib": fs::metadata(many.join(EVENTS)).unwrap().len() >> 20,
        })
    );
}
