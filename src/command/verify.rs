//! `warpsmith verify`: does what a run says follow from what it holds?

use super::say;
use crate::{
    cli::VerifyArgs,
    exit::{Exit, Trouble},
    progress::plain,
    store::RunFolder,
    verify::Verification,
};

/// Looks at the record of every task, or of the one that is named.
pub(super) fn verify(arguments: &VerifyArgs) -> Result<Exit, Trouble> {
    let folder = RunFolder::open(&arguments.run)?;
    let names = match &arguments.task {
        Some(task) => vec![task.clone()],
        None => folder.tasks()?,
    };
    let mut agree = true;
    let mut all = vec![];
    for name in names.iter().filter(|name| arguments.task.is_some() || folder.has_record(name)) {
        // What cannot even be read is a difference of this task, and no reason not to look at the others.
        let found = folder.record(name).map_or_else(
            |why| Verification { differences: vec![why.to_string()], ..Verification::default() },
            |record| Verification::of(&record),
        );
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
