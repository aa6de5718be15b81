//! What was found out about kernels, now or before an interruption?
//!
//! A file of JSON lines in a folder beside the table. A note is of a kernel for one task as it stands, on one machine: where
//! either has changed, it is not heard.

use super::pool::{Entry, Pool};
use crate::{exit::Trouble, quantity};
use kernelbench::Hash;
use metrics::Machine;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
};

/// The file of notes.
const NOTES: &str = "notes.jsonl";
/// The most that is read of it, in bytes.
const LARGEST: u64 = 1 << 30;

/// What was found out of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Found {
    /// It is wrong, in words.
    Failed(String),
    /// It is correct, and this fast.
    Timed(Timed),
    /// All that the profiler read.
    Surveyed(Surveyed),
}

/// How fast it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Timed {
    /// By timed case, in nanoseconds.
    pub(super) cases: Vec<(String, f64)>,
}

/// What the profiler read of the launch that stands for the call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Surveyed {
    pub(super) case: String,
    pub(super) tool: String,
    pub(super) kernel: String,
    pub(super) grid: [u64; 3],
    pub(super) block: [u64; 3],
    /// The kernel's share of the time of all kernels of the call.
    pub(super) share: f64,
    /// Name, unit and value, where there is one.
    pub(super) metrics: Vec<(String, String, Option<f64>)>,
}

/// A line.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// The task as it stands and the machine, by hash.
    on: Hash,
    /// The task's name, for people.
    task: String,
    kernel: Hash,
    /// Where the kernel comes from, for people.
    origin: String,
    found: Found,
}

/// All notes, and the file that new ones go to.
#[derive(Debug)]
pub struct Notebook {
    path: PathBuf,
    file: File,
    machine: String,
    times: HashMap<(Hash, Hash), Result<Timed, String>>,
    surveys: HashMap<(Hash, Hash), Surveyed>,
}

/// The folder of notes that belongs to a table.
#[must_use]
pub fn folder_beside(table: &Path) -> PathBuf {
    table.with_extension("sampling")
}

impl Found {
    /// In a few words.
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Failed(why) => format!("wrong: {}", crate::progress::plain(why)),
            Self::Timed(timed) => quantity::time(timed.ns()),
            Self::Surveyed(survey) => {
                let read = survey.metrics.iter().filter(|(_, _, value)| value.is_some()).count();
                let (kernel, share) = (crate::progress::plain(&survey.kernel), survey.share * 100.0);
                format!("{read} of {} metrics of {kernel}, {share:.0} % of the call", survey.metrics.len())
            }
        }
    }
}

impl Timed {
    /// The typical time of each timed case.
    pub(super) fn of(timed: &kernelbench::Timed) -> Self {
        let case = |case: &kernelbench::CaseTiming| (case.case.clone(), case.candidate.typical_ns(timed.statistic));
        Self { cases: timed.cases.iter().map(case).collect() }
    }

    /// Over all timed cases, in nanoseconds.
    pub(super) fn ns(&self) -> f64 {
        self.cases.iter().map(|(_, ns)| ns).sum()
    }

    /// Of one case.
    pub(super) fn of_case(&self, name: &str) -> Option<f64> {
        self.cases.iter().find(|(case, _)| case == name).map(|(_, ns)| *ns)
    }
}

impl Notebook {
    /// Opens the notes in a folder. A last line that was cut off is dropped.
    ///
    /// # Errors
    ///
    /// Where it cannot be read or written, or a line is no note.
    pub fn open(folder: &Path, machine: &Machine) -> Result<Self, Trouble> {
        let wrong = |path: &Path, why: String| Trouble::record(format!("{}: {why}", path.display()));
        let path = folder.join(NOTES);
        let file = File::options().create(true).read(true).append(true).open(&path);
        let mut file = file.map_err(|e| wrong(&path, e.to_string()))?;
        let mut text = String::new();
        (&file).take(LARGEST).read_to_string(&mut text).map_err(|e| wrong(&path, e.to_string()))?;
        let whole = text.rfind('\n').map_or(0, |newline| newline + 1);
        file.set_len(whole as u64).map_err(|e| wrong(&path, e.to_string()))?;
        file.flush().map_err(|e| wrong(&path, e.to_string()))?;
        let driver = machine.facts.iter().find(|fact| fact.name == "driver").map_or("", |fact| &fact.value);
        let machine = format!("{} {} {driver}", machine.arch, machine.name);
        let (times, surveys) = (HashMap::new(), HashMap::new());
        let mut notebook = Self { path, file, machine, times, surveys };
        for (at, line) in text[..whole].lines().enumerate() {
            let note: Note = serde_json::from_str(line).map_err(|e| {
                let help = "remove the line, and what it says is found out again";
                wrong(&notebook.path, format!("line {}: this is no note: {e}; {help}", at + 1))
            })?;
            notebook.believe(note);
        }
        Ok(notebook)
    }

    fn believe(&mut self, note: Note) {
        let key = (note.on, note.kernel);
        match note.found {
            Found::Failed(why) => drop(self.times.insert(key, Err(why))),
            Found::Timed(timed) => drop(self.times.insert(key, Ok(timed))),
            Found::Surveyed(survey) => drop(self.surveys.insert(key, survey)),
        }
    }

    /// Notes and believes.
    pub(super) fn note(&mut self, pool: &Pool, entry: &Entry, found: Found) -> Result<(), Trouble> {
        let (on, kernel) = self.key(pool, entry);
        let (task, origin) = (pool.task.name.clone(), entry.origin.clone());
        let note = Note { on, task, kernel, origin, found };
        let broken = |why: String| Trouble::record(format!("{}: {why}", self.path.display()));
        let line = serde_json::to_string(&note).map_err(|e| broken(e.to_string()))?;
        (&self.file).write_all(format!("{line}\n").as_bytes()).map_err(|e| broken(e.to_string()))?;
        // Numbers as they will be read again: the same table comes of it, interrupted or not.
        self.believe(serde_json::from_str(&line).map_err(|e| broken(e.to_string()))?);
        Ok(())
    }

    fn key(&self, pool: &Pool, entry: &Entry) -> (Hash, Hash) {
        let task = serde_json::to_string(&pool.task).unwrap_or_default();
        (Hash::of(format!("{}\n{task}", self.machine).as_bytes()), entry.candidate.id())
    }

    /// Whether a kernel was evaluated.
    pub(super) fn knows(&self, pool: &Pool, entry: &Entry) -> bool {
        self.times.contains_key(&self.key(pool, entry))
    }

    /// Whether a kernel was surveyed.
    pub(super) fn is_surveyed(&self, pool: &Pool, entry: &Entry) -> bool {
        self.surveys.contains_key(&self.key(pool, entry))
    }

    /// The times of a pool's correct kernels, in nanoseconds.
    #[must_use]
    pub fn times(&self, pool: &Pool) -> Vec<(f64, Hash)> {
        let time = |entry: &Entry| {
            let timed = self.times.get(&self.key(pool, entry))?.as_ref().ok()?;
            Some((timed.ns(), entry.candidate.id()))
        };
        pool.entries.iter().filter_map(time).collect()
    }

    /// A kernel's times and what was read of it, where both are known.
    pub(super) fn both(&self, pool: &Pool, entry: &Entry) -> Option<(&Timed, &Surveyed)> {
        let key = self.key(pool, entry);
        Some((self.times.get(&key)?.as_ref().ok()?, self.surveys.get(&key)?))
    }
}
