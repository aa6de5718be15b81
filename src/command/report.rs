//! `warpsmith report`: one HTML file.

use super::say;
use crate::{
    ablation::AblationFolder,
    cli::ReportArgs,
    exit::{Exit, Trouble},
    report::{self, ReportInput, batch::BatchInput},
    scores::RunScores,
    store::{self, Record, RunFolder},
};
use agents::trajectory::Trajectory;
use kernelbench::Hash;
use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Writes the report and says where.
pub(super) fn report(arguments: &ReportArgs) -> Result<Exit, Trouble> {
    if let Some(ablation) = AblationFolder::at(&arguments.run) {
        for run in store::runs(&ablation.path().join("runs"))? {
            say(&write(&RunFolder::open(&run)?, None)?.display().to_string());
        }
        return Ok(Exit::Done);
    }
    let folder = RunFolder::open(&arguments.run)?;
    let path = match &arguments.picture {
        Some(path) => picture(&folder, path)?,
        None => write(&folder, arguments.out.as_deref())?,
    };
    say(&path.display().to_string());
    if arguments.open {
        open(&path)?;
    }
    Ok(Exit::Done)
}

/// Draws the rounds of a run of one task.
fn picture(folder: &RunFolder, path: &Path) -> Result<PathBuf, Trouble> {
    let drawn = record(&folder.only_record()?, &facts(folder)?, report::picture);
    let drawn = drawn.ok_or_else(|| Trouble::usage("no round of this run has ended: there is nothing to draw"))?;
    fs::write(path, drawn).map_err(|e| Trouble::record(format!("{}: cannot write it: {e}", path.display())))?;
    Ok(path.to_owned())
}

/// Opens a file as the desktop does, and does not wait for that to end.
fn open(path: &Path) -> Result<(), Trouble> {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(opener);
    command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let why = |e: io::Error| format!("--open: {opener}: {e}; open {} in a browser", path.display());
    command.spawn().map(drop).map_err(|e| Trouble::machine(why(e)))
}

/// Writes the report of a run, by default into its folder.
pub(crate) fn write(folder: &RunFolder, out: Option<&Path>) -> Result<PathBuf, Trouble> {
    let path = out.map_or_else(|| folder.path().join("report.html"), Path::to_owned);
    let cannot = |e: io::Error| Trouble::record(format!("{}: cannot write the report: {e}", path.display()));
    let facts = facts(folder)?;
    let list = folder.batch()?;
    if list.is_none() && folder.tasks()?.len() == 1 {
        let page = record(&folder.only_record()?, &facts, report::html);
        fs::write(&path, page).map_err(cannot)?;
        return Ok(path);
    }
    let unreadable: Vec<_> =
        list.into_iter().flat_map(|list| list.unreadable).map(|file| (file.path, file.why)).collect();
    let (scores, kind) = (RunScores::of(folder)?, folder.header()?.machine.kind);
    let input = BatchInput { scores: &scores, facts: &facts, unreadable: &unreadable, kind };
    let mut visit = |task: &str, write: &mut dyn FnMut(&ReportInput) -> io::Result<()>| {
        let read = folder.record(task).map_err(|e| io::Error::other(e.to_string()))?;
        record(&read, &facts, write)
    };
    let beside = path.with_extension("html.part");
    let mut file = BufWriter::new(fs::File::create(&beside).map_err(cannot)?);
    let written = report::batch::write(&input, &mut visit, &mut file).and_then(|()| file.flush());
    written.and_then(|()| fs::rename(&beside, &path)).map_err(cannot)?;
    Ok(path)
}

/// Hands a record to what makes a page of it.
fn record<T>(record: &Record, facts: &[(String, String)], page: impl FnOnce(&ReportInput) -> T) -> T {
    let story: Trajectory = record.events().collect();
    let fetch = |hash: &Hash| record.blobs.fetch(hash).ok();
    page(&ReportInput { trajectory: &story, lines: &record.lines, fetch: &fetch, facts })
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
