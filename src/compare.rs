//! How do runs of the same tasks differ, and is it more than chance?
//!
//! Tasks are paired by name and content. What differs between the machines, the programs or the tasks of two runs is said
//! first, for then their numbers differ for other reasons too.

pub mod pair;
pub mod profiles;
mod text;

use crate::{
    scores::{RunScores, Spent, TaskScore},
    store::{RunFolder, RunHeader, StoreError},
};
use metrics::{
    Interval, Speedup,
    scores::{Change, Estimate, Measure, Outcome, paired_ratio},
};
use serde::Serialize;

/// One of the runs that are compared.
#[derive(Debug)]
pub struct Side {
    /// What it is called in the tables.
    pub name: String,
    /// Its header.
    pub header: RunHeader,
    /// Its scores.
    pub scores: RunScores,
}

/// Runs side by side; the first is what the others are compared with.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// What the runs are called.
    pub names: Vec<String>,
    /// The policy of each run.
    pub policies: Vec<String>,
    /// What answered in each run.
    pub models: Vec<String>,
    /// Why their numbers may differ for other reasons than the ones that are compared.
    pub doubts: Vec<String>,
    /// The tasks that all runs have, by name.
    pub tasks: Vec<PairedTask>,
    /// Every measure over these tasks.
    pub measures: Vec<PairedMeasure>,
    /// How many times as fast each run's candidates are as the first's, over the tasks that both got right.
    pub ratios: Vec<Difference>,
    /// What each run took for these tasks.
    pub spent: Vec<Spent>,
}

/// A task in each run.
#[derive(Debug, Serialize)]
pub struct PairedTask {
    /// Its name.
    pub task: String,
    /// Its certified speedup in each run.
    pub speedups: Vec<Option<Speedup>>,
    /// What each run but the first says beside the first.
    pub changes: Vec<TaskChange>,
}

/// What a task's outcome is beside the first run's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskChange {
    /// Correct in both, and faster: even with both intervals at their worst.
    Faster,
    /// Correct in both, and slower.
    Slower,
    /// Correct in both, and not to be told apart.
    NoDifference,
    /// The same code in both: whatever the times say, there is no difference.
    SameCode,
    /// Correct here, and not in the first.
    Gained,
    /// Correct in the first, and not here.
    Lost,
    /// Correct in neither.
    Neither,
}

/// A measure in each run.
#[derive(Debug, Serialize)]
pub struct PairedMeasure {
    /// Its name.
    pub measure: String,
    /// Its formula.
    pub formula: String,
    /// Its value in each run.
    pub values: Vec<Option<Estimate>>,
    /// How far each run but the first is from the first, resampled in pairs.
    pub differences: Vec<Difference>,
}

/// A difference and what may be said of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The difference, or for speedups the ratio; none where it is not defined.
    #[serde(flatten)]
    pub estimate: Option<Estimate>,
    /// What may be said.
    pub change: Option<Change>,
}

impl Side {
    /// The run in this folder, under this name.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn of(folder: &RunFolder, name: Option<&str>) -> Result<Self, StoreError> {
        let (header, scores) = (folder.header()?, RunScores::of(folder)?);
        Ok(Self { name: name.map_or_else(|| scores.run.clone(), str::to_owned), header, scores })
    }

    fn task(&self, name: &str) -> Option<&TaskScore> {
        self.scores.tasks.iter().find(|task| task.task == name)
    }
}

impl Comparison {
    /// Of these runs.
    #[must_use]
    pub fn of(sides: &[&Side]) -> Self {
        let common = common(sides);
        let outcomes = outcomes(sides, &common);
        let pairs: Vec<Vec<(Outcome, Outcome)>> = outcomes
            .iter()
            .skip(1)
            .map(|second| outcomes[0].iter().copied().zip(second.iter().copied()).collect())
            .collect();
        Self {
            names: sides.iter().map(|side| side.name.clone()).collect(),
            policies: sides.iter().map(|side| side.header.policy.clone()).collect(),
            models: sides.iter().map(|side| side.header.model.clone()).collect(),
            doubts: doubts(sides, &common),
            tasks: common.iter().map(|name| paired(sides, name)).collect(),
            measures: Measure::ALL
                .map(|measure| PairedMeasure {
                    measure: measure.name(),
                    formula: measure.formula(),
                    values: outcomes.iter().map(|outcomes| measure.estimate(outcomes)).collect(),
                    differences: pairs.iter().map(|pairs| Difference::from(measure.difference(pairs), 0.0)).collect(),
                })
                .into(),
            ratios: pairs.iter().map(|pairs| Difference::from(paired_ratio(pairs), 1.0)).collect(),
            spent: columns(sides, &common).map(|tasks| tasks.iter().map(|task| &task.spent).sum()).collect(),
        }
    }

    /// As text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        text::comparison(self)
    }
}

impl Difference {
    fn from(estimate: Option<Estimate>, none: f64) -> Self {
        Self { estimate, change: estimate.map(|estimate| estimate.change_from(none)) }
    }
}

/// The tasks of each run, in the same order.
fn columns<'a>(sides: &'a [&Side], names: &'a [String]) -> impl Iterator<Item = Vec<&'a TaskScore>> {
    sides.iter().map(|side| names.iter().filter_map(|name| side.task(name)).collect())
}

/// What came of each task in each run. Where a run has the same code as the first, it has the first's outcome: two timings
/// of one thing are no difference between the runs.
fn outcomes(sides: &[&Side], names: &[String]) -> Vec<Vec<Outcome>> {
    let columns: Vec<Vec<&TaskScore>> = columns(sides, names).collect();
    let of = |tasks: &Vec<&TaskScore>| {
        let beside = tasks.iter().zip(&columns[0]);
        beside.map(|(task, first)| if task.is_same_code(first) { first.outcome() } else { task.outcome() }).collect()
    };
    columns.iter().map(of).collect()
}

/// The names of the tasks that all runs have, with the same content.
fn common(sides: &[&Side]) -> Vec<String> {
    let Some((first, others)) = sides.split_first() else { return vec![] };
    let everywhere = |task: &&TaskScore| {
        others.iter().all(|side| side.task(&task.task).is_some_and(|other| other.content == task.content))
    };
    first.scores.tasks.iter().filter(everywhere).map(|task| task.task.clone()).collect()
}

fn paired(sides: &[&Side], name: &str) -> PairedTask {
    let speedups: Vec<Option<Speedup>> =
        sides.iter().map(|side| side.task(name).and_then(|task| task.speedup)).collect();
    let tasks: Vec<Option<&TaskScore>> = sides.iter().map(|side| side.task(name)).collect();
    let same = |at: usize| tasks[0].zip(tasks[at]).is_some_and(|(first, other)| other.is_same_code(first));
    let changes =
        speedups.iter().enumerate().skip(1).map(|(at, second)| match change(speedups[0].as_ref(), second.as_ref()) {
            _ if same(at) => TaskChange::SameCode,
            told => told,
        });
    let changes = changes.collect();
    PairedTask { task: name.to_owned(), speedups, changes }
}

/// Both were measured against the same reference, though not side by side: both intervals at their worst.
fn change(first: Option<&Speedup>, second: Option<&Speedup>) -> TaskChange {
    match (first.map(|speedup| speedup.interval), second.map(|speedup| speedup.interval)) {
        (None, None) => TaskChange::Neither,
        (None, Some(_)) => TaskChange::Gained,
        (Some(_), None) => TaskChange::Lost,
        (Some(Interval { high, .. }), Some(Interval { low, .. })) if low > high => TaskChange::Faster,
        (Some(Interval { low, .. }), Some(Interval { high, .. })) if high < low => TaskChange::Slower,
        _ => TaskChange::NoDifference,
    }
}

/// What else differs.
fn doubts(sides: &[&Side], common: &[String]) -> Vec<String> {
    let Some((first, others)) = sides.split_first() else { return vec![] };
    let mut doubts = vec![];
    for side in others {
        let mut differs = |what: &str, here: &str, there: &str| {
            if here != there {
                doubts.push(format!("{what}: {} has {here}, {} has {there}", first.name, side.name));
            }
        };
        differs("machine", &first.header.machine.name, &side.header.machine.name);
        differs("warpsmith", &first.header.warpsmith, &side.header.warpsmith);
        differs("compilers", &compilers(&first.header), &compilers(&side.header));
        differs("timing", &timing(&first.header), &timing(&side.header));
        if first.header.templates != side.header.templates {
            doubts.push(format!("prompts: the templates of {} and {} are not the same", first.name, side.name));
        }
    }
    doubts.extend(
        sides
            .iter()
            .filter(|side| side.scores.simulated)
            .map(|side| format!("{} was simulated: its times are made up", side.name)),
    );
    doubts.extend(sides.iter().filter_map(|side| left_out(side, common)));
    doubts
}

fn compilers(header: &RunHeader) -> String {
    let each: Vec<String> = header.compilers.iter().map(|(name, version)| format!("{name}: {version}")).collect();
    if each.is_empty() { "none that is known".to_owned() } else { each.join(", ") }
}

/// How a run was told to time; what is 0 there is as its policy says.
fn timing(header: &RunHeader) -> String {
    let own = |count: u32, what: &str| match count {
        0 => format!("{what} as its policy says"),
        count => format!("{count} {what}"),
    };
    let timing = &header.configuration.timing;
    format!("{} and {}", own(timing.warmup, "warm-up calls"), own(timing.repetitions, "samples"))
}

fn left_out(side: &Side, common: &[String]) -> Option<String> {
    let alone: Vec<&str> = side
        .scores
        .tasks
        .iter()
        .map(|task| task.task.as_str())
        .filter(|name| !common.iter().any(|known| known == name))
        .collect();
    let shown = alone.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let more = if alone.len() > 5 { ", ..." } else { "" };
    (!alone.is_empty()).then(|| {
        format!("{} tasks of {} are left out, for another run lacks them or has other content under their name: {shown}{more}", alone.len(), side.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_said_in_words() {
        let side = |name: &str, repetitions: u32, compiler: &str| {
            let mut configuration = crate::config::Config::default();
            configuration.timing.repetitions = repetitions;
            let header = RunHeader {
                format: 1,
                warpsmith: "1".into(),
                began: String::new(),
                task: String::new(),
                model: "m".into(),
                policy: "p".into(),
                simulated: false,
                compilers: [("c++".to_owned(), compiler.to_owned())].into(),
                templates: [].into(),
                machine: kernelbench::Workshop::machine(&kernelbench::Simulated::new()).clone(),
                configuration,
            };
            let scores = RunScores {
                run: name.into(),
                model: "m".into(),
                policy: "p".into(),
                machine: String::new(),
                simulated: false,
                tasks: vec![],
            };
            Side { name: name.into(), header, scores }
        };
        let (first, second) = (side("a", 0, "g++ 12"), side("b", 30, "g++ 13"));
        let said = Comparison::of(&[&first, &second]).text();
        for line in [
            "beware: compilers: a has c++: g++ 12, b has c++: g++ 13",
            "beware: timing: a has warm-up calls as its policy says and samples as its policy says, b has warm-up",
        ] {
            assert!(said.contains(line), "{said}");
        }
        assert!(said.contains("and 30 samples") && !said.contains('{'), "{said}");
    }
}
