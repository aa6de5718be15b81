//! `warpsmith policies`: the ways to work on a task.

use super::{say, verbatim};
use crate::{
    cli::NameArgs,
    exit::{Exit, Trouble},
    plan,
};
use agents::policy::Policy;

/// Lists them, or prints one as TOML.
pub(super) fn policies(arguments: &NameArgs) -> Result<Exit, Trouble> {
    match &arguments.name {
        Some(name) => print(name, arguments.json)?,
        None => list(arguments.json)?,
    }
    Ok(Exit::Done)
}

fn print(name: &str, json: bool) -> Result<(), Trouble> {
    let Some(text) = Policy::embedded(name) else {
        let known: Vec<_> = Policy::names().collect();
        return Err(Trouble::usage(format!("there is no policy {name:?}; there are {}", known.join(", "))));
    };
    if json {
        say(&super::json(&plan::parse(name, text)?));
    } else {
        verbatim(text.trim_end());
    }
    Ok(())
}

fn list(json: bool) -> Result<(), Trouble> {
    let read = |name| plan::parse(name, Policy::embedded(name).unwrap_or_default());
    let all = Policy::names().map(read).collect::<Result<Vec<_>, _>>()?;
    if json {
        say(&super::json(&all));
        return Ok(());
    }
    for policy in all {
        say(&format!("{:<18}  {}", policy.name, policy.summary));
    }
    Ok(())
}
