//! `warpsmith scores`: how good was a run?

use super::{json, say};
use crate::{
    batch::standing::Standing,
    exit::{Exit, Trouble},
    handover::Companion,
    scores::{RunScores, Sheet},
    store::RunFolder,
};
use clap::{Args, ValueEnum};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// `scores`
#[derive(Debug, Args)]
pub struct ScoresArgs {
    /// The run's folder.
    pub run: PathBuf,
    /// How to write it: `text` and `json` have all tables, `csv` and `parquet` a line a task.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Where to write it [default: standard output; parquet: scores.parquet in the run's folder].
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// `parquet`: build `warpsmith-metrics`, which writes it, if it is not installed: in a checkout, with cargo.
    #[arg(long)]
    pub build: bool,
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for people.
    Text,
    /// Comma-separated, a line a task.
    Csv,
    /// Columns in binary, a line a task.
    Parquet,
    /// Everything, for scripts.
    Json,
}

/// What `--help` shows below the options.
pub(crate) const EXAMPLES: &str = "\
Only what a certificate confirmed counts as correct. Every measure is printed with its formula.

Examples:
  warpsmith scores RUN
  warpsmith scores RUN --format csv > tasks.csv
  warpsmith scores RUN --format json | jq '.tables[0].groups[0].scores'";

/// Folds the run and writes its scores.
pub(super) fn scores(arguments: &ScoresArgs) -> Result<Exit, Trouble> {
    let folder = RunFolder::open(&arguments.run)?;
    has_times(&folder)?;
    let run = RunScores::of(&folder)?;
    let text = match arguments.format {
        Format::Text => run.text(),
        Format::Json => json(&run.json()),
        Format::Csv => run.sheet().csv().map_err(|e| Trouble::record(format!("the table cannot be written: {e}")))?,
        Format::Parquet => return parquet(&run.sheet(), arguments, &folder),
    };
    match &arguments.out {
        Some(path) => write(path, text.as_bytes())?,
        None => say(text.trim_end()),
    }
    Ok(Exit::Done)
}

/// Refuses a run in which nothing was timed.
pub(super) fn has_times(folder: &RunFolder) -> Result<(), Trouble> {
    for task in folder.tasks()? {
        let standing = Standing::read(folder, &task)?;
        if let Some(code) = standing.as_ref().and_then(|standing| standing.compiled.as_ref()) {
            let why = "compiled, not run, and there is no speed to score: `warpsmith show` has what its compiler says";
            return Err(Trouble::usage(format!("{task} is for {} and was {why}", code.arch)));
        }
        if let Some(counts) = standing.and_then(|standing| standing.counted) {
            let why = "its instructions were counted, and there is no speed to score: `warpsmith show` has them";
            return Err(Trouble::usage(format!("{task} ran on an emulated {}: {why}", counts.processor.full_name())));
        }
    }
    Ok(())
}

fn parquet(sheet: &Sheet, arguments: &ScoresArgs, folder: &RunFolder) -> Result<Exit, Trouble> {
    let path = arguments.out.clone().unwrap_or_else(|| folder.path().join("scores.parquet"));
    let columns = serde_json::to_vec(&sheet.values()).unwrap_or_default();
    Companion::metrics(arguments.build)?.write("columns", &path, &columns)?;
    say(&path.display().to_string());
    Ok(Exit::Done)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Trouble> {
    fs::write(path, bytes).map_err(|e| Trouble::record(format!("{}: cannot write the scores: {e}", path.display())))
}
