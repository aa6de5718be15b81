//! Does docs/FORMAT.md describe the record that the program writes?

use agents::event::{FORMAT, Line};
use serde_json::Value;
use std::collections::BTreeSet;
use warpsmith::exit::Exit;

const PAGE: &str = include_str!("../docs/FORMAT.md");

/// The example lines of the page, each with the event under whose heading it stands.
fn examples() -> Vec<(String, &'static str)> {
    let mut heading = String::new();
    let mut found = vec![];
    for line in PAGE.lines() {
        if let Some(name) = line.strip_prefix("### `") {
            name.trim_end_matches('`').clone_into(&mut heading);
        } else if line.starts_with("{\"seq\"") {
            found.push((heading.clone(), line));
        }
    }
    found
}

/// The names that a tagged type knows, as its own error message lists them.
fn known(error: &str) -> BTreeSet<String> {
    let (_, list) = error.split_once("expected one of ").expect("serde lists what it expected");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A value without the fields that are null: those may be left out of an example.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[test]
fn every_example_is_a_line_of_the_log_word_for_word() {
    for (heading, example) in examples() {
        let line: Line = serde_json::from_str(example).unwrap_or_else(|e| panic!("{heading}: {e}"));
        let written: Value = serde_json::to_value(&line).unwrap();
        let documented: Value = serde_json::from_str(example).unwrap();
        assert_eq!(without_nulls(written), without_nulls(documented), "{heading}: a field is missing or too much");
    }
}

#[test]
fn every_event_is_documented_with_an_example() {
    let error = serde_json::from_str::<Line>(r#"{"seq":0,"at_ms":0,"event":"nothing"}"#).unwrap_err().to_string();
    let documented: BTreeSet<String> = examples().into_iter().map(|(heading, _)| heading).collect();
    assert_eq!(documented, known(&error));
}

#[test]
fn every_field_of_an_example_is_explained_above_it() {
    for section in PAGE.split("\n### `").skip(1) {
        let Some(example) = section.lines().find(|line| line.starts_with("{\"seq\"")) else { continue };
        let Value::Object(fields) = serde_json::from_str(example).unwrap() else { panic!("{example}") };
        for name in fields.keys().filter(|name| !["seq", "at_ms", "event"].contains(&name.as_str())) {
            assert!(section.contains(&format!("* `{name}`: ")), "{name} of {}", &section[..20]);
        }
    }
}

#[test]
fn every_kind_of_failure_is_documented() {
    let error = serde_json::from_str::<kernelbench::Failure>(r#"{"kind":"nothing"}"#).unwrap_err().to_string();
    for kind in known(&error) {
        assert!(PAGE.contains(&format!("| `{kind}` |")), "{kind}");
    }
}

#[test]
fn every_exit_code_is_documented_with_its_meaning() {
    let documented: Vec<&str> =
        PAGE.split_once("## Exit codes").unwrap().1.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    let codes = Exit::ALL.map(|exit| format!("| {} | {} |", exit.code(), exit.meaning()));
    assert_eq!(documented, codes);
}

#[test]
fn the_page_names_the_version_that_the_program_writes() {
    assert!(PAGE.contains(&format!("and it is **{FORMAT}**")));
}
