//! `warpsmith show`: what happened, in the terminal.

use super::{json, say};
use crate::{
    at::At,
    batch::standing::Standing,
    cli::ShowArgs,
    exit::{Exit, Trouble},
    progress::plain,
    show,
    store::{Record, RunFolder},
};
use agents::trajectory::Trajectory;
use kernelbench::Hash;
use std::{
    io::{IsTerminal, Write},
    path::Path,
};

/// What a run's candidate consists of, where it was made and what came of it.
fn one(at: &At, in_json: bool) -> Result<Exit, Trouble> {
    let (candidate, story) = (at.candidate()?, &at.story);
    let (checkpoint, id) = (at.checkpoint(), candidate.id());
    let evaluation = story.evaluation(&id);
    if in_json {
        let told = serde_json::json!({
            "candidate": id, "bindings": candidate.bindings(), "parts": candidate.parts(), "checkpoint": checkpoint,
            "evaluation": evaluation,
        });
        say(&json(&told));
        return Ok(Exit::Done);
    }
    let mut lines = vec![format!("{}: candidate {}", at.label(), id.short())];
    if let Some(checkpoint) = &checkpoint {
        let what = checkpoint.transformation.as_deref().unwrap_or("initial context");
        lines.push(format!("checkpoint {} ({}): {what}", checkpoint.name, checkpoint.id.short()));
    }
    lines.extend(candidate.bindings_in_words().map(|words| format!("bindings   {words}")));
    lines.extend(evaluation.map(|evaluation| format!("evaluation {}", crate::progress::evaluated(evaluation))));
    for part in candidate.parts() {
        lines.push(format!("\n{} {}", kernelbench::region::MARKER, part.region));
        lines.push(part.text.trim_end().to_owned());
    }
    say(&show::plain(&lines.join("\n")));
    Ok(Exit::Done)
}

/// Prints the rounds, one round in full, a source or a difference; of a run of many tasks these; with `--json` the events.
pub(super) fn show(arguments: &ShowArgs, root: &Path) -> Result<Exit, Trouble> {
    if let Some(at) = At::candidate_named(&arguments.run.to_string_lossy(), root)? {
        if arguments.round.is_some() || arguments.task.is_some() || asks_for_one(arguments) {
            let run = arguments.run.display();
            return Err(Trouble::usage(format!(
                "{run} is one candidate: a round, --task, --diff, --source and --format are of runs"
            )));
        }
        return one(&at, arguments.json);
    }
    let folder = RunFolder::open(&arguments.run)?;
    let record = match &arguments.task {
        Some(task) => folder.record(task)?,
        None if is_batch(&folder)? && arguments.round.is_none() && !asks_for_one(arguments) => {
            return tasks(&folder, arguments.json);
        }
        None => folder.only_record()?,
    };
    let story: Trajectory = record.events().collect();
    if asks_for_text(arguments) {
        return text(arguments, &story, &record);
    }
    if arguments.json {
        say(&json(&record.lines));
        return Ok(Exit::Done);
    }
    let fetch = |hash: &Hash| record.blobs.fetch(hash).ok();
    let text = match arguments.round {
        _ if arguments.format.is_some() => show::tuples(&story, &fetch),
        Some(round) => show::round(&story, &fetch, round).map_err(Trouble::usage)?,
        None => show::rounds(&story),
    };
    say(text.trim_end());
    Ok(Exit::Done)
}

fn is_batch(folder: &RunFolder) -> Result<bool, Trouble> {
    Ok(folder.batch()?.is_some_and(|list| list.tasks.len() > 1))
}

fn asks_for_one(arguments: &ShowArgs) -> bool {
    asks_for_text(arguments) || arguments.format.is_some()
}

fn asks_for_text(arguments: &ShowArgs) -> bool {
    arguments.source.is_some() || arguments.diff.is_some()
}

/// A source or a difference, byte for byte where a program reads it; on a terminal it may not steer that.
fn text(arguments: &ShowArgs, story: &Trajectory, record: &Record) -> Result<Exit, Trouble> {
    let fetch = |hash: &Hash| record.blobs.fetch(hash).ok();
    let (key, text) = match (&arguments.source, &arguments.diff) {
        (Some(name), _) => ("source", show::whole_source(story, &fetch, name)),
        (None, Some(names)) => ("diff", show::difference(story, &fetch, &names[0], &names[1])),
        (None, None) => return Ok(Exit::Done),
    };
    let text = text.map_err(Trouble::usage)?;
    if arguments.json {
        say(&json(&serde_json::json!({ key: text })));
        return Ok(Exit::Done);
    }
    let mut out = std::io::stdout().lock();
    let text = if out.is_terminal() { show::plain(&text) } else { text };
    // A reader that went away is no reason to fail.
    let _ = out.write_all(text.as_bytes());
    Ok(Exit::Done)
}

/// The tasks of a batch, and what each came to.
fn tasks(folder: &RunFolder, in_json: bool) -> Result<Exit, Trouble> {
    let mut told = vec![];
    for listed in folder.batch()?.into_iter().flat_map(|list| list.tasks) {
        let standing = Standing::read(folder, &listed.name)?;
        let (rounds, state) = standing.as_ref().map_or((0, "not begun".to_owned()), |s| (s.rounds, state(s)));
        if in_json {
            told.push(
                serde_json::json!({ "task": listed.name, "path": listed.path, "rounds": rounds, "state": state }),
            );
        } else {
            say(&format!("{}  {rounds} rounds: {state}", plain(&listed.name)));
        }
    }
    if in_json {
        say(&json(&told));
    }
    Ok(Exit::Done)
}

fn state(standing: &Standing) -> String {
    match (&standing.end, &standing.broke_off) {
        (Some(_), _) => standing.came_to(),
        (None, Some(why)) => format!("broke off: {}", plain(why)),
        (None, None) => standing.doing.to_owned(),
    }
}
