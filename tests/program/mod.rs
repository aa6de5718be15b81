//! The program as its user meets it: a process with arguments, an environment and a folder.
#![allow(dead_code, clippy::allow_attributes, clippy::unwrap_used, reason = "each test uses the part that it needs")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A key that must turn up nowhere.
pub(crate) const KEY: &str = "sk-this-must-turn-up-nowhere-4711";

/// The program, started in the repository, with nothing in its environment that could change a test.
pub(crate) fn warpsmith(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments);
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "RUST_LOG"] {
        command.env_remove(name);
    }
    command
}

/// Puts a script where it can be started at once.
pub(crate) fn executable(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, text).unwrap();
    install(&draft, path);
    std::fs::remove_file(draft).unwrap();
}

/// Copies a program to where it can be started at once: by another process, for what is open for writing in this one a process
/// that another test starts holds open for a moment, and what is open for writing is busy.
pub(crate) fn install(from: &Path, to: &Path) {
    assert!(Command::new("install").args(["-m", "755"]).arg(from).arg(to).status().unwrap().success());
}

/// The program with `warpsmith-metrics` beside it, which `cargo test --workspace` has built and `cargo test -p warpsmith` not.
pub(crate) fn with_metrics(arguments: &[&str]) -> Command {
    let beside = Path::new(env!("CARGO_BIN_EXE_warpsmith")).with_file_name("warpsmith-metrics");
    BUILT.call_once(|| {
        if !beside.is_file() {
            let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
            let build = ["build", "--quiet", "--profile", profile, "-p", "warpsmith-selection"];
            assert!(Command::new(env!("CARGO")).args(build).status().unwrap().success());
        }
    });
    warpsmith(arguments)
}

static BUILT: std::sync::Once = std::sync::Once::new();

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Told {
    warpsmith(arguments).output().map(Told::of).unwrap()
}

/// What it said, and how it ended.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Told {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The same, after a look at the exit code.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// The task that most tests work on.
pub(crate) const TASK: &str = "examples/silu_and_mul";

/// Ten rounds with a compile error, a wrong result and a crash among them.
pub(crate) const SCRIPT: &str = "scripted:tests/scripts/ten-rounds.jsonl";

/// The example with one small case.
pub(crate) fn small_task(place: &Path) -> String {
    let folder = place.join("silu_and_mul");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy("examples/silu_and_mul/reference.cpp", folder.join("reference.cpp")).unwrap();
    let task = std::fs::read_to_string("examples/silu_and_mul/task.toml").unwrap();
    let head = task.split("[[case]]").next().unwrap();
    std::fs::write(folder.join("task.toml"), format!("{head}[[case]]\nname = \"3x64\"\ntokens = 3\nhidden = 64\n"))
        .unwrap();
    folder.display().to_string()
}

/// A folder for a run that does not exist yet, in a folder that goes away with the test.
pub(crate) fn place() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run").display().to_string();
    (folder, run)
}

/// A simulated scripted run into this folder.
pub(crate) fn simulated(run: &str, more: &[&str]) -> Told {
    let arguments =
        ["run", TASK, "--model", SCRIPT, "--simulate", "--shapes", "task", "--repetitions", "10", "--out", run];
    self::run(&[&arguments[..], more].concat())
}

/// The events of the run's only task, as JSON.
pub(crate) fn events(run: &str) -> Vec<serde_json::Value> {
    let file = only_events(Path::new(run));
    let text = std::fs::read_to_string(file).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The record of the run's only task.
pub(crate) fn only_events(run: &Path) -> PathBuf {
    let only = std::fs::read_dir(run.join("tasks")).into_iter().flatten().flatten().next();
    run.join("tasks").join(only.map_or("silu_and_mul".into(), |only| only.file_name())).join("events.jsonl")
}

/// Every file under a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
