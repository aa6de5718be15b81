//! Which candidate of which run is meant by RUN@NAME?
//!
//! NAME is `best`, `reference`, a round's number, a checkpoint (its own name, one that was given to it, a branch, `head`), or
//! the first digits of the id of a checkpoint or of a candidate, in this order.

use crate::{
    best,
    exit::Trouble,
    plan,
    show::Fetch,
    store::{self, Blobs, End, Record, RunFolder},
};
use agents::{policy::Policy, trajectory::Trajectory, workflow::Checkpoint};
use kernelbench::{Candidate, CandidateId, Hash, Task};
use std::path::Path;

/// The names that are told where one is unknown, at most.
const NEAREST: usize = 4;

/// A run, and perhaps the name of one of its candidates: RUN or RUN@NAME.
#[derive(Debug)]
pub struct At {
    /// The run's folder.
    pub folder: RunFolder,
    /// What has happened by its record.
    pub story: Trajectory,
    /// Where its record ended.
    pub end: End,
    /// Its texts by hash.
    pub blobs: Blobs,
    /// What stands behind the `@`.
    pub name: Option<String>,
}

impl At {
    fn new(folder: RunFolder, record: Record, name: Option<String>) -> Self {
        let story = record.lines.into_iter().map(|line| line.event).collect();
        Self { folder, story, end: record.end, blobs: record.blobs, name }
    }

    /// What a user means by these words; none where they name no run. `root` is where runs lie that are named by a part of
    /// their name.
    ///
    /// # Errors
    ///
    /// Where several runs are called so, or the record cannot be read.
    pub fn find(words: &str, root: &Path) -> Result<Option<Self>, Trouble> {
        let run = |name: &str| -> Result<_, Trouble> {
            let path = store::find(root, Path::new(name))?;
            Ok(Some(path).filter(|path| path.join("run.toml").is_file()))
        };
        let is_run = Path::new(words).join("run.toml").is_file();
        let (path, name) = match words.rsplit_once('@') {
            Some((path, name)) if !is_run => (run(path)?, Some(name.to_owned())),
            _ => (run(words)?, None),
        };
        let Some(path) = path else { return Ok(None) };
        let folder = RunFolder::open(&path)?;
        let tasks = folder.tasks()?.len();
        if tasks > 1 {
            return Err(Trouble::usage(format!(
                "{words}: this run has {tasks} tasks: expected a run of one task, whose candidates and checkpoints have names \
                 (`show` and `tree` of a run of several take one with --task)"
            )));
        }
        let record = folder.only_record()?;
        Ok(Some(Self::new(folder, record, name)))
    }

    /// The same of one task among those of a batch; nothing of it is named.
    ///
    /// # Errors
    ///
    /// Where the words name no run or several, it has no such task, or the record cannot be read.
    pub fn of_task(words: &str, task: &str, root: &Path) -> Result<Self, Trouble> {
        let folder = RunFolder::open(&store::find(root, Path::new(words))?)?;
        let tasks = folder.tasks()?;
        if !tasks.iter().any(|known| known == task) {
            let known = tasks.join(", ");
            return Err(Trouble::usage(format!("{words}: the run has no task {task}; expected one of {known}")));
        }
        let record = folder.record(task)?;
        Ok(Self::new(folder, record, None))
    }

    /// What these words name, which are to name a candidate; none where there is no `@NAME` in them.
    ///
    /// # Errors
    ///
    /// Where what stands before the `@` is no run.
    pub fn candidate_named(words: &str, root: &Path) -> Result<Option<Self>, Trouble> {
        let Some((run, _)) = words.rsplit_once('@').filter(|_| !Path::new(words).exists()) else { return Ok(None) };
        let none = || Trouble::usage(format!("{words}: {run} is not the folder of a run; expected RUN@NAME"));
        Self::find(words, root)?.ok_or_else(none).map(Some)
    }

    /// The run's task, as it was recorded.
    ///
    /// # Errors
    ///
    /// Where the record lacks it.
    pub fn task(&self) -> Result<Task, Trouble> {
        let hash = self.story.task.as_ref().ok_or_else(|| self.wrong("the run's record has not begun"))?;
        let text = self.blobs.fetch(hash)?;
        serde_json::from_str(&text).map_err(|e| Trouble::record(format!("the record's task cannot be read: {e}")))
    }

    /// The policy that the run opened with, with what it says of timing.
    ///
    /// # Errors
    ///
    /// Where the record lacks it, or it cannot be read.
    pub fn policy(&self) -> Result<Policy, Trouble> {
        let hash = self.story.policy.as_ref().ok_or_else(|| self.wrong("the run's record has not begun"))?;
        plan::parse("the record's policy", &self.blobs.fetch(hash)?)
    }

    /// The candidate that is named, with its bindings.
    ///
    /// # Errors
    ///
    /// In a sentence, with the nearest names: nothing is called so, or several are.
    pub fn candidate(&self) -> Result<Candidate, Trouble> {
        let fetch = |hash: &Hash| self.blobs.fetch(hash).ok();
        let name = self.name.as_deref().unwrap_or("best");
        let (story, task) = (&self.story, self.task()?);
        let id = candidate_id(story, &fetch, name).map_err(|why| self.wrong(&why))?;
        if name == "reference" {
            return Ok(Candidate::new(task.reference_as_candidate()));
        }
        Ok(Candidate::of_canonical(&self.blobs.fetch(&id)?))
    }

    /// The checkpoint that is named; none where none is, or the name is that of another candidate.
    #[must_use]
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        let story = &self.story;
        self.name.as_deref().and_then(|name| story.workflow.named(name).ok().cloned())
    }

    /// How the candidate is called in tables: RUN@NAME, with the folder's own name.
    #[must_use]
    pub fn label(&self) -> String {
        let path = self.folder.path();
        let run = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into());
        self.name.as_ref().map_or(run.clone(), |name| format!("{run}@{name}"))
    }

    fn wrong(&self, why: &str) -> Trouble {
        Trouble::usage(format!("{}: {why}", self.folder.path().display()))
    }
}

/// The candidate of a run that is called so.
///
/// # Errors
///
/// In a sentence: nothing is called so, with the nearest names; several are; or there is no candidate yet.
pub fn candidate_id(story: &Trajectory, fetch: Fetch, name: &str) -> Result<CandidateId, String> {
    if name == "best" {
        return best::of(story).ok_or_else(|| "no candidate of this run is right: name one by its round".to_owned());
    }
    if name == "reference" {
        let none = || "the record does not hold the reference".to_owned();
        return crate::show::reference(story, fetch).ok_or_else(none);
    }
    if let Some(round) = name.parse().ok().and_then(|number: u32| story.rounds.iter().find(|r| r.number == number)) {
        return round.candidate.clone().ok_or_else(|| format!("round {name} has no candidate"));
    }
    if let Some(checkpoint) = story.workflow.called(name) {
        return Ok(checkpoint.bound.clone());
    }
    match &by_digits(story, &name.to_lowercase())[..] {
        [(_, one)] => Ok((*one).clone()),
        [] => Err(unknown(story, name)),
        several => {
            let ids: Vec<&str> = several.iter().map(|(id, _)| id.short()).collect();
            let ids = ids.join(", ");
            Err(format!("{} candidates and checkpoints begin with {name}: give more digits of {ids}", several.len()))
        }
    }
}

/// Whose ids begin with these digits: each id, and the candidate that it leads to.
fn by_digits<'a>(story: &'a Trajectory, digits: &str) -> Vec<(&'a Hash, &'a CandidateId)> {
    let candidates = story.rounds.iter().filter_map(|round| round.candidate.as_ref()).map(|id| (id, id));
    let checkpoints = story.workflow.checkpoints.iter().map(|at| (&at.id, &at.bound));
    let mut found: Vec<_> =
        candidates.chain(checkpoints).filter(|(id, _)| !digits.is_empty() && id.as_str().starts_with(digits)).collect();
    found.sort();
    found.dedup();
    found
}

fn unknown(story: &Trajectory, name: &str) -> String {
    let rounds = story.rounds.iter().filter(|round| round.candidate.is_some());
    let mut known: Vec<String> = story.workflow.names_in_use().map(str::to_owned).collect();
    known.extend(rounds.map(|round| round.number.to_string()));
    known.extend(["best".to_owned(), "reference".to_owned()]);
    let names = known.iter().map(String::as_str);
    let nearest = prompts::nearest(name, names, NEAREST).join(", ");
    let all = if story.workflow.checkpoints.is_empty() { "rounds" } else { "rounds and checkpoints" };
    format!(
        "no candidate, round or checkpoint is called {name:?}; the nearest names are {nearest} (`warpsmith show` has the {all})"
    )
}
