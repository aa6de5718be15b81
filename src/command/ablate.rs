//! `warpsmith ablate`: variants of a run over the same tasks

use super::{batch, json, resume, say, verbatim};
use crate::{
    ablation::{AblationFolder, Asked, Planned, Spec, Table},
    cli::{BatchArgs, Cli, Command, HandArgs, ResumeArgs},
    compare::Side,
    config::Layers,
    exit::{Exit, Trouble},
    key::Environment,
    progress::{is_quiet, plain},
    scores::{RunScores, State},
    store::RunFolder,
};
use clap::{Args, Parser};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// `ablate`
#[derive(Debug, Args)]
pub struct AblateArgs {
    /// The variants: the name of an ablation that comes along, or a file.
    #[arg(required_unless_present_any = ["list", "show"])]
    pub spec: Option<String>,
    /// List the ablations that come along.
    #[arg(long)]
    pub list: bool,
    /// Print an ablation that comes along, to start one's own from.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["spec", "list"])]
    pub show: Option<String>,
    /// Another folder of tasks, or suite, than the file names.
    #[arg(long, value_name = "PATH|SUITE")]
    pub tasks: Option<String>,
    /// The folder to make [default: runs/TIME-NAME].
    #[arg(long, short, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// All variants get the first variant's first candidates, so that they differ only in what follows.
    #[arg(long)]
    pub share_seed_candidate: bool,
    /// Print the table as JSON.
    #[arg(long)]
    pub json: bool,
    /// After `--`: flags of `warpsmith batch` for every variant.
    #[arg(last = true, value_name = "BATCH FLAGS")]
    pub batch: Vec<String>,
}

/// What `--help` shows below the options.
pub(crate) const EXAMPLES: &str = "\
Variants run one after another over the same tasks and shapes. They share builds and the times of references; no reply
is shared unless it is asked for. `warpsmith resume DIR` goes on with an ablation, `warpsmith report DIR/runs/NAME`
writes the report of a variant.

Examples:
  warpsmith ablate --list
  warpsmith ablate --show cudaforge-table1 > mine.toml
  warpsmith ablate cudaforge-table1 -- --problems KernelBench --model openai:o3 --usd 50
  warpsmith ablate mine.toml --tasks examples/problems --share-seed-candidate -- --model mailbox:letters --exit-when-waiting";

/// Lists, or makes the folder and works on it.
pub(super) fn ablate(arguments: &AblateArgs, layers: &Layers, environment: &Environment) -> Result<Exit, Trouble> {
    if let Some(name) = &arguments.show {
        let known = || Spec::embedded().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        let none = || Trouble::usage(format!("no ablation {name:?} comes along; expected one of {}", known()));
        verbatim(Spec::text(name).ok_or_else(none)?.trim_end());
        return Ok(Exit::Done);
    }
    let Some(name) = arguments.spec.as_ref().filter(|_| !arguments.list) else {
        Spec::embedded().for_each(|(name, summary)| say(&format!("{name}\n    {summary}")));
        return Ok(Exit::Done);
    };
    let mut spec = Spec::named(name)?;
    if let Some(tasks) = &arguments.tasks {
        spec.tasks.clone_from(tasks);
    }
    spec.share_seed_candidate |= arguments.share_seed_candidate;
    let path = arguments.out.clone().unwrap_or_else(|| RunFolder::free_name(&layers.config.run.folder, &spec.name));
    let path = std::path::absolute(&path).unwrap_or(path);
    // Wrong flags are told before anything is made.
    let given = flags(&spec, &arguments.batch, &path)?;
    for planned in spec.runs().filter(|planned| planned.name == planned.variant.name) {
        let in_it = |trouble: Trouble| Trouble { message: format!("variant {}: {trouble}", planned.name), ..trouble };
        batch::answered(&given, settings(&spec, &planned, layers)?).map_err(in_it)?;
    }
    if let Some(first) = spec.runs().next() {
        batch::found(&given, settings(&spec, &first, layers)?)?;
    }
    let folder = AblationFolder::create(&path, spec, arguments.batch.clone())?;
    let (python, hosts) = (given.problem.python.clone(), given.hosts.clone());
    let now = ResumeArgs { python, hosts, json: arguments.json, ..ResumeArgs::default() };
    work(&folder, &now, layers, environment)
}

/// Makes the runs that are not there and goes on with those that have not ended, then compares: with the flags that all got
/// when the ablation began, under those given now.
pub(super) fn work(
    folder: &AblationFolder,
    now: &ResumeArgs,
    layers: &Layers,
    environment: &Environment,
) -> Result<Exit, Trouble> {
    if now.rounds.is_some() {
        return Err(Trouble::usage(
            "--rounds is what variants differ in: give it to one of them, `warpsmith resume DIR/runs/NAME --rounds N`",
        ));
    }
    let asked = folder.asked()?;
    let _held = folder.lock()?;
    let work = Work { folder, asked: &asked, now, layers, environment };
    let mut exit = Exit::Done;
    for (at, planned) in asked.spec.runs().enumerate() {
        match work.run(&planned) {
            Ok(Exit::Done | Exit::NothingCorrect) => {}
            Ok(waiting) => {
                exit = waiting;
                // Whose first candidates are to be shared goes first.
                if at == 0 && asked.spec.share_seed_candidate {
                    break;
                }
            }
            Err(trouble) => {
                let path = folder.path().display();
                let message =
                    format!("variant {}: {trouble}\nto go on with all: warpsmith resume {path}", planned.name);
                return Err(Trouble { exit: trouble.exit, message });
            }
        }
    }
    compare(folder, &asked.spec, now.json)?;
    Ok(exit)
}

struct Work<'a> {
    folder: &'a AblationFolder,
    asked: &'a Asked,
    now: &'a ResumeArgs,
    layers: &'a Layers,
    environment: &'a Environment,
}

/// Says what goes on, unless only what came of it is wanted.
fn happens(line: &str) {
    if !is_quiet() {
        say(line);
    }
}

impl Work<'_> {
    fn run(&self, planned: &Planned<'_>) -> Result<Exit, Trouble> {
        let (path, now) = (self.folder.run(&planned.name), self.now);
        let given = flags(&self.asked.spec, &self.asked.arguments, &path)?;
        let model = now.model.over(&given.model);
        let (width, limits) = (now.width.over(&given.width), now.limits.over(&given.limits));
        // An ablation's folder may come from elsewhere, and does not say which programs are started, or where.
        let (hosts, python) = (now.hosts.clone(), now.python.clone());
        if !path.join("run.toml").exists() {
            if now.without_device {
                happens(&format!("\nvariant {} has not begun, which takes a device", planned.name));
                return Ok(Exit::Waiting);
            }
            happens(&format!("\nvariant {} of {}", planned.name, plain(&self.asked.spec.name)));
            let mut flags = BatchArgs { model, width, limits, hosts, json: now.json || given.json, ..given };
            flags.problem.python = python;
            return batch::batch(&flags, self.settings(planned)?, self.environment);
        }
        if ended(&path)? {
            return Ok(Exit::Done);
        }
        happens(&format!("\nvariant {} goes on", planned.name));
        let (without_device, json) = (now.without_device, now.json || given.json);
        resume::resume(
            &ResumeArgs {
                run: path,
                without_device,
                model,
                width,
                limits,
                hosts,
                rounds: None,
                python,
                hand: HandArgs::default(),
                json,
            },
            self.layers,
            self.environment,
        )
    }

    /// The settings in force here, under those of the variant.
    fn settings(&self, planned: &Planned<'_>) -> Result<Layers, Trouble> {
        let spec = &self.asked.spec;
        let mut layers = settings(spec, planned, self.layers)?;
        let first = spec.runs().next().map(|first| first.name).unwrap_or_default();
        if spec.share_seed_candidate && planned.name != first {
            let run = self.folder.run(&first).display().to_string();
            layers.flag("run.first_candidates", Some(run), |config, run| config.run.first_candidates = run);
        }
        Ok(layers)
    }
}

/// The settings that a variant's file lays over those in force here.
fn settings(spec: &Spec, planned: &Planned<'_>, layers: &Layers) -> Result<Layers, Trouble> {
    let mut layers = layers.clone();
    layers.overlay(&format!("variant {}", planned.name), &spec.settings_of(planned.variant))?;
    Ok(layers)
}

/// The flags of `batch` for a variant whose run is kept here.
fn flags(spec: &Spec, given: &[String], out: &Path) -> Result<BatchArgs, Trouble> {
    let out = out.display().to_string();
    let line = ["warpsmith", "batch", &spec.tasks, "--out", &out].map(str::to_owned);
    let told = Cli::try_parse_from(line.into_iter().chain(given.iter().cloned()));
    match told.map_err(|e| Trouble::usage(format!("the flags after `--` are for `warpsmith batch`: {e}")))?.command {
        Command::Batch(flags) if flags.way.policy.is_some() || flags.way.rounds.is_some() => Err(Trouble::usage(
            "--policy and --rounds are what variants differ in: they belong into the file of variants",
        )),
        Command::Batch(flags) => Ok(*flags),
        _ => Err(Trouble::usage("the flags after `--` are for `warpsmith batch`")),
    }
}

fn ended(run: &Path) -> Result<bool, Trouble> {
    let scores = RunScores::of(&RunFolder::open(run)?)?;
    Ok(scores.tasks.iter().all(|task| task.state == State::Ended))
}

/// Compares the runs that have begun, prints the table and keeps it.
fn compare(folder: &AblationFolder, spec: &Spec, in_json: bool) -> Result<(), Trouble> {
    let begun = spec.runs().filter(|planned| folder.run(&planned.name).join("run.toml").exists());
    let side = |planned: Planned<'_>| {
        let run = RunFolder::open(&folder.run(&planned.name))?;
        Ok((planned.variant.name.clone(), Side::of(&run, Some(&planned.name))?))
    };
    let runs = begun.map(side).collect::<Result<Vec<_>, Trouble>>()?;
    let Some(table) = Table::of(spec, &runs) else { return Ok(()) };
    keep(&folder.path().join("comparison.txt"), &table.in_full())?;
    keep(&folder.path().join("comparison.json"), &json(&table))?;
    if in_json {
        say(&json(&table));
    } else {
        say(&format!("\n{}\ntask by task in {}", table.text(), folder.path().join("comparison.txt").display()));
    }
    Ok(())
}

fn keep(path: &Path, text: &str) -> Result<(), Trouble> {
    fs::write(path, text).map_err(|e| Trouble::record(format!("{}: cannot write it: {e}", path.display())))
}
