//! The report of a run's folder: the whole page, the page of one of its tasks, one of its rounds.

use super::{ReportInput, batch, batch::BatchInput};
use crate::{
    exit::Trouble,
    scores::RunScores,
    store::{Record, RunFolder},
};
use agents::trajectory::Trajectory;
use kernelbench::Hash;
use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Writes the report of a run, by default into its folder, and says where.
///
/// # Errors
///
/// If the run cannot be read, or the file not written.
pub fn write(folder: &RunFolder, out: Option<&Path>) -> Result<PathBuf, Trouble> {
    let path = out.map_or_else(|| folder.path().join("report.html"), Path::to_owned);
    let cannot = |e: io::Error| Trouble::record(format!("{}: cannot write the report: {e}", path.display()));
    // Where a person names the place, a link is followed, and what is no file, such as a pipe, is written to as it is. What
    // lies in a run's folder may be anybody's.
    let named = out.and_then(|out| fs::canonicalize(out).ok());
    if named.as_ref().is_some_and(|path| !path.is_file()) {
        let mut file = BufWriter::new(fs::File::options().write(true).open(&path).map_err(cannot)?);
        page(folder, &mut file).and_then(|()| file.flush().map_err(cannot))?;
        return Ok(path);
    }
    let target = named.unwrap_or_else(|| path.clone());
    let beside = target.with_extension("html.part");
    let _ = fs::remove_file(&beside);
    let mut file = BufWriter::new(fs::File::create_new(&beside).map_err(cannot)?);
    let written = page(folder, &mut file).and_then(|()| file.flush().map_err(cannot));
    if let Err(why) = written {
        let _ = fs::remove_file(&beside);
        return Err(why);
    }
    fs::rename(&beside, &target).map_err(cannot)?;
    Ok(path)
}

/// Writes the page of a run: of its only task, or of all.
///
/// # Errors
///
/// If the run cannot be read, or nothing can be written.
pub fn page(folder: &RunFolder, out: &mut dyn Write) -> Result<(), Trouble> {
    let cannot = |e: io::Error| Trouble::record(format!("cannot write the report: {e}"));
    let list = folder.batch()?;
    if list.is_none() && folder.tasks()?.len() == 1 {
        return out.write_all(task(folder, &folder.only_task()?)?.as_bytes()).map_err(cannot);
    }
    let unreadable: Vec<_> =
        list.into_iter().flat_map(|list| list.unreadable).map(|file| (file.path, file.why)).collect();
    let (scores, kind, facts) = (RunScores::of(folder)?, folder.header()?.machine.kind, facts(folder)?);
    let input = BatchInput { scores: &scores, facts: &facts, unreadable: &unreadable, kind };
    let mut visit = |task: &str, write: &mut dyn FnMut(&ReportInput) -> io::Result<()>| {
        let read = folder.record(task).map_err(|e| io::Error::other(e.to_string()))?;
        of(&read, &facts, write)
    };
    batch::write(&input, &mut visit, out).map_err(cannot)
}

/// The page of one task of a run.
///
/// # Errors
///
/// If its record cannot be read.
pub fn task(folder: &RunFolder, task: &str) -> Result<String, Trouble> {
    Ok(of(&folder.record(task)?, &facts(folder)?, super::html))
}

/// What happened in one round of a task, as a part of a page; `None` where there is no such round.
///
/// # Errors
///
/// If its record cannot be read.
pub fn round(folder: &RunFolder, task: &str, number: u32) -> Result<Option<String>, Trouble> {
    Ok(of(&folder.record(task)?, &[], |input| super::round_part(input, number)))
}

/// The rounds of a run of one task as a picture; `None` where none has ended.
///
/// # Errors
///
/// If the run cannot be read or has several tasks.
pub fn picture(folder: &RunFolder) -> Result<Option<String>, Trouble> {
    Ok(of(&folder.only_record()?, &facts(folder)?, super::picture))
}

/// Hands a record to what makes a page of it.
fn of<T>(record: &Record, facts: &[(String, String)], page: impl FnOnce(&ReportInput) -> T) -> T {
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
