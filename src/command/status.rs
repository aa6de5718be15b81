//! `warpsmith status`: how far has a run come?

use super::say;
use crate::{
    ablation::AblationFolder,
    batch::{
        limits::Used,
        standing::Standing,
        watching::{describe, spent},
    },
    cli::StatusArgs,
    exit::{Exit, Trouble},
    hosts::Roll,
    plan,
    progress::{self, plain},
    quantity,
    store::{self, RunFolder},
};

/// Prints a line for each task that has begun, and one in all. Reading needs no lock.
pub(super) fn status(arguments: &StatusArgs) -> Result<Exit, Trouble> {
    if let Some(ablation) = AblationFolder::at(&arguments.run) {
        return of_ablation(&ablation, arguments.json);
    }
    let folder = RunFolder::open(&arguments.run)?;
    let (names, rounds) = match folder.batch()? {
        Some(list) => {
            let policy = plan::parse("the batch's policy", &folder.blobs().fetch(&list.policy)?)?;
            (list.tasks.into_iter().map(|listed| listed.name).collect(), policy.rounds)
        }
        None => (folder.tasks()?, folder.header()?.configuration.run.rounds),
    };
    let mut standings: Vec<(String, Standing)> = vec![];
    for name in &names {
        standings.extend(Standing::read(&folder, name)?.map(|standing| (name.clone(), standing)));
    }
    let total = total(&standings);
    if arguments.json {
        say(&json(&standings, names.len(), &total, &folder).to_string());
        return Ok(Exit::Done);
    }
    for (name, standing) in &standings {
        say(&line(name, standing, rounds));
    }
    let count = |is: fn(&Standing) -> bool| standings.iter().filter(|(_, standing)| is(standing)).count();
    let ended = count(|standing| standing.end.is_some());
    let correct = count(|standing| standing.certified.is_some() || standing.counted.is_some());
    let writer = match folder.writer() {
        Some(who) => format!("; {who} works on it"),
        None if ended < names.len() || names.is_empty() => {
            format!("; nobody works on it, to go on: warpsmith resume {}", folder.path().display())
        }
        None => String::new(),
    };
    say(&format!(
        "{ended} of {} finished, {}, {} faster, {} under way or waiting; {}, devices held for {}{writer}",
        names.len(),
        progress::correct(correct, count(|standing| standing.only_as_drawn)),
        count(Standing::is_faster),
        standings.len() - ended,
        spent(&total),
        quantity::wait(total.leased_us / 1000),
    ));
    if let Some(roll) = Roll::of(folder.path()) {
        roll.lines().iter().for_each(|line| say(line));
    }
    Ok(Exit::Done)
}

/// The same for each variant that has begun.
fn of_ablation(ablation: &AblationFolder, json: bool) -> Result<Exit, Trouble> {
    for run in store::runs(&ablation.path().join("runs"))? {
        if !json {
            say(&format!("variant {}", plain(&run.file_name().unwrap_or_default().to_string_lossy())));
        }
        status(&StatusArgs { run, json })?;
    }
    Ok(Exit::Done)
}

fn total(standings: &[(String, Standing)]) -> Used {
    let mut total = Used::default();
    for (_, standing) in standings {
        total.add(&standing.used);
    }
    total
}

fn line(name: &str, standing: &Standing, rounds: u32) -> String {
    let name = plain(name);
    match (&standing.end, &standing.broke_off) {
        (Some(end), _) => {
            let limit = end.limit().map(|limit| format!(" at the limit {limit}")).unwrap_or_default();
            format!("{name}  ended{limit} after {} rounds: {}", standing.rounds, standing.came_to())
        }
        (None, Some(why)) => format!("{name}  broke off after {} rounds: {}", standing.rounds, plain(why)),
        _ if rounds > 0 => describe(&name, standing, standing.extended_to.unwrap_or(rounds)),
        _ => format!("{name}  after {} rounds: {}", standing.rounds, standing.doing),
    }
}

fn json(standings: &[(String, Standing)], all: usize, total: &Used, folder: &RunFolder) -> serde_json::Value {
    let task = |(name, standing): &(String, Standing)| {
        serde_json::json!({
            "task": name, "rounds": standing.rounds, "doing": standing.doing, "best": standing.best,
            "certified": standing.certified.map(|speedup| speedup.ratio), "end": standing.end,
            "broke_off": standing.broke_off, "trouble": standing.trouble, "usd": standing.used.usd, "tokens": standing.used.tokens,
            "leased_us": standing.used.leased_us, "device": standing.device,
        })
    };
    serde_json::json!({
        "tasks": all, "begun": standings.iter().map(task).collect::<Vec<_>>(), "usd": total.usd,
        "unpriced": total.unpriced, "tokens": total.tokens, "leased_us": total.leased_us,
        "writer": folder.writer(), "hosts": Roll::of(folder.path()),
    })
}
