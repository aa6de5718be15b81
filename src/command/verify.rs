//! `warpsmith verify`: does what a run says follow from what it holds?

use super::say;
use crate::{
    cli::VerifyArgs,
    exit::{Exit, Trouble},
    progress::plain,
    store::RunFolder,
    verify::Verification,
};

/// What is said of a task that has none.
const NO_RECORD: &str = "has no record: its turn has not come, or its events.jsonl was taken away";

/// Looks at the record of every task, or of the one that is named.
pub(super) fn verify(arguments: &VerifyArgs) -> Result<Exit, Trouble> {
    let folder = RunFolder::open(&arguments.run)?;
    let names = match &arguments.task {
        Some(task) => vec![task.clone()],
        None => folder.tasks()?,
    };
    let (mut agree, mut any) = (true, false);
    let mut all = vec![];
    if let Err(why) = folder.header() {
        agree = false;
        if arguments.json {
            let found = Verification { differences: vec![why.to_string()], ..Verification::default() };
            all.push(serde_json::json!({ "file": "run.toml", "found": found }));
        } else {
            say(&format!("run.toml  differs: {}", plain(&why.to_string())));
        }
    }
    for name in &names {
        // A batch makes the folders of all its tasks at once.
        if arguments.task.is_none() && !folder.has_record(name) {
            if !arguments.json {
                say(&format!("{}  {NO_RECORD}", plain(name)));
            }
            continue;
        }
        // What cannot even be read is a difference of this task, and no reason not to look at the others.
        let found = folder.record(name).map_or_else(
            |why| Verification { differences: vec![why.to_string()], ..Verification::default() },
            |record| Verification::of(&record),
        );
        let found = if found.events == 0 && found.differences.is_empty() {
            Verification { differences: vec!["its events.jsonl holds no event".to_owned()], ..found }
        } else {
            found
        };
        any = true;
        agree &= found.differences.is_empty();
        if arguments.json {
            all.push(serde_json::json!({ "task": name, "found": found }));
        } else {
            tell(name, &found);
        }
    }
    if arguments.json {
        say(&super::json(&all));
    }
    if !any {
        return Err(Trouble::record(format!(
            "{} holds no record of a task: there is nothing to verify",
            folder.path().display()
        )));
    }
    Ok(if agree { Exit::Done } else { Exit::NothingCorrect })
}

/// In words.
fn tell(name: &str, found: &Verification) {
    let name = plain(name);
    for difference in &found.differences {
        say(&format!("{name}  differs: {}", plain(difference)));
    }
    if found.differences.is_empty() {
        let Verification { events, texts, timings, .. } = found;
        say(&format!(
            "{name}  agrees: {events} events, {texts} texts, {timings} timings computed again from their samples"
        ));
    }
    for evidence in &found.evidence {
        say(&format!("{name}  evidence of its certificate: {evidence}"));
    }
}
