//! Which kernels are there for a task?
//!
//! Candidates in the folders of runs, and members of the task's family until there are as many as wanted.

use crate::{exit::Trouble, store::RunFolder};
use agents::event::Event;
use kernelbench::{Candidate, Hash, Task, load};
use std::{collections::BTreeSet, path::Path};

/// A task and kernels for it, no source twice.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The task.
    pub task: Task,
    /// The kernels, those of runs first.
    pub entries: Vec<Entry>,
}

/// A kernel and where it comes from.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The kernel.
    pub candidate: Candidate,
    /// A family's design and parameters, or a run.
    pub origin: String,
}

impl Pool {
    /// The kernels for a task from runs, and from its family until there are so many, drawn by this seed.
    ///
    /// # Errors
    ///
    /// Where the task, its family or a run cannot be read, or there is no kernel at all.
    pub fn of(path: &Path, kernels: usize, seed: u64, runs: &[RunFolder]) -> Result<Self, Trouble> {
        let task = load::task(path)?;
        let mut pool = Self { task, entries: vec![] };
        for run in runs {
            pool.take_from(run)?;
        }
        if let Some(family) = load::family(path)? {
            let members = family.draw(kernels.saturating_sub(pool.entries.len()), seed);
            let members = members.map_err(|why| Trouble::usage(format!("{}: {why}", path.display())))?;
            for member in members {
                pool.add(Entry { candidate: member.candidate, origin: member.name });
            }
        }
        if pool.entries.is_empty() {
            let what =
                "there is no kernel to sample: expected a family.toml beside its task.toml, or --from a run on it";
            return Err(Trouble::usage(format!("{}: {what}", path.display())));
        }
        Ok(pool)
    }

    /// The kernel of this name.
    #[must_use]
    pub fn entry(&self, id: &Hash) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.candidate.id() == *id)
    }

    fn add(&mut self, entry: Entry) {
        if self.entry(&entry.candidate.id()).is_none() {
            self.entries.push(entry);
        }
    }

    /// What a run evaluated for a task of this name.
    fn take_from(&mut self, run: &RunFolder) -> Result<(), Trouble> {
        if !run.tasks()?.contains(&self.task.name) {
            return Ok(());
        }
        let record = run.record(&self.task.name)?;
        let evaluated = record.events().filter_map(|event| match event {
            Event::Evaluated { candidate, .. } => Some(candidate),
            _ => None,
        });
        for id in evaluated.collect::<BTreeSet<_>>() {
            let candidate = Candidate::of_canonical(&record.blobs.fetch(&id)?);
            self.add(Entry { candidate, origin: format!("{} of {}", id.short(), run.path().display()) });
        }
        Ok(())
    }
}
