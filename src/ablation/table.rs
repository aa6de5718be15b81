//! How do the variants of an ablation compare, in the form of the papers' tables?

use super::spec::{Paper, Spec};
use crate::{
    compare::{Comparison, Side},
    quantity,
    scores::{RunScores, State, text},
};
use metrics::scores::{Change, Estimate, Measure, Outcome};
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write};

/// The measures of CudaForge's tables, under their names.
const SHOWN: [(Measure, &str); 5] = [
    (Measure::Correct, "correct"),
    (Measure::Median, "median"),
    (Measure::UpperQuartile, "75 %"),
    (Measure::Mean, "perf (mean)"),
    (Measure::Fast(1.0), "fast_1"),
];
/// Where CudaForge's own stands among them.
const PERF: usize = 3;

/// A line for each run.
#[derive(Debug, Serialize)]
pub struct Table {
    /// The ablation's name.
    pub name: String,
    /// What it is.
    pub summary: String,
    /// The runs that have begun, in the order of the variants.
    pub rows: Vec<Row>,
    /// What a paper has of the variants.
    pub paper: Vec<Paper>,
    /// Of each variant that is repeated, the best of its runs.
    pub best_of: Vec<BestOf>,
    /// The runs side by side, beside the first.
    pub comparison: Comparison,
}

/// The best of a variant's runs, task by task: what somebody gets who makes all of them (HK-62's 10x10).
#[derive(Debug, Serialize)]
pub struct BestOf {
    /// The variant.
    pub variant: String,
    /// How many runs have begun.
    pub runs: usize,
    /// The measures of the papers' tables, of the greatest speedup of each task.
    pub measures: Vec<Option<Estimate>>,
}

/// One run of a variant.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub run: String,
    /// The variant.
    pub variant: String,
    /// Its tasks, and those that have ended.
    pub tasks: usize,
    /// How many of them have ended.
    pub ended: usize,
    /// The measures of the papers' tables.
    pub measures: Vec<Option<Estimate>>,
    /// Dollars a task, where every price is known.
    pub usd_a_task: Option<f64>,
    /// Time a task, in milliseconds.
    pub ms_a_task: f64,
    /// Model calls a task.
    pub calls_a_task: f64,
    /// Each task's name and outcome.
    #[serde(skip)]
    outcomes: Vec<(String, Outcome)>,
}

impl Table {
    /// Of these runs, each with its variant's name; `None` where none has begun.
    #[must_use]
    pub fn of(spec: &Spec, runs: &[(String, Side)]) -> Option<Self> {
        let sides: Vec<&Side> = runs.iter().map(|(_, side)| side).collect();
        (!sides.is_empty()).then(|| {
            let rows: Vec<_> = runs.iter().map(|(variant, side)| Row::of(variant, &side.name, &side.scores)).collect();
            let (name, summary, comparison) = (spec.name.clone(), spec.summary.clone(), Comparison::of(&sides));
            let paper = spec.paper.clone();
            Self { name, summary, paper, best_of: repeated(&rows).map(BestOf::of).collect(), rows, comparison }
        })
    }

    /// As text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n\n{}", self.name, self.summary, text::columns(&self.lines()));
        text += "\nAll over the reference, or the baseline that a task names; a task without a certificate counts 0. perf is CudaForge's: the mean of the \
                 speedups. What differs from the first line by more than chance is starred, task by task in pairs; a dash \
                 means fewer than 6 tasks, too few to tell.\n";
        if !self.paper.is_empty() {
            text += "Lines that begin with \"paper:\" are what the paper has, on its machine with its models: they do not compare \
                     with the others but by their order.\n";
        }
        for (rows, best) in repeated(&self.rows).zip(&self.best_of) {
            let means: Vec<f64> = rows.iter().filter_map(|row| Some(row.measures[PERF]?.value)).collect();
            let edge = |of: fn(f64, f64) -> f64| means.iter().copied().reduce(of).unwrap_or(f64::NAN);
            let (mean, low, high) = (means.iter().sum::<f64>() / means.len() as f64, edge(f64::min), edge(f64::max));
            let all = best.measures[PERF].map_or(f64::NAN, |estimate| estimate.value);
            let _ = writeln!(
                text,
                "{}: perf of its {} repeats {mean:.3} on average, {low:.3} to {high:.3}; of each task's best {all:.3}",
                best.variant, best.runs
            );
        }
        text
    }

    /// Everything side by side, task by task.
    #[must_use]
    pub fn in_full(&self) -> String {
        format!("{}\n{}", self.text(), self.comparison.text())
    }

    fn lines(&self) -> Vec<Vec<String>> {
        let head = ["variant".to_owned(), "tasks".to_owned()].into_iter().chain(SHOWN.map(|(_, name)| name.to_owned()));
        let head = head.chain(["$ a task", "time a task", "calls a task"].map(str::to_owned)).collect();
        let rows = self.rows.iter().enumerate().map(|(at, row)| self.line(at, row));
        [head].into_iter().chain(rows).chain(self.paper.iter().map(in_the_paper)).collect()
    }

    fn line(&self, at: usize, row: &Row) -> Vec<String> {
        let tasks =
            if row.ended == row.tasks { row.tasks.to_string() } else { format!("{} of {}", row.ended, row.tasks) };
        let mut line = vec![row.run.clone(), tasks];
        for ((measure, _), value) in SHOWN.iter().zip(&row.measures) {
            let number = value.map_or_else(|| "-".into(), |value| in_style(*measure, value.value));
            line.push(format!("{number}{}", self.mark(at, *measure)));
        }
        line.push(row.usd_a_task.map_or_else(|| "unknown".into(), quantity::usd));
        line.push(quantity::wait(row.ms_a_task as u64));
        line.push(format!("{:.1}", row.calls_a_task));
        line
    }

    /// Whether this line differs from the first by more than chance.
    fn mark(&self, at: usize, measure: Measure) -> &'static str {
        let name = measure.name();
        let paired = self.comparison.measures.iter().find(|paired| paired.measure == name);
        let change = at.checked_sub(1).and_then(|at| paired?.differences.get(at)?.change);
        match change {
            Some(Change::Higher | Change::Lower) => " *",
            Some(Change::TooFew) => " -",
            Some(Change::NoDifference) | None => "",
        }
    }
}

/// The runs of each variant that has several.
fn repeated(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|a, b| a.variant == b.variant).filter(|rows| rows.len() > 1)
}

impl BestOf {
    fn of(rows: &[Row]) -> Self {
        let mut best: BTreeMap<&str, Outcome> = BTreeMap::new();
        for (task, outcome) in rows.iter().flat_map(|row| &row.outcomes) {
            let so_far = best.entry(task).or_default();
            *so_far = [*so_far, *outcome].into_iter().flatten().reduce(f64::max);
        }
        let outcomes: Vec<Outcome> = best.into_values().collect();
        let measures = SHOWN.iter().map(|(measure, _)| measure.estimate(&outcomes)).collect();
        Self { variant: rows[0].variant.clone(), runs: rows.len(), measures }
    }
}

impl Row {
    fn of(variant: &str, run: &str, scores: &RunScores) -> Self {
        let named = |task: &crate::scores::TaskScore| (task.task.clone(), task.outcome());
        let named: Vec<_> = scores.tasks.iter().map(named).collect();
        let outcomes: Vec<Outcome> = named.iter().map(|(_, outcome)| *outcome).collect();
        let (spent, tasks) = (scores.spent(), scores.tasks.len());
        let each = |number: f64| number / tasks.max(1) as f64;
        Self {
            run: run.to_owned(),
            variant: variant.to_owned(),
            tasks,
            ended: scores.tasks.iter().filter(|task| task.state == State::Ended).count(),
            measures: SHOWN.iter().map(|(measure, _)| measure.estimate(&outcomes)).collect(),
            usd_a_task: spent.known_usd().map(each),
            ms_a_task: each(spent.wall_ms as f64),
            calls_a_task: each(spent.calls as f64),
            outcomes: named,
        }
    }
}

/// A line of the paper's, under those of the runs.
fn in_the_paper(Paper { variant, of, correct, median, upper_quartile, perf, fast_1 }: &Paper) -> Vec<String> {
    let values = SHOWN.iter().zip([correct, median, upper_quartile, perf, fast_1]);
    let told = values.map(|((measure, _), value)| value.map_or_else(|| "-".into(), |value| in_style(*measure, value)));
    let unknown = ["$ a task", "time a task", "calls a task"].map(|_| "-".to_owned());
    [format!("paper: {variant}"), of.clone()].into_iter().chain(told).chain(unknown).collect()
}

/// As CudaForge's tables write it: a share in percent, a speedup with three digits.
fn in_style(measure: Measure, value: f64) -> String {
    if measure.is_share() { format!("{:.1} %", value * 100.0) } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_paper_has_stands_below_in_the_same_columns() {
        let spec = Spec::named("cudaforge-table1").unwrap();
        let lines: Vec<_> = spec.paper.iter().map(in_the_paper).collect();
        assert_eq!(lines.len(), 8);
        let whole = lines.iter().find(|line| line[0] == "paper: cudaforge" && line[1].starts_with("D*")).unwrap();
        assert_eq!(whole[2..7], ["100.0 %", "1.322", "1.736", "1.767", "84.0 %"]);
        let other = lines.iter().find(|line| line[0].contains("Lange")).unwrap();
        assert_eq!(other[2..7], ["95.0 %", "-", "-", "1.490", "-"]);
    }

    #[test]
    fn of_repeats_each_tasks_best_counts_and_one_run_is_no_repeat() {
        let row = |variant: &str, outcomes: &[(&str, Outcome)]| {
            let outcomes = outcomes.iter().map(|(task, outcome)| ((*task).to_owned(), *outcome)).collect();
            let scores = RunScores::default();
            Row { outcomes, ..Row::of(variant, variant, &scores) }
        };
        let rows = [
            row("once", &[("a", Some(9.0))]),
            row("twice", &[("a", Some(1.5)), ("b", None), ("c", None)]),
            row("twice", &[("b", Some(0.5)), ("a", Some(1.2)), ("c", None)]),
        ];
        let best: Vec<BestOf> = repeated(&rows).map(BestOf::of).collect();
        assert_eq!(best.len(), 1);
        assert_eq!((best[0].variant.as_str(), best[0].runs), ("twice", 2));
        let perf = best[0].measures[PERF].unwrap().value;
        assert!((perf - 2.0 / 3.0).abs() < 1e-9, "1.5, 0.5 and nothing: {perf}");
    }
}
