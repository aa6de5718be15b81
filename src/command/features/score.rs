//! `warpsmith features score`: how many features does a model bring in at its first try?

use super::verify::{chosen, elsewhere};
use crate::{
    cli::FeaturesScoreArgs,
    command::{json, on_threads, prompts, say},
    config::Layers,
    exit::{Exit, Trouble},
    key::Environment,
    plan,
    proving::{Asking, Proving, Scored, compiled, stand_in},
    wiring::{self, Answering},
};
use kernelbench::{
    Workshop, cuda,
    feature::{Column, Features, score::Bucket},
};
use metrics::Arch;
use serde_json::json;
use std::{collections::BTreeMap, fs};

/// Asks the model once for each cell, and says what came of it.
pub(super) fn score(
    arguments: &FeaturesScoreArgs,
    features: &Features,
    mut layers: Layers,
    environment: &Environment,
) -> Result<Exit, Trouble> {
    arguments.model.apply(&mut layers);
    let (config, out) = (&layers.config, &arguments.out);
    let column = features.column(&arguments.arch).map_err(Trouble::usage)?;
    let cells = chosen(column, &arguments.cell)?;
    if !column.archs.iter().any(|arch| matches!(arch, Arch::Cuda { .. })) {
        let title = &column.title;
        return Err(Trouble::usage(format!(
            "{title}: a reply is scored by counters, and no kernel of this column is run"
        )));
    }
    if config.model.spec.is_empty() {
        return Err(Trouble::usage("nothing says what answers: name a model with --model openai:NAME"));
    }
    fs::create_dir_all(out).map_err(|e| Trouble::record(format!("{}: {e}", out.display())))?;
    let spec = plan::spec(&config.model.spec)?;
    let run = format!("features-{}", column.name);
    let exit_when_waiting = arguments.model.exit_when_waiting;
    let llm = Answering { config, environment, exit_when_waiting, run, folder: out }.port(&spec)?;
    let words = prompts::library(config)?;
    let why = elsewhere(column, config);
    let workshop =
        why.is_none().then(|| wiring::cuda_reading(config, Some(super::verify::counters(column)))).transpose()?;
    let machine = workshop.as_ref().map_or_else(|| stand_in(column), |workshop| Ok(workshop.machine().clone()))?;
    let asking = Asking { llm, prompts: &words, machine, column, out };
    if let Some(why) = why.filter(|_| !arguments.json) {
        if cuda::find_nvcc().is_none() {
            return Err(Trouble::machine(format!("{why}; and there is no nvcc, so nothing can be said of a reply")));
        }
        say(&format!("{why}: of each reply it is only said whether it compiles"));
    }
    let options = wiring::cuda_options(config)?;
    let all = on_threads(async {
        let mut all = vec![];
        for cell in cells {
            let reply = asking.reply(cell).await?;
            all.push(match &workshop {
                Some(workshop) => Proving { workshop, options: &options, column, out }.score(cell, &reply).await?,
                None => compiled(cell, column, &reply, out, config)?,
            });
        }
        Ok(all)
    })?;
    tell(arguments, column, &all);
    Ok(Exit::Done)
}

fn tell(arguments: &FeaturesScoreArgs, column: &Column, all: &[Scored]) {
    let mut buckets: BTreeMap<Bucket, usize> = BTreeMap::new();
    for scored in all {
        *buckets.entry(scored.bucket).or_default() += 1;
    }
    let passed = buckets.get(&Bucket::Passed).copied().unwrap_or(0);
    if arguments.json {
        let counts: BTreeMap<&str, usize> = buckets.iter().map(|(bucket, count)| (bucket.name(), *count)).collect();
        say(&json(&json!({"arch": column.name, "cells": all, "buckets": counts, "passed": passed, "of": all.len()})));
        return;
    }
    for scored in all {
        say(&scored.line());
    }
    let counts: Vec<String> = buckets.iter().map(|(bucket, count)| format!("{count} {}", bucket.name())).collect();
    say(&format!("Pass@1 on {}: {passed} of {} ({})", column.title, all.len(), counts.join(", ")));
}
