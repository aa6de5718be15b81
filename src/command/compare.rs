//! `warpsmith compare`: runs side by side, or candidates of runs

use super::{SIMULATED, json, on_threads, say};
use crate::{
    at::At,
    compare::{Comparison, Side, pair::Pair},
    config::Layers,
    exit::{Exit, Trouble},
    progress::{Screen, plain},
    store::RunFolder,
    wiring::{self, Kind},
};
use clap::Args;
use kernelbench::{Candidate, Fault, Suite, Task};
use std::path::{Path, PathBuf};

/// `compare`
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The runs' folders; the others are compared with the first. Candidates as RUN@NAME are compared by region, by their
    /// bindings, and in time.
    #[arg(required = true, num_args = 2.., value_name = "RUN[@NAME]")]
    pub runs: Vec<PathBuf>,
    /// Of candidates, what was measured when they were made: nothing is built or timed now.
    #[arg(long)]
    pub recorded: bool,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What `--help` shows below the options.
pub(crate) const EXAMPLES: &str = "\
Tasks are paired by name and content, and what chance alone does to such pairs is called no difference. Candidates of runs
are built now, and timed in pairs: the first stands where the reference does.

Examples:
  warpsmith compare runs/before runs/after
  warpsmith compare runs/cudaforge runs/self-refine runs/astra --json
  warpsmith compare W@c7 W@pipelined
  warpsmith compare W@c7 W@best --recorded                                # without building and timing";

/// Reads them and prints the comparison.
pub(super) fn compare(arguments: &CompareArgs, layers: &Layers) -> Result<Exit, Trouble> {
    let root = &layers.config.run.folder;
    let named = |path: &PathBuf| At::candidate_named(&path.to_string_lossy(), root);
    let found = arguments.runs.iter().map(named).collect::<Result<Vec<_>, Trouble>>()?;
    if found.iter().any(Option::is_some) {
        let mixed = || Trouble::usage("candidates are compared with candidates: write each as RUN@NAME");
        let all = found.into_iter().collect::<Option<Vec<At>>>().ok_or_else(mixed)?;
        return candidates(&all, arguments, layers);
    }
    let side = |path: &PathBuf| Ok(Side::of(&RunFolder::open(path)?, None)?);
    let mut sides = arguments.runs.iter().map(side).collect::<Result<Vec<_>, Trouble>>()?;
    tell_apart(&mut sides);
    let comparison = Comparison::of(&sides.iter().collect::<Vec<_>>());
    if arguments.json {
        say(&json(&comparison));
    } else {
        say(comparison.text().trim());
    }
    Ok(Exit::Done)
}

/// The others' candidates beside the first's.
fn candidates(all: &[At], arguments: &CompareArgs, layers: &Layers) -> Result<Exit, Trouble> {
    let (first, others) = all.split_first().ok_or_else(|| Trouble::usage("expected two candidates"))?;
    let mut pairs = others.iter().map(|other| Pair::of(first, other)).collect::<Result<Vec<_>, Trouble>>()?;
    if !arguments.recorded {
        let task = first.task()?;
        let timed = task.context().is_some();
        for (pair, other) in pairs.iter_mut().zip(others).filter(|_| timed) {
            let other = other.candidate()?;
            pair.times = Some(in_pairs((&task, first), &other, layers, !arguments.json)?);
        }
    }
    match &pairs[..] {
        [only] if arguments.json => say(&json(only)),
        all if arguments.json => say(&json(&all)),
        all => all.iter().for_each(|pair| say(pair.text().trim_end())),
    }
    let mut told: Vec<&Path> = vec![];
    for folder in all.iter().map(|at| &at.folder).filter(|_| !arguments.json) {
        if !told.contains(&folder.path()) && folder.header()?.simulated {
            say(&format!("{}  {SIMULATED}", plain(&folder.path().display().to_string())));
            told.push(folder.path());
        }
    }
    Ok(Exit::Done)
}

/// What comes of a candidate where another stands in the reference's place.
fn in_pairs(
    (task, first): (&Task, &At),
    other: &Candidate,
    layers: &Layers,
    shown: bool,
) -> Result<kernelbench::Evaluation, Trouble> {
    let task = task.clone().with_reference(&first.candidate()?.text());
    let simulated = first.folder.header()?.simulated;
    let workshop = wiring::workshop(Kind::of(&task, simulated), &layers.config, false, None)?;
    let plan = first.policy()?.timing;
    let screen = Screen::new(shown);
    crate::logging::start(&screen, None);
    screen.show("building, checking and timing in pairs");
    let suite = Suite::of_task(&task);
    let found = on_threads(async {
        let found: Result<_, Fault> = workshop.evaluate(&task, other, &suite, &plan).await;
        Ok(found?)
    });
    screen.close();
    found
}

/// Folders of one name get a number.
fn tell_apart(sides: &mut [Side]) {
    for at in 1..sides.len() {
        let same = sides[..at].iter().filter(|side| side.scores.run == sides[at].scores.run).count();
        if same > 0 {
            sides[at].name = format!("{} ({})", sides[at].scores.run, same + 1);
        }
    }
}
