//! What do the scores of many tasks come to, in all and by level, over each baseline?

use super::task::TaskScore;
use metrics::scores::{Estimate, Measure, Outcome};
use serde::Serialize;

/// Every measure over one baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoreTable {
    /// What the candidates are compared with.
    pub baseline: String,
    /// In all, by level, and without what is known to be defective.
    pub groups: Vec<Group>,
}

/// Every measure over some of the tasks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Which tasks.
    pub name: String,
    /// How many.
    pub tasks: usize,
    /// Each measure's name, formula and value.
    pub scores: Vec<Score>,
}

/// One measure of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Its name.
    pub measure: String,
    /// Its formula.
    pub formula: String,
    /// Its value; none where it is not defined.
    #[serde(flatten)]
    pub estimate: Option<Estimate>,
}

/// A table for the reference, and one for each other way in which at least one reference was timed.
pub(super) fn tables(tasks: &[TaskScore]) -> Vec<ScoreTable> {
    let own = Some(table(&own_name(tasks), tasks, |task| Some(task.outcome())));
    let mut names: Vec<&str> = tasks.iter().flat_map(|task| task.over.iter().map(|(name, _)| name.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    let others = names.into_iter().map(|name| table(name, tasks, |task| over(task, name)));
    own.into_iter().chain(others).filter(|table| !table.groups.is_empty()).collect()
}

/// The table over the reference of what there is so far.
pub(super) fn so_far(tasks: &[TaskScore]) -> ScoreTable {
    table(&own_name(tasks), tasks, |task| Some(task.so_far().map(|speedup| speedup.ratio)))
}

/// What speedups are over: the reference, or the baseline that every task names; what a problem's is, where all are problems.
pub(super) fn own_name(tasks: &[TaskScore]) -> String {
    let mut named: Vec<&Option<String>> = tasks.iter().map(|task| &task.against).collect();
    named.sort_unstable();
    named.dedup();
    match named.as_slice() {
        [Some(against)] => against.clone(),
        [None] | [] if tasks.iter().all(|task| task.problem) => "eager torch, the reference".to_owned(),
        [None] | [] => "the reference".to_owned(),
        _ => "what each task is timed against".to_owned(),
    }
}

/// The outcome over another baseline; `None` where the task was not timed against it, or cannot be.
fn over(task: &TaskScore, name: &str) -> Option<Outcome> {
    let (_, speedup) = task.over.iter().find(|(known, _)| known == name)?;
    match (task.speedup, speedup) {
        (None, _) => Some(None),
        (Some(_), Some(speedup)) => Some(Some(speedup.ratio)),
        // It works, and the baseline does not: nothing to compare it with.
        (Some(_), None) => None,
    }
}

fn table(baseline: &str, tasks: &[TaskScore], outcome: impl Fn(&TaskScore) -> Option<Outcome>) -> ScoreTable {
    let members = |fits: &dyn Fn(&TaskScore) -> bool| {
        tasks.iter().filter(|task| fits(task)).filter_map(&outcome).collect::<Vec<_>>()
    };
    let mut levels: Vec<u8> = tasks.iter().filter_map(|task| task.level).collect();
    levels.sort_unstable();
    levels.dedup();
    let mut groups = vec![("all".to_owned(), members(&|_| true))];
    if levels.len() > 1 {
        let of = |level: u8| (format!("level {level}"), members(&|task| task.level == Some(level)));
        groups.extend(levels.into_iter().map(of));
    }
    if tasks.iter().any(|task| !task.defects.is_empty()) {
        groups.push(("not defective".to_owned(), members(&|task| task.defects.is_empty())));
    }
    if tasks.iter().any(|task| task.only_as_drawn) {
        let strict = |task: &TaskScore| outcome(task).map(|outcome| outcome.filter(|_| !task.only_as_drawn));
        groups.push(("only as drawn is a failure".to_owned(), tasks.iter().filter_map(strict).collect()));
    }
    let groups = groups.into_iter().filter(|(_, outcomes)| !outcomes.is_empty());
    ScoreTable { baseline: baseline.to_owned(), groups: groups.map(|(name, members)| group(name, &members)).collect() }
}

fn group(name: String, outcomes: &[Outcome]) -> Group {
    let score = |measure: Measure| Score {
        measure: measure.name(),
        formula: measure.formula(),
        estimate: measure.estimate(outcomes),
    };
    Group { name, tasks: outcomes.len(), scores: Measure::ALL.map(score).to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::trajectory::Trajectory;

    #[test]
    fn what_is_right_only_as_drawn_counts_as_a_failure_in_a_group_of_its_own() {
        let task = |ratio: f64, only_as_drawn| TaskScore {
            speedup: Some(metrics::Speedup { ratio, interval: metrics::Interval { low: ratio, high: ratio } }),
            only_as_drawn,
            ..TaskScore::of("t", &Trajectory::default(), &[], &|_| None)
        };
        let value = |table: &ScoreTable, group: usize, measure: &str| {
            let score = table.groups[group].scores.iter().find(|score| score.measure == measure).unwrap();
            score.estimate.as_ref().unwrap().value
        };
        let [table] = tables(&[task(2.0, false), task(8.0, true)]).try_into().unwrap();
        assert_eq!(
            table.groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>(),
            ["all", "only as drawn is a failure"]
        );
        let is = |group, measure, expected: f64| (value(&table, group, measure) - expected).abs() < 1e-12;
        assert!(is(0, "correct", 1.0) && is(1, "correct", 0.5));
        assert!(is(0, "mean", 5.0) && is(1, "mean", 1.0));
        assert_eq!(tables(&[task(2.0, false)])[0].groups.len(), 1);
    }

    #[test]
    fn speedups_are_over_what_the_tasks_name() {
        let task = |against: Option<&str>, problem| TaskScore {
            against: against.map(str::to_owned),
            problem,
            ..TaskScore::of("t", &Trajectory::default(), &[], &|_| None)
        };
        let [plain, problem, cublas, blas] =
            [(None, false), (None, true), (Some("cublas"), false), (Some("openblas"), false)].map(|(a, p)| task(a, p));
        for (tasks, name) in [
            (vec![plain.clone(), problem.clone()], "the reference"),
            (vec![problem.clone(), problem], "eager torch, the reference"),
            (vec![cublas.clone(), cublas.clone()], "cublas"),
            (vec![cublas.clone(), blas], "what each task is timed against"),
            (vec![plain, cublas], "what each task is timed against"),
        ] {
            assert_eq!(own_name(&tasks), name);
            assert_eq!(so_far(&tasks).baseline, name);
        }
    }
}
