//! Does docs/FORMAT.md describe the record that the program writes, and what it prints and reads beside it?
use crate::program;

use agents::{
    event::{FORMAT, Line},
    llm::{Call, CallId, Llm, Purpose, Role, mailbox::Mailbox, scripted::Scripted},
};
use serde_json::Value;
use std::{collections::BTreeSet, fs};
use warpsmith::exit::Exit;

const PAGE: &str = include_str!("../docs/FORMAT.md");
const TASKS: &str = include_str!("../examples/README.md");

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
        assert_eq!(Line::read(example.as_bytes()).unwrap(), line, "{heading}");
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

/// A section of the page, from its heading to the next.
fn section(heading: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    rest.split("\n## ").next().unwrap()
}

/// The names at the heads of a section's items: `* `a`, `b`: what they are`.
fn named(section: &str) -> BTreeSet<&str> {
    let heads = section.lines().filter_map(|line| line.strip_prefix("* ")?.split_once(": "));
    heads.flat_map(|(head, _)| head.split('`').skip(1).step_by(2)).collect()
}

/// A call as a mailbox and a script know it.
fn call() -> Call {
    let (role, purpose) = (Role::Judge, Purpose::Advise);
    let id = CallId { task: "silu_and_mul".into(), round: 2, role, purpose, part: String::new(), attempt: 1 };
    Call { id, prompt: prompts::Prompt { system: String::new(), turns: vec![] } }
}

#[test]
fn what_is_printed_for_scripts_and_tables_has_the_documented_keys_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("candidate.cpp").display().to_string();
    fs::write(&file, "// simulate: us=50\nvoid silu_and_mul() {}\n").unwrap();
    let arguments = ["evaluate", program::TASK, &file, "--simulate", "--profile", "--certify", "--json"];
    let printed: Value = serde_json::from_str(&program::run(&arguments).ended(0).out).unwrap();
    let evaluate = section("For scripts: `evaluate --json`");
    let (documented, fields) = (named(evaluate), printed.as_object().unwrap());
    let missing: Vec<_> = fields.keys().filter(|key| !documented.contains(key.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?} is not documented");
    let left_out: Vec<_> = documented.iter().filter(|key| !fields.contains_key(**key)).collect();
    assert_eq!(left_out, [&"against", &"bindings", &"precision", &"tried"], "documented and not printed");
    for stage in fields["seconds"].as_object().unwrap().keys() {
        assert!(evaluate.contains(&format!("`{stage}`")), "{stage}");
    }
    let csv = program::run(&["scores", "examples/silu_and_mul/recorded", "--format", "csv"]).ended(0).out;
    let head: BTreeSet<&str> = csv.lines().next().unwrap().split(',').collect();
    assert_eq!(head, named(section("For tables: `scores --format csv`")));
}

#[test]
fn what_is_written_beforehand_and_what_is_replied_is_read_as_it_is_documented() {
    let examples = |name: &str| section(name).split("```").nth(1).unwrap().trim().lines();
    let id = Mailbox::new("letters", agents::llm::chat::Samplings::all(agents::llm::chat::Sampling::model("m")));
    let id = id.prefix("silu").custom_id(&call());
    assert!(examples("The mailbox").all(|line| line.contains(&format!("\"custom_id\":\"{id}\""))), "{id}");
    let script = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    fs::write(script.path(), examples("A script").collect::<Vec<_>>().join("\n")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let reply = runtime.block_on(Scripted::read(script.path()).unwrap().ask(call())).unwrap().text;
    prompts::read_optimization(&reply).unwrap();
    let replies = section("What a model replies");
    for line in examples("What a model replies") {
        let (purpose, reply) = line.split_once(' ').unwrap();
        let read = match purpose {
            "diagnose" => prompts::read_fix(reply).map(drop),
            "advise" => prompts::read_optimization(reply).map(drop),
            "approaches" => prompts::read_approaches(reply).map(drop),
            "suggest" => prompts::read_suggestions(reply).map(drop),
            "plan" => prompts::read_plan(reply, &["best".into()]).map(drop),
            "action" => prompts::read_action(reply, &["BN+32".into()]).map(drop),
            "space" => prompts::read_space(reply).map(drop),
            "reflect" => prompts::read_reflections(reply).map(drop),
            "shapes" => {
                let task = kernelbench::load::task(program::TASK.as_ref()).unwrap();
                prompts::read_shapes(reply, &task).map(drop)
            }
            other => panic!("{other} is no purpose"),
        };
        assert!(read.is_ok(), "{line}: {read:?}");
        let row = replies.lines().find(|row| row.starts_with(&format!("| `{purpose}` |"))).unwrap();
        let reply: Value = serde_json::from_str(reply).unwrap();
        assert!(reply.as_object().unwrap().keys().all(|key| row.contains(&format!("`{key}`"))), "{row}");
    }
}

#[test]
fn every_key_of_a_task_file_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("task.toml"), "nothing = 1\n").unwrap();
    let error = kernelbench::load::task(folder.path()).unwrap_err().to_string();
    let keys = known(&error);
    assert!(keys.len() > 15 && keys.contains("reference"), "{error}");
    for key in keys {
        let head = [format!("| `{key}`"), format!("| `[{key}]`"), format!("| `[[{key}]]`"), format!(", `{key}`")];
        assert!(head.iter().any(|head| TASKS.contains(head)), "{key}");
    }
    assert!(include_str!("../README.md").contains("](examples/README.md)"));
}
