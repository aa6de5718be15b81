//! Which kernels of a task are fast and which slow, and what does the profiler read of these?
//!
//! As the paper samples (CudaForge, Algorithm 1), with kernels from anywhere: all are built ahead, then evaluated one after the
//! other, and of the correct ones of each task the fastest and the slowest are surveyed. What was found out is noted at
//! once, so that an interrupted sampling goes on.

mod extremes;
mod notebook;
mod pool;
mod rows;

pub use extremes::extremes;
pub use notebook::{Notebook, folder_beside};
pub use pool::{Entry, Pool};

use crate::{
    exit::Trouble,
    handover::Companion,
    progress::{Screen, plain},
    quantity,
};
use futures::StreamExt;
use kernelbench::{Built, Failure, Fault, Hash, Suite, TimingPlan, Verified, Workshop};
use notebook::{Found, Timed};
use std::{collections::HashMap, path::Path};

/// A sampling that goes on or begins.
pub struct Sampling<'a> {
    /// Where kernels are built, checked, timed and surveyed.
    pub workshop: &'a dyn Workshop,
    /// How they are timed.
    pub plan: TimingPlan,
    /// How many of the fastest and how many of the slowest are surveyed.
    pub keep: usize,
    /// How many are built at the same time.
    pub at_once: usize,
    /// Where it is told.
    pub screen: &'a Screen,
    /// What was found out.
    pub notebook: Notebook,
    /// What writes the table.
    pub table: Companion,
}

/// What came of it, over all tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Kernels that were evaluated, then or now.
    pub kernels: usize,
    /// Of these, correct.
    pub correct: usize,
    /// Surveyed: in the table.
    pub surveyed: usize,
}

/// What this process has at hand of a task's kernels.
#[derive(Default)]
struct AtHand {
    built: HashMap<Hash, Result<Built, Failure>>,
    verified: HashMap<Hash, Verified>,
}

impl Sampling<'_> {
    /// Samples these pools one after the other, and writes the table after each.
    ///
    /// # Errors
    ///
    /// Where the machine fails, or nothing can be written.
    pub async fn sample(&mut self, pools: &[Pool], out: &Path) -> Result<Sampled, Trouble> {
        let mut at_hand = self.build_ahead(pools).await?;
        let mut sampled = Sampled::default();
        for (pool, at_hand) in pools.iter().zip(&mut at_hand) {
            self.screen.say(&format!("{}: {} kernels", plain(&pool.task.name), pool.entries.len()));
            self.evaluate(pool, at_hand).await?;
            self.survey(pool, at_hand).await?;
            self.say_what_came(pool);
            let profiles = rows::profiles(&self.notebook, pools, self.workshop.machine(), self.keep);
            sampled.surveyed = profiles.len();
            if !profiles.is_empty() {
                self.table.write("table", out, &rows::lines(&profiles))?;
            }
            let times = self.notebook.times(pool);
            sampled.kernels += pool.entries.len();
            sampled.correct += times.len();
        }
        Ok(sampled)
    }

    /// Builds what no note says anything of, several at a time: while something is timed, nothing may be built.
    async fn build_ahead(&self, pools: &[Pool]) -> Result<Vec<AtHand>, Fault> {
        let mut all = vec![];
        for pool in pools {
            let new: Vec<&Entry> = pool.entries.iter().filter(|entry| !self.notebook.knows(pool, entry)).collect();
            self.screen.show(&format!("building {} kernels of {}", new.len(), plain(&pool.task.name)));
            let made = async |entry: &Entry| {
                let built = self.workshop.build(&pool.task, &entry.candidate).await?;
                Ok::<_, Fault>((entry.candidate.id(), built))
            };
            let building = futures::stream::iter(new.into_iter().map(made)).buffer_unordered(self.at_once.max(1));
            let built: Vec<Result<_, Fault>> = building.collect().await;
            let built = built.into_iter().collect::<Result<_, Fault>>()?;
            all.push(AtHand { built, verified: HashMap::new() });
        }
        Ok(all)
    }

    async fn evaluate(&mut self, pool: &Pool, at_hand: &mut AtHand) -> Result<(), Trouble> {
        let new: Vec<&Entry> = pool.entries.iter().filter(|entry| !self.notebook.knows(pool, entry)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let suite = Suite::of_task(&pool.task);
        self.screen.show("the reference is built, checked and timed");
        self.workshop.prepare(&pool.task, &suite, &self.plan).await?;
        for (at, entry) in new.iter().enumerate() {
            let place = format!("{}/{} {}", at + 1, new.len(), plain(&entry.origin));
            self.screen.show(&place);
            let found = match self.examine(pool, entry, &suite, at_hand).await? {
                Ok(timed) => Found::Timed(timed),
                Err(failure) => Found::Failed(failure.to_string()),
            };
            self.screen.say(&format!("  {place}: {}", found.in_words()));
            self.notebook.note(pool, entry, found)?;
        }
        Ok(())
    }

    async fn examine(
        &self,
        pool: &Pool,
        entry: &Entry,
        suite: &Suite,
        at_hand: &mut AtHand,
    ) -> Result<Result<Timed, Failure>, Fault> {
        let verified = match self.verified(pool, entry, suite, at_hand).await? {
            Ok(verified) => verified,
            Err(failure) => return Ok(Err(failure)),
        };
        let timed = self.workshop.time(&pool.task, &verified, suite, &self.plan, 0.0).await?;
        Ok(timed.map(|timed| Timed::of(&timed)))
    }

    /// A kernel, built and checked, if need be anew.
    async fn verified(
        &self,
        pool: &Pool,
        entry: &Entry,
        suite: &Suite,
        at_hand: &mut AtHand,
    ) -> Result<Result<Verified, Failure>, Fault> {
        let id = entry.candidate.id();
        if let Some(verified) = at_hand.verified.get(&id) {
            return Ok(Ok(verified.clone()));
        }
        let built = match at_hand.built.remove(&id) {
            Some(built) => built,
            None => self.workshop.build(&pool.task, &entry.candidate).await?,
        };
        let built = match built {
            Ok(built) => built,
            Err(failure) => return Ok(Err(failure)),
        };
        let checked = self.workshop.check(&pool.task, built, suite).await?;
        if let Ok(verified) = &checked {
            at_hand.verified.insert(id, verified.clone());
        }
        Ok(checked)
    }

    async fn survey(&mut self, pool: &Pool, at_hand: &mut AtHand) -> Result<(), Trouble> {
        let suite = Suite::of_task(&pool.task);
        let chosen = extremes(&self.notebook.times(pool), self.keep);
        for (at, id) in chosen.iter().enumerate() {
            let Some(entry) = pool.entry(id).filter(|entry| !self.notebook.is_surveyed(pool, entry)) else { continue };
            let place = format!("survey {}/{} {}", at + 1, chosen.len(), plain(&entry.origin));
            self.screen.show(&place);
            let verified = self.verified(pool, entry, &suite, at_hand).await?;
            let Ok(verified) = verified else {
                self.screen.say(&format!("  {place}: it was correct before and is not now; left out"));
                continue;
            };
            match self.workshop.survey(&pool.task, &verified, &suite).await? {
                Ok(survey) => {
                    let found = rows::found(&survey).map_err(Trouble::machine)?;
                    self.screen.say(&format!("  {place}: {}", found.in_words()));
                    self.notebook.note(pool, entry, found)?;
                }
                Err(why) => self.screen.say(&format!("  {place}: nothing was read: {}", plain(&why))),
            }
        }
        Ok(())
    }

    fn say_what_came(&self, pool: &Pool) {
        let times = self.notebook.times(pool);
        let ends = times
            .iter()
            .map(|(ns, _)| *ns)
            .fold([f64::INFINITY, 0.0], |[low, high]: [f64; 2], ns| [low.min(ns), high.max(ns)]);
        let [fast, slow] = ends.map(quantity::time);
        let spread = ends[1] / ends[0];
        let words = if times.is_empty() { String::new() } else { format!(", {fast} to {slow} ({spread:.1} x)") };
        self.screen.say(&format!("  {} of {} correct{words}", times.len(), pool.entries.len()));
        if times.len() < 2 * self.keep {
            self.screen.say(&format!("  fewer than {} are correct: all of these are in the table", 2 * self.keep));
        }
    }
}
