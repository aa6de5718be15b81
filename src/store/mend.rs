//! What of a record is whole, where texts that it names are damaged?
//!
//! A run goes on from its last event before one that names a text which is gone, empty or changed. What stood behind that is
//! set aside, not thrown away: answers in it that were paid for are given again where the same is asked.

use super::{Blobs, Record, StoreError, blobs::sync};
use agents::event::Event;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// What came of looking at a record's texts.
#[derive(Debug, Default)]
pub struct Mended {
    /// What stands in events that were set aside, now or at an earlier mending, in order.
    pub aside: Vec<Event>,
    /// For the user: what was found, and what is asked again.
    pub words: Vec<String>,
}

/// Cuts a record before its first event that names a damaged text; what it holds from there on lies beside it.
pub(super) fn mend(path: &Path, blobs: &Blobs) -> Result<Mended, StoreError> {
    let mut mended = Mended::default();
    for copy in copies(path).filter(|copy| copy.is_file()) {
        mended.aside.extend(Record::read(&copy, blobs.clone())?.events());
    }
    if fs::symlink_metadata(path).is_err() {
        return Ok(mended);
    }
    let record = Record::read(path, blobs.clone())?;
    let is_damaged = |event: &Event| event.texts().into_iter().any(|text| blobs.fetch(text).is_err());
    let Some(cut) = record.lines.iter().position(|line| is_damaged(&line.event)) else { return Ok(mended) };
    let copy = copies(path).find(|copy| fs::symlink_metadata(copy).is_err()).unwrap_or_default();
    fs::copy(path, &copy).map_err(|e| StoreError::system("set a copy of the record aside", &copy, e))?;
    sync(&copy)?;
    let length = if cut == 0 { 0 } else { record.ends[cut - 1] };
    let shortened = fs::File::options().write(true).open(path).and_then(|file| file.set_len(length));
    shortened.map_err(|e| StoreError::system("cut it before what is damaged", path, e))?;
    sync(path)?;
    mended.words = words(path, &copy, &record, cut);
    mended.aside.extend(record.lines.into_iter().skip(cut).map(|line| line.event));
    Ok(mended)
}

/// Where what is damaged is set aside, the first time and the next ones.
fn copies(path: &Path) -> impl Iterator<Item = PathBuf> {
    (1..1000).map(|n| path.with_extension(format!("damaged-{n}.jsonl")))
}

fn words(path: &Path, copy: &Path, record: &Record, cut: usize) -> Vec<String> {
    let lost = || record.lines.iter().skip(cut).map(|line| &line.event);
    let texts: BTreeSet<_> = lost().flat_map(Event::texts).filter(|text| record.blobs.fetch(text).is_err()).collect();
    let mut words = vec![format!(
        "{}: {} texts that it names are missing, empty or changed; going on after event {} of {}, the rest is kept as {}",
        path.display(),
        texts.len(),
        cut,
        record.lines.len(),
        copy.display()
    )];
    let whole = |event: &&Event| matches!(event, Event::Answered { reply, .. } if record.blobs.fetch(reply).is_ok());
    let answers: Vec<_> = lost()
        .filter_map(|event| match event {
            Event::Answered { call, reply, .. } if record.blobs.fetch(reply).is_err() => Some(call.to_string()),
            _ => None,
        })
        .collect();
    if !answers.is_empty() {
        words.push(format!("asked again, for their replies are lost: {}", answers.join(", ")));
    }
    let kept = lost().filter(whole).count();
    if kept > 0 {
        words.push(format!("{kept} later replies are whole: each is asked again only if its question is another now"));
    }
    words
}
