//! Which batches were begun, and what is asked in them?
//!
//! A file of JSON lines beside the record, appended and flushed before what it says is needed.

use crate::llm::AskError;
use kernelbench::Hash;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Entry {
    /// A file of questions was sent.
    Sent { endpoint: String, file: String, asks: BTreeMap<String, Hash> },
    /// A batch was made of it.
    Began { file: String, batch: String },
}

/// A file of questions.
struct Sent {
    file: String,
    asks: BTreeMap<String, Hash>,
    batch: Option<String>,
}

/// The batches of a run, of this process and of earlier ones.
pub(super) struct Journal {
    path: PathBuf,
    endpoint: String,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    sent: Vec<Sent>,
    /// So many of them, the first ones, are of earlier processes.
    earlier: usize,
    /// Questions that have been referred to them already.
    taken: HashSet<String>,
}

impl Journal {
    /// Reads it, if there is one. Batches of another endpoint are none of ours.
    pub(super) fn open(path: &Path, endpoint: &str) -> Result<Self, AskError> {
        let mut text = String::new();
        match File::open(path).and_then(|mut file| file.read_to_string(&mut text)) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(cannot(path, "read", &e)),
            _ => {}
        }
        let mut known = Known::default();
        for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            match serde_json::from_str(line) {
                Ok(entry) => known.add(entry, endpoint),
                Err(e) => {
                    tracing::warn!("{}:{}: is no line of this file, and is passed over: {e}", path.display(), n + 1);
                }
            }
        }
        known.earlier = known.sent.len();
        Ok(Self { path: path.to_owned(), endpoint: endpoint.to_owned(), known: Mutex::new(known) })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file in which an earlier process asked just this; said once.
    pub(super) fn take(&self, custom_id: &str, hash: &Hash) -> Option<String> {
        let mut known = self.lock();
        let earlier = &known.sent[..known.earlier];
        let sent = earlier.iter().rev().find(|sent| sent.asks.contains_key(custom_id))?;
        let file = (sent.asks.get(custom_id) == Some(hash)).then(|| sent.file.clone())?;
        known.taken.insert(custom_id.to_owned()).then_some(file)
    }

    /// Whether this was asked in this file.
    pub(super) fn asked(&self, file: &str, custom_id: &str) -> bool {
        self.lock().sent.iter().any(|sent| sent.file == file && sent.asks.contains_key(custom_id))
    }

    /// The batch that was made of this file, if one is known.
    pub(super) fn batch(&self, file: &str) -> Option<String> {
        self.lock().sent.iter().find(|sent| sent.file == file)?.batch.clone()
    }

    /// Notes that a file of questions was sent.
    pub(super) fn sent(&self, file: &str, asks: BTreeMap<String, Hash>) -> Result<(), AskError> {
        self.note(Entry::Sent { endpoint: self.endpoint.clone(), file: file.to_owned(), asks })
    }

    /// Notes that a batch was made of it.
    pub(super) fn began(&self, file: &str, batch: &str) -> Result<(), AskError> {
        self.note(Entry::Began { file: file.to_owned(), batch: batch.to_owned() })
    }

    fn note(&self, entry: Entry) -> Result<(), AskError> {
        let mut known = self.lock();
        append(&self.path, &entry).map_err(|e| cannot(&self.path, "write", &e))?;
        known.add(entry, &self.endpoint);
        Ok(())
    }
}

impl Known {
    fn add(&mut self, entry: Entry, here: &str) {
        match entry {
            Entry::Sent { endpoint, file, asks } if endpoint == here => {
                self.sent.push(Sent { file, asks, batch: None });
            }
            Entry::Sent { .. } => {}
            Entry::Began { file, batch } => {
                let of_it = self.sent.iter_mut().filter(|sent| sent.file == file);
                of_it.for_each(|sent| sent.batch = Some(batch.clone()));
            }
        }
    }
}

/// A line of its own, also where a killed process left half of one.
fn append(path: &Path, entry: &Entry) -> std::io::Result<()> {
    let torn = std::fs::read(path).is_ok_and(|bytes| bytes.last().is_some_and(|last| *last != b'\n'));
    let line = format!("{}{}\n", if torn { "\n" } else { "" }, serde_json::to_string(entry)?);
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

fn cannot(path: &Path, what: &str, error: &std::io::Error) -> AskError {
    AskError::Refused(format!("cannot {what} {}, which remembers the batches: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(text: &str) -> BTreeMap<String, Hash> {
        [("a".to_owned(), Hash::of(text.as_bytes()))].into()
    }

    #[test]
    fn a_question_is_found_in_the_last_file_that_asked_just_this_at_this_endpoint_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let journal = Journal::open(&path, "here").unwrap();
        journal.sent("f1", asks("one")).unwrap();
        journal.sent("f2", asks("one")).unwrap();
        journal.began("f2", "b2").unwrap();
        assert_eq!(journal.take("a", &Hash::of(b"one")), None, "this process asked it itself");
        let later = Journal::open(&path, "here").unwrap();
        assert_eq!(later.take("a", &Hash::of(b"another")), None);
        assert_eq!(later.take("a", &Hash::of(b"one")), Some("f2".into()));
        assert_eq!(later.take("a", &Hash::of(b"one")), None, "a second time it is asked anew");
        assert_eq!((later.batch("f1"), later.batch("f2")), (None, Some("b2".into())));
        assert_eq!(Journal::open(&path, "elsewhere").unwrap().take("a", &Hash::of(b"one")), None);
    }

    #[test]
    fn half_a_line_costs_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        Journal::open(&path, "here").unwrap().sent("f1", asks("one")).unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"began\":{{\"fi")).unwrap();
        Journal::open(&path, "here").unwrap().began("f1", "b1").unwrap();
        let journal = Journal::open(&path, "here").unwrap();
        assert_eq!((journal.take("a", &Hash::of(b"one")), journal.batch("f1")), (Some("f1".into()), Some("b1".into())));
    }
}
