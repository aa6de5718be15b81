//! `warpsmith show`: what happened, in the terminal.

use super::say;
use crate::{
    cli::ShowArgs,
    exit::{Exit, Trouble},
    show,
    store::RunFolder,
};
use agents::trajectory::Trajectory;
use kernelbench::Hash;

/// Prints the rounds, one round in full, or a difference; with `--json` the events.
pub(super) fn show(arguments: &ShowArgs) -> Result<Exit, Trouble> {
    let folder = RunFolder::open(&arguments.run)?;
    let record = match &arguments.task {
        Some(task) => folder.record(task)?,
        None => folder.only_record()?,
    };
    if arguments.json {
        say(&super::json(&record.lines));
        return Ok(Exit::Done);
    }
    let story: Trajectory = record.events().collect();
    let fetch = |hash: &Hash| record.blobs.fetch(hash).ok();
    let text = match (&arguments.diff, arguments.round) {
        _ if arguments.format.is_some() => show::tuples(&story, &fetch),
        (Some(names), _) => show::difference(&story, &fetch, &names[0], &names[1]).map_err(Trouble::usage)?,
        (None, Some(round)) => show::round(&story, &fetch, round).map_err(Trouble::usage)?,
        (None, None) => show::rounds(&story),
    };
    say(text.trim_end());
    Ok(Exit::Done)
}
