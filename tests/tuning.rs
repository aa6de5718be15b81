//! Tuning parameters as a user meets them: bound on the command line, searched by `evaluate` and in the loop.

use crate::program::{Told, run, warpsmith};
use serde_json::Value;
use std::{fs, path::Path};

/// y = 2 x, in blocks of a size that a candidate leaves open; what does not divide the case's length is no configuration.
const TASK: &str = r#"schema = 1
name = "twice"
summary = "y = 2 x"
language = "c++17"
entry = "twice"
reference = "reference.cpp"
returns = "status"
argument = [
    { name = "y", dtype = "f32", size = "n", transfer = "out" },
    { name = "x", dtype = "f32", size = "n", transfer = "in", fill = { normal = { mean = 0, std = 1 } } },
    { name = "n", dtype = "i64" },
]
tolerance = { atol = 0, rtol = 1e-6 }
case = [{ name = "big", n = 4096 }]
final_case = [{ name = "odd", n = 512 }]

[tuning]
BLOCK = [1, 3, 64]
[tuning.REPEAT]
from = 1
to = 4
factor = 2
constraint = "REPEAT * BLOCK <= 128"
"#;

/// Does its work as often as it is told to, so that the fewest are the fastest.
const CANDIDATE: &str = r#"extern "C" int twice(float* y, const float* x, int64_t n) {
    // simulate: us={{BLOCK}}{{REPEAT}}
    if (n % {{BLOCK}} != 0) return WS_INVALID;
    for (volatile int again = 0; again < {{REPEAT}} * 4; again = again + 1)
        for (int64_t i = 0; i < n; i += {{BLOCK}})
            for (int64_t j = i; j < i + {{BLOCK}}; ++j) y[j] = 2.0f * x[j];
    return 0;
}
"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("task.toml"), TASK).unwrap();
        let reference = CANDIDATE.replace("{{BLOCK}}", "1").replace("{{REPEAT}}", "4");
        fs::write(folder.path().join("reference.cpp"), reference).unwrap();
        fs::write(folder.path().join("candidate.cpp"), CANDIDATE).unwrap();
        Self(folder)
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn evaluate(&self, more: &[&str]) -> Told {
        let (task, candidate) = (self.at(""), self.at("candidate.cpp"));
        run(&[&["evaluate", &task, &candidate, "--warmup", "1", "--repetitions", "5"], more].concat())
    }
}

fn quoted(word: &std::ffi::OsStr) -> String {
    format!("'{}'", word.to_string_lossy())
}

fn json(told: &Told) -> Value {
    serde_json::from_str(&told.out).unwrap()
}

#[test]
fn evaluate_binds_what_it_is_told_and_searches_what_is_left_open() {
    let folder = Folder::new();
    let bound = json(&folder.evaluate(&["--bind", "BLOCK=64", "--bind", "REPEAT=1", "--json"]).ended(0));
    assert_eq!(bound["bindings"], serde_json::json!({"BLOCK": 64, "REPEAT": 1}));
    assert!(bound.get("tried").is_none(), "nothing was open: {bound}");
    let searched = json(&folder.evaluate(&["--bind", "REPEAT=1", "--certify", "--json"]).ended(0));
    let tried = searched["tried"].as_array().unwrap();
    assert_eq!(tried.len(), 3, "{tried:?}");
    let three = tried.iter().find(|tried| tried["bindings"]["BLOCK"] == 3).unwrap();
    assert_eq!(three["found"], "invalid", "4096 is no multiple of 3");
    assert!(searched["certificate"]["verdict"].to_string().contains("speedup"), "{searched}");
    assert_eq!(searched["certificate"]["candidate"], searched["candidate"]);
}

#[test]
fn on_a_terminal_evaluate_says_what_it_is_doing() {
    let folder = Folder::new();
    let own = warpsmith(&["evaluate", &folder.at(""), &folder.at("candidate.cpp"), "--bind", "BLOCK=64", "--bind"]);
    let words: Vec<String> = std::iter::once(own.get_program()).chain(own.get_args()).map(quoted).collect();
    // util-linux's: runs a command with a terminal of its own, and copies what it shows.
    let mut terminal = std::process::Command::new("script");
    terminal.env("TERM", "xterm").args(["-qefc", &format!("{} REPEAT=1", words.join(" ")), "/dev/null"]);
    let shown = Told::of(terminal.output().unwrap()).ended(0).out;
    let stages =
        ["candidate.cpp: building", "timing the reference", "candidate.cpp: checking", "candidate.cpp: timing"];
    let at = stages.map(|stage| shown.find(stage).unwrap_or_else(|| panic!("no {stage:?} in {shown}")));
    assert!(at.is_sorted(), "{shown}");
}

#[test]
fn an_invalid_configuration_is_told_as_such() {
    let folder = Folder::new();
    let told = folder.evaluate(&["--bind", "BLOCK=3", "--bind", "REPEAT=1"]).ended(1);
    assert!(told.out.contains("WS_INVALID on case big"), "{told:?}");
}

#[test]
fn a_binding_that_the_task_does_not_know_is_refused_with_what_it_knows() {
    let folder = Folder::new();
    for (bind, why) in [
        ("TILE=1", "the task has no tuning parameter `TILE`; it has BLOCK, REPEAT"),
        ("BLOCK=2", "BLOCK=2: expected one of 1, 3, 64"),
        ("BLOCK", "expected NAME=VALUE, such as TILE=64"),
    ] {
        let told = folder.evaluate(&["--bind", bind]).ended(2);
        assert!(told.err.contains(why), "{told:?}");
    }
}

#[test]
fn a_slip_in_tuning_is_told_with_its_line() {
    let folder = Folder::new();
    for (old, new, why) in [
        ("REPEAT * BLOCK <= 128", "REPEAT * TILE <= 128", "names `TILE`; the parameters are BLOCK, REPEAT"),
        ("REPEAT * BLOCK <= 128", "REPEAT * BLOCK < 1", "no values satisfy every constraint"),
        ("factor = 2", "factor = 1", "these are no values to choose from"),
        ("factor = 2", "factors = 2", "unknown field `factors`"),
        ("BLOCK = [1, 3, 64]", "block = [1, 3, 64]", "this cannot name a tuning parameter"),
    ] {
        fs::write(folder.at("task.toml"), TASK.replacen(old, new, 1)).unwrap();
        let told = folder.evaluate(&[]).ended(2);
        assert!(
            told.err.contains(why) && (18..22).any(|line| told.err.contains(&format!("task.toml:{line}:"))),
            "{new}: {told:?}"
        );
    }
}

#[test]
fn the_loop_finds_bindings_and_its_record_makes_the_search_again() {
    let folder = Folder::new();
    let reply = serde_json::json!({"role": "coder", "round": 1, "reply": format!("```cpp\n{CANDIDATE}```\n")});
    fs::write(folder.at("script.jsonl"), format!("{reply}\n")).unwrap();
    let (model, out) = (format!("scripted:{}", folder.at("script.jsonl")), folder.at("run"));
    let arguments = ["run", &folder.at(""), "--model", &model, "--simulate", "--shapes", "task", "--rounds", "1"];
    let told = run(&[&arguments[..], &["--repetitions", "5", "--out", &out]].concat()).ended(0);
    assert!(told.out.contains("tuned: 8 configurations, 0 invalid, 0 failed; best BLOCK=1 REPEAT=1"), "{told:?}");
    let events = fs::read_to_string(Path::new(&out).join("tasks/twice/events.jsonl")).unwrap();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let one = |name: &str| events.iter().find(|event| event["event"] == name).unwrap().clone();
    let (tuned, evaluated) = (one("tuned"), one("evaluated"));
    assert_eq!(tuned["candidate"], one("wrote")["candidate"]);
    assert_eq!(tuned["bound"], evaluated["candidate"]);
    assert_eq!(one("certified")["certificate"]["candidate"], evaluated["candidate"]);
    let told = Told::of(warpsmith(&["replay", &out]).output().unwrap()).ended(0);
    assert!(told.out.contains("agrees with the record"), "{told:?}");
}
