//! Does the driver of a whole model's comparison keep what it measured when an engine dies, and refuse what no server has? On a
//! stand-in for SGLang, torch and pip, under `tests/bench`.

#![expect(clippy::unwrap_used, reason = "in a test, to panic is to fail")]

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};
use warpsmith_sglang::survey::{
    bench::{Order, bench},
    engine::Settings,
};

/// A folder that goes away, with a plug-in and a Python whose engine dies at these starts.
struct Story {
    folder: tempfile::TempDir,
    python: String,
}

impl Story {
    fn dies_at(starts: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("plugin")).unwrap();
        fs::write(folder.path().join("plugin/pyproject.toml"), "").unwrap();
        let (standin, place) = (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/standin"), folder.path().display());
        let text =
            format!("#!/bin/sh\nSTANDIN={place} STANDIN_DIES_AT='{starts}' PYTHONPATH={standin} exec python3 \"$@\"\n");
        let python = folder.path().join("python");
        fs::write(&python, text).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        Self { python: python.display().to_string(), folder }
    }

    fn benched(&self, rounds: u32, settings: &Settings) -> Result<Vec<String>, String> {
        let (plugin, out) = (&self.folder.path().join("plugin"), &self.out());
        let (batch, tokens, new) = (2, 8, 4);
        let order = Order { model: "llama-3.1-8b", settings, plugin, out, batch, tokens, new, rounds };
        bench(&order, &self.python).map_err(|e| e.to_string())
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn starts(&self) -> usize {
        fs::read_to_string(self.folder.path().join("starts")).map_or(0, |text| text.len())
    }
}

#[test]
fn an_engine_that_dies_once_is_started_again_and_counts_once() {
    // The first with the plug-in on is one of the first two.
    let story = Story::dies_at("1 3");
    let lines = story.benched(2, &Settings::new()).unwrap();
    let decode = lines[0].strip_prefix("decode     tokens a second, on over off: ").unwrap();
    // 4 ms a token without the plug-in, 2 with it.
    let ratio: f64 = decode.split('×').next().unwrap().parse().unwrap();
    assert!((1.3..3.0).contains(&ratio), "{lines:?}");
    assert!(lines[2].contains("equal with the plug-in off and on"), "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with("silu_and_mul bf16: hit: 6")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("note")), "{lines:?}");
    assert_eq!(story.starts(), 6);
}

#[test]
fn what_was_measured_stays_when_an_engine_dies_twice() {
    let story = Story::dies_at("3 4");
    let why = story.benched(2, &Settings::new()).unwrap_err();
    assert!(why.contains("when 1 without the plug-in and 1 with it had ended"), "{why}");
    assert!(why.contains("bench.json"), "{why}");
    let kept = fs::read_to_string(story.out().join("bench.json")).unwrap();
    assert_eq!(kept.matches("token_us").count(), 2, "{kept}");
}

#[test]
fn two_of_each_are_enough_to_say_what_came_of_it() {
    let story = Story::dies_at("5 6");
    let lines = story.benched(3, &Settings::new()).unwrap();
    assert!(lines[0].starts_with("decode     tokens a second, on over off: "), "{lines:?}");
    let note = lines.last().unwrap();
    assert!(note.starts_with("note       not all processes that were asked for: a process died twice"), "{lines:?}");
}

#[test]
fn an_argument_that_no_server_has_is_refused_before_anything_starts() {
    let story = Story::dies_at("");
    let settings = [("attention_backnd".to_owned(), "triton".into())].into_iter().collect();
    let why = story.benched(2, &settings).unwrap_err();
    let said =
        "--engine attention_backnd: the server of SGLang 0.0 has no such argument; the nearest are attention_backend";
    assert!(why.contains(said), "{why}");
    assert_eq!(story.starts(), 0);
}
