//! `warpsmith compare`: runs side by side

use super::{json, say};
use crate::{
    compare::{Comparison, Side},
    exit::{Exit, Trouble},
    store::RunFolder,
};
use clap::Args;
use std::path::PathBuf;

/// `compare`
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The runs' folders; the others are compared with the first.
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What `--help` shows below the options.
pub(crate) const EXAMPLES: &str = "\
Tasks are paired by name and content, and what chance alone does to such pairs is called no difference.

Examples:
  warpsmith compare runs/before runs/after
  warpsmith compare runs/cudaforge runs/self-refine runs/astra --json";

/// Reads them and prints the comparison.
pub(super) fn compare(arguments: &CompareArgs) -> Result<Exit, Trouble> {
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

/// Folders of one name get a number.
fn tell_apart(sides: &mut [Side]) {
    for at in 1..sides.len() {
        let same = sides[..at].iter().filter(|side| side.scores.run == sides[at].scores.run).count();
        if same > 0 {
            sides[at].name = format!("{} ({})", sides[at].scores.run, same + 1);
        }
    }
}
