//! What came of many tasks, on one page that needs nothing but itself?
//!
//! The tables first, then the tasks, each to be opened. Tasks are rendered one after the other, so that a page of hundreds
//! needs the memory of one.

use super::{ReportInput, curve::Curve, page::Page, render, so_far::SoFar, spent::TimeBar, spread::Spread};
use crate::{
    quantity,
    scores::{RunScores, ScoreTable, Spent, State, TaskScore, text},
};
use kernelbench::Precision;
use metrics::MachineKind;
use minijinja::{Value, context, value::Serde};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    io::{self, Write},
};

/// Where the tasks come: no text from outside can hold this, for its brackets would be escaped.
const HERE: &str = "<!-- tasks -->";

/// What the page of a batch is made from, besides its tasks.
pub struct BatchInput<'a> {
    /// Its scores.
    pub scores: &'a RunScores,
    /// What one needs to do it again, by name.
    pub facts: &'a [(String, String)],
    /// What looked like a task and could not be read: which, and why.
    pub unreadable: &'a [(String, String)],
    /// The kind of machine.
    pub kind: MachineKind,
}

/// Gives the record of a task in the run to a function that writes its part of the page.
pub type Visit<'a> = &'a mut dyn FnMut(&str, &mut dyn FnMut(&ReportInput) -> io::Result<()>) -> io::Result<()>;

/// Writes the page. `visit` is called once for each task that has begun, in the order of the scores.
///
/// # Errors
///
/// If it cannot be written, or a record cannot be read.
pub fn write(input: &BatchInput, visit: Visit, out: &mut dyn Write) -> io::Result<()> {
    let page = render("batch.html", context! { page => Value::from(Serde(BatchPage::of(input))) });
    let (head, tail) = page.split_once(HERE).unwrap_or((&page, ""));
    out.write_all(head.as_bytes())?;
    for (at, task) in input.scores.tasks.iter().enumerate().filter(|(_, task)| task.state != State::NotBegun) {
        let member = Member::of(at, task);
        visit(&task.task, &mut |record| {
            let page = Page::of(record, &format!("{}-", member.id));
            let part = render(
                "member.html",
                context! { page => Value::from(Serde(page)), member => Value::from(Serde(&member)) },
            );
            out.write_all(part.as_bytes())
        })?;
    }
    out.write_all(tail.as_bytes())
}

/// Everything that the template reads.
#[derive(Serialize)]
struct BatchPage {
    title: String,
    words: String,
    detail: String,
    /// Whether every task has ended.
    is_whole: bool,
    warnings: Vec<String>,
    facts: Vec<(String, String)>,
    tables: Vec<ScoresView>,
    spread: Option<Spread>,
    curve: Option<Curve>,
    time: Option<TimeBar>,
    took: Vec<[String; 4]>,
    /// Device time by stage: held alone, beside others, not held; held, for a candidate.
    stages: Vec<Vec<String>>,
    members: Vec<Member>,
    unreadable: Vec<(String, String)>,
    reproduction: Vec<(String, String)>,
}

/// A table of scores: measures with a value for each group of tasks, and their formulas.
#[derive(Serialize)]
struct ScoresView {
    title: String,
    groups: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
    formulas: Vec<(String, String)>,
}

/// A task's line in the table, and the heading of its part.
#[derive(Serialize)]
struct Member {
    id: String,
    name: String,
    kind: &'static str,
    outcome: String,
    begun: bool,
    rounds: usize,
    passed: usize,
    round: Option<u32>,
    cost: String,
    time: String,
    defects: Vec<String>,
    over: Vec<String>,
}

impl BatchPage {
    fn of(input: &BatchInput) -> Self {
        let scores = input.scores;
        let (spent, so_far, words) = (scores.spent(), so_far(scores), so_far(scores).words());
        let simulated = input.kind == MachineKind::Simulated;
        Self {
            title: scores.run.clone(),
            words: if simulated { format!("Simulated: {words}") } else { words },
            detail: so_far.detail(),
            is_whole: so_far.is_whole(),
            warnings: warnings(scores, simulated),
            facts: facts(scores, &spent),
            tables: tables(scores, &so_far),
            spread: Spread::of(&scores.begun()),
            curve: Curve::of(&scores.begun()),
            time: TimeBar::of_parts(parts(&spent)),
            took: took(&spent, scores.tasks.len(), scores.wins()),
            stages: text::stage_rows(&spent).into_iter().skip(1).collect(),
            members: scores.tasks.iter().enumerate().map(|(at, task)| Member::of(at, task)).collect(),
            unreadable: input.unreadable.to_vec(),
            reproduction: input.facts.to_vec(),
        }
    }
}

impl ScoresView {
    fn of(table: &ScoreTable, title: String) -> Self {
        let first = table.groups.first().map(|group| group.scores.as_slice()).unwrap_or_default();
        let row = |(at, score): (usize, &crate::scores::Score)| {
            let values = table.groups.iter().map(|group| text::estimate(group.scores[at].estimate.as_ref()));
            (score.measure.clone(), values.collect())
        };
        Self {
            title,
            groups: table.groups.iter().map(|group| format!("{} (n = {})", group.name, group.tasks)).collect(),
            rows: first.iter().enumerate().map(row).collect(),
            formulas: first.iter().map(|score| (score.measure.clone(), score.formula.clone())).collect(),
        }
    }
}

impl Member {
    fn of(at: usize, task: &TaskScore) -> Self {
        let over = |(name, speedup): &(String, Option<metrics::Speedup>)| {
            Some(format!("{} over {name}", quantity::speedup(speedup.as_ref()?)))
        };
        Self {
            id: format!("task-{at}"),
            name: task.task.clone(),
            kind: match (&task.speedup, task.state) {
                (Some(_), _) => "passed",
                (None, State::Open | State::NotBegun) => "open",
                (None, State::Ended | State::BrokenOff) => "failed",
            },
            outcome: text::outcome(task),
            begun: task.state != State::NotBegun,
            rounds: task.rounds,
            passed: task.passed,
            round: task.round,
            cost: text::cost(&task.spent),
            time: quantity::wait(task.spent.wall_ms),
            defects: task.defects.clone(),
            over: task.over.iter().filter_map(over).collect(),
        }
    }
}

/// How far the tasks have come.
fn so_far(scores: &RunScores) -> SoFar {
    let mut so_far = SoFar::default();
    for task in &scores.tasks {
        so_far.count(task.state == State::Ended, (task.speedup.as_ref(), task.only_as_drawn), task.best.as_ref());
    }
    so_far
}

/// The tables of what is certified; of a run that has not ended first what there is, and those only where there is any.
fn tables(scores: &RunScores, so_far: &SoFar) -> Vec<ScoresView> {
    let certified =
        scores.tables().into_iter().map(|table| ScoresView::of(&table, format!("Speedup s over {}", table.baseline)));
    if so_far.is_whole() {
        return certified.collect();
    }
    let now = scores.so_far();
    let now = ScoresView::of(&now, format!("So far, tasks that have begun: speedup s over {}", now.baseline));
    let counted = certified.filter(|_| so_far.certified > 0);
    [now]
        .into_iter()
        .chain(counted.map(|view| ScoresView { title: format!("Certified alone: {}", lower(&view.title)), ..view }))
        .collect()
}

/// A heading that goes on after a colon.
fn lower(title: &str) -> String {
    title.replacen('S', "s", 1)
}

fn warnings(scores: &RunScores, simulated: bool) -> Vec<String> {
    let count = |state| scores.tasks.iter().filter(|task| task.state == state).count();
    let mut warnings = vec![];
    if simulated {
        warnings.push("This run was simulated: no kernel ran, and its numbers say nothing about any machine.".into());
    }
    for (state, words) in [(State::BrokenOff, "Broke off"), (State::Open, "Not ended"), (State::NotBegun, "Not begun")]
    {
        if count(state) > 0 {
            let of = scores.tasks.len();
            warnings.push(format!("{words}: {} of {of} tasks.", count(state)));
        }
    }
    let mut limits: Vec<&str> = scores.tasks.iter().filter_map(|task| task.limit).collect();
    limits.sort_unstable();
    for limit in limits.chunk_by(|a, b| a == b) {
        warnings.push(format!("Ended at the limit {}: {} of {} tasks.", limit[0], limit.len(), scores.tasks.len()));
    }
    warnings
}

fn facts(scores: &RunScores, spent: &Spent) -> Vec<(String, String)> {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let precisions: BTreeSet<&str> =
        scores.tasks.iter().filter_map(|task| task.precision).map(Precision::torch_name).collect();
    let mut facts = vec![
        fact("Answered by", scores.model.clone()),
        fact("Machine", scores.machine.clone()),
        fact("Policy", scores.policy.clone()),
        fact("Cost", text::cost(spent)),
        fact("Devices were held", quantity::wait(spent.device_ms)),
    ];
    if !precisions.is_empty() {
        let all: Vec<&str> = precisions.into_iter().collect();
        facts.insert(2, fact("Weights and inputs", all.join(", ")));
    }
    facts
}

/// Where the time of all tasks went, task by task.
fn parts(spent: &Spent) -> Vec<(usize, String, u64)> {
    let parts = spent.times().into_iter().enumerate().map(|(at, (name, _, ms))| (at, name.to_owned(), ms));
    parts.filter(|(_, _, ms)| *ms > 0).collect()
}

/// What it took: in all, a task, a win.
fn took(spent: &Spent, tasks: usize, wins: usize) -> Vec<[String; 4]> {
    text::took_rows(spent, tasks, wins).into_iter().skip(1).filter_map(|row| row.try_into().ok()).collect()
}
