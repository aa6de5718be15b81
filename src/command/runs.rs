//! `warpsmith runs`: which runs are there?

use super::{json, say};
use crate::{
    ablation::AblationFolder,
    batch::standing::Standing,
    cli::RunsArgs,
    config::Layers,
    exit::{Exit, Trouble},
    progress::plain,
    store::{self, RunFolder},
};
use std::path::Path;

/// Prints a line for each run, the newest last.
pub(super) fn runs(arguments: &RunsArgs, layers: &Layers) -> Result<Exit, Trouble> {
    let root = arguments.folder.as_ref().unwrap_or(&layers.config.run.folder);
    let mut told = vec![];
    let paths = store::runs(root)?;
    if paths.is_empty() && !arguments.json {
        say(&format!("there are no runs in {}: `warpsmith run TASK` makes one there", root.display()));
    }
    for path in paths {
        // One that cannot be read does not hide the others.
        let came_to = came_to(&path).unwrap_or_else(|trouble| format!("cannot be read: {}", trouble.message));
        if arguments.json {
            told.push(serde_json::json!({ "run": path, "state": came_to }));
        } else {
            say(&format!("{}  {}", path.display(), plain(&came_to)));
        }
    }
    if arguments.json {
        say(&json(&told));
    }
    Ok(Exit::Done)
}

fn came_to(path: &Path) -> Result<String, Trouble> {
    if let Some(ablation) = AblationFolder::at(path) {
        return Ok(format!("ablation {}", ablation.asked()?.spec.name));
    }
    let folder = RunFolder::open(path)?;
    let header = folder.header()?;
    let names = folder.batch()?.map_or(folder.tasks()?, |list| list.tasks.into_iter().map(|t| t.name).collect());
    let standings: Vec<Standing> =
        names.iter().filter_map(|name| Standing::read(&folder, name).transpose()).collect::<Result<_, _>>()?;
    let ended = standings.iter().filter(|standing| standing.end.is_some()).count();
    let working = if folder.writer().is_some() { ", being worked on" } else { "" };
    Ok(match (names.as_slice(), standings.as_slice()) {
        ([task], [one]) if one.end.is_some() => format!("{task}, {}: {}", header.policy, one.came_to()),
        ([task], [one]) => format!("{task}, {}: {}, after {} rounds{working}", header.policy, one.doing, one.rounds),
        _ => format!("{}, {}: {ended} of {} tasks ended{working}", header.task, header.policy, names.len()),
    })
}
