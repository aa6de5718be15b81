//! `warpsmith report`: one HTML file.

use super::say;
use crate::{
    cli::ReportArgs,
    exit::{Exit, Trouble},
    report::{self, ReportInput},
    store::RunFolder,
};
use agents::trajectory::Trajectory;
use kernelbench::Hash;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Writes the report and says where.
pub(super) fn report(arguments: &ReportArgs) -> Result<Exit, Trouble> {
    let folder = RunFolder::open(&arguments.run)?;
    let path = write(&folder, arguments.out.as_deref())?;
    say(&path.display().to_string());
    Ok(Exit::Done)
}

/// Writes the report of a run, by default into its folder.
pub(crate) fn write(folder: &RunFolder, out: Option<&Path>) -> Result<PathBuf, Trouble> {
    let record = folder.only_record()?;
    let story: Trajectory = record.events().collect();
    let fetch = |hash: &Hash| record.blobs.fetch(hash).ok();
    let facts = facts(folder)?;
    let page = report::html(&ReportInput { trajectory: &story, lines: &record.lines, fetch: &fetch, facts: &facts });
    let path = out.map_or_else(|| folder.path().join("report.html"), Path::to_owned);
    fs::write(&path, page).map_err(|e| Trouble::record(format!("{}: cannot write the report: {e}", path.display())))?;
    Ok(path)
}

/// What one needs to do it again.
fn facts(folder: &RunFolder) -> Result<Vec<(String, String)>, Trouble> {
    let header = folder.header()?;
    let mut facts = vec![
        ("warpsmith".to_owned(), header.warpsmith),
        ("began".to_owned(), header.began),
        ("task".to_owned(), header.task),
        ("policy".to_owned(), header.policy),
        ("model".to_owned(), header.model),
    ];
    facts.extend(header.compilers);
    Ok(facts)
}
