//! Is a record that was edited found out, wherever it is read?

use crate::program::{events, files, only_events, place, run, simulated};
use std::{fs, path::Path};

/// Edits the JSON of the last event of this name.
fn edit(run: &str, event: &str, change: impl Fn(&mut serde_json::Value)) {
    let mut lines = events(run);
    change(lines.iter_mut().rfind(|line| line["event"] == event).unwrap());
    let text: String = lines.iter().flat_map(|line| [line.to_string(), "\n".into()]).collect();
    fs::write(only_events(Path::new(run)), text).unwrap();
}

#[test]
fn a_run_as_it_was_written_agrees_and_names_its_evidence() {
    let (_folder, recorded) = place();
    simulated(&recorded, &[]).ended(0);
    let told = run(&["verify", &recorded]).ended(0);
    let evidence = events(&recorded).iter().rfind(|e| e["event"] == "certified").unwrap()["evidence"].clone();
    assert!(told.out.contains("agrees") && told.out.contains(evidence.as_str().unwrap()), "{told:?}");
}

#[test]
fn the_recorded_runs_of_the_examples_agree() {
    for name in ["silu_and_mul", "silu_and_mul_2ulp", "merge_attn_states", "fused_add_rmsnorm"] {
        run(&["verify", &format!("examples/{name}/recorded")]).ended(0);
    }
}

#[test]
fn a_certified_ratio_that_was_edited_is_believed_by_nobody() {
    let (_folder, recorded) = place();
    simulated(&recorded, &[]).ended(0);
    edit(&recorded, "certified", |event| {
        let ratio = &mut event["certificate"]["verdict"]["certified"]["speedup"]["ratio"];
        *ratio = (ratio.as_f64().unwrap() * 10.0).into();
    });
    let told = run(&["verify", &recorded]).ended(1);
    assert!(told.out.contains("does not follow from its samples"), "{told:?}");
    for command in ["replay", "scores", "status", "report", "show"] {
        let told = run(&[command, &recorded]).ended(5);
        assert!(told.err.contains("does not follow from its samples"), "{command}: {told:?}");
    }
}

#[test]
fn an_interval_that_was_narrowed_differs_in_verify_and_replay() {
    let (_folder, recorded) = place();
    simulated(&recorded, &[]).ended(0);
    edit(&recorded, "certified", |event| {
        let speedup = &mut event["certificate"]["verdict"]["certified"]["speedup"];
        speedup["interval"]["low"] = speedup["ratio"].clone();
    });
    for command in ["verify", "replay"] {
        let told = run(&[command, &recorded]).ended(1);
        assert!(told.out.contains("interval"), "{command}: {told:?}");
    }
}

#[test]
fn a_word_changed_before_the_certificate_is_seen_in_its_evidence() {
    let (_folder, recorded) = place();
    simulated(&recorded, &[]).ended(0);
    edit(&recorded, "judged", |event| event["at_ms"] = 1.into());
    assert!(run(&["verify", &recorded]).ended(1).out.contains("evidence"));
}

#[test]
fn a_text_that_was_changed_is_named() {
    let (_folder, recorded) = place();
    simulated(&recorded, &[]).ended(0);
    let blob = files(&Path::new(&recorded).join("blobs")).pop().unwrap();
    fs::write(&blob, "x").unwrap();
    let told = run(&["verify", &recorded]).ended(1);
    assert!(told.out.contains(blob.file_name().unwrap().to_str().unwrap()), "{told:?}");
}

#[test]
fn a_record_that_is_gone_or_empty_does_not_agree() {
    let (_folder, recorded) = place();
    simulated(&recorded, &[]).ended(0);
    let (events, header) = (only_events(Path::new(&recorded)), Path::new(&recorded).join("run.toml"));
    let whole = fs::read_to_string(&header).unwrap();
    fs::write(&header, whole.replace("format = 1", "format = 7777")).unwrap();
    assert!(run(&["verify", &recorded]).ended(1).out.contains("run.toml  differs"));
    fs::write(&header, whole).unwrap();
    fs::write(&events, "").unwrap();
    assert!(run(&["verify", &recorded]).ended(1).out.contains("holds no event"));
    fs::remove_file(&events).unwrap();
    let told = run(&["verify", &recorded]).ended(5);
    assert!(told.out.contains("has no record") && told.err.contains("nothing to verify"), "{told:?}");
}
