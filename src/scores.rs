//! How good was a run, task by task and in all?
//!
//! A fold over the records of its tasks, and nothing else: the same folder gives the same scores on any machine.

mod sheet;
pub(crate) mod spent;
mod table;
mod task;
pub(crate) mod text;

pub use sheet::{Cell, Sheet};
pub use spent::Spent;
pub use table::{Group, Score, ScoreTable};
pub use task::{Fetch, State, TaskScore};

use crate::store::{Listed, RunFolder, StoreError};
use agents::trajectory::Trajectory;
use kernelbench::Hash;
use serde::Serialize;
use std::collections::HashSet;

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunScores {
    /// The run's folder, by its name.
    pub run: String,
    /// What answered.
    pub model: String,
    /// The policy's name.
    pub policy: String,
    /// The machine's name.
    pub machine: String,
    /// Whether it was simulated.
    pub simulated: bool,
    /// Every task, in the order of their levels and numbers, then of their names.
    pub tasks: Vec<TaskScore>,
}

impl RunScores {
    /// Of the run in this folder. Its records are read one after the other.
    ///
    /// # Errors
    ///
    /// If the folder or a record cannot be read.
    pub fn of(folder: &RunFolder) -> Result<Self, StoreError> {
        let header = folder.header()?;
        let listed = folder.batch()?.map(|list| list.tasks).unwrap_or_default();
        let events = |task: &String| folder.path().join("tasks").join(task).join("events.jsonl").exists();
        let names = folder.tasks()?.into_iter().filter(events);
        let mut tasks = names.map(|task| task_of(folder, &task)).collect::<Result<Vec<_>, _>>()?;
        let begun: HashSet<String> = tasks.iter().map(|task| task.task.clone()).collect();
        tasks.extend(
            listed.iter().filter(|listed| !begun.contains(&listed.name)).map(|listed| not_begun(folder, listed)),
        );
        tasks.sort_by(|a, b| (a.level, a.number, &a.task).cmp(&(b.level, b.number, &b.task)));
        let path = std::path::absolute(folder.path()).unwrap_or_else(|_| folder.path().to_owned());
        Ok(Self {
            run: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            model: header.model,
            policy: header.policy,
            machine: header.machine.name,
            simulated: header.simulated,
            tasks,
        })
    }

    /// The tables of scores: over the reference, and over each other way in which references were timed.
    #[must_use]
    pub fn tables(&self) -> Vec<ScoreTable> {
        table::tables(&self.tasks)
    }

    /// The table of a run that has not ended, over the tasks that have begun: one that has ended counts by its certificate,
    /// one that has not by the best of its rounds, as that was measured there.
    #[must_use]
    pub fn so_far(&self) -> ScoreTable {
        table::so_far(&self.begun())
    }

    /// The tasks that have begun.
    #[must_use]
    pub fn begun(&self) -> Vec<TaskScore> {
        self.tasks.iter().filter(|task| task.state != State::NotBegun).cloned().collect()
    }

    /// What all tasks took together.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.tasks.iter().map(|task| &task.spent).sum()
    }

    /// How many tasks ended with a certified candidate that is faster than the reference, its whole interval above 1.
    #[must_use]
    pub fn wins(&self) -> usize {
        self.tasks.iter().filter(|task| task.won()).count()
    }

    /// Everything as text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        text::run(self)
    }

    /// The tasks as a table with a line each.
    #[must_use]
    pub fn sheet(&self) -> Sheet {
        sheet::tasks(self)
    }

    /// Everything as JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({ "run": self, "tables": self.tables(), "spent": self.spent(), "wins": self.wins() })
    }
}

fn task_of(folder: &RunFolder, task: &str) -> Result<TaskScore, StoreError> {
    let record = folder.record(task)?;
    let story: Trajectory = record.events().collect();
    let fetch = |hash: &Hash| record.blobs.fetch(hash).ok();
    Ok(TaskScore::of(task, &story, &record.lines, &fetch))
}

fn not_begun(folder: &RunFolder, listed: &Listed) -> TaskScore {
    let blobs = folder.blobs();
    let story = Trajectory { task: Some(listed.task.clone()), ..Trajectory::default() };
    TaskScore::of(&listed.name, &story, &[], &|hash: &Hash| blobs.fetch(hash).ok())
}
