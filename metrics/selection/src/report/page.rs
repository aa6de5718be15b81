//! What stands on the page about profiles, from top to bottom?

use super::scatter::Panel;
use crate::{
    Evidence, Wish, choose,
    collinear::{Kept, distinct},
    evidence::{Out, Said},
};
use metrics::{catalog, quantity, set::Data};
use serde::Serialize;
use std::collections::BTreeMap;

/// Of how many metrics the values are drawn.
const DRAWN: usize = 8;

/// All of it.
#[derive(Serialize)]
pub(super) struct Page {
    facts: Vec<(String, String)>,
    top: usize,
    tasks: Vec<Table>,
    drawn: Vec<Drawn>,
    /// A row for each task: how many metrics its list shares with each task's.
    overlap: Vec<(String, Vec<usize>)>,
    shared: Vec<Shared>,
    shared_by_two: usize,
    chosen: Vec<Shared>,
    rule: &'static str,
    cut: String,
    left_out: Vec<(&'static str, usize)>,
    runtime: Vec<String>,
}

/// A task's list, as the paper's Tables 8 and 9.
#[derive(Serialize)]
struct Table {
    name: String,
    kernels: usize,
    fastest: String,
    slowest: String,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    meaning: String,
    r: String,
    size: String,
    rho: String,
    instead_of: usize,
}

/// A metric's values against the time, a panel each task.
#[derive(Serialize)]
struct Drawn {
    name: String,
    unit: String,
    panels: Vec<Option<Panel>>,
}

/// A metric and its correlation in each task.
#[derive(Serialize)]
struct Shared {
    name: String,
    meaning: String,
    r: Vec<Option<String>>,
    lists: usize,
}

impl Page {
    pub(super) fn of(evidence: &Evidence, data: &[Data], wish: &Wish) -> Self {
        let tasks = evidence.all();
        let kept = distinct(evidence, &tasks, &evidence.eligible(&tasks), wish.collinear);
        let lists: Vec<Vec<&Kept>> = tasks.iter().map(|task| list(evidence, &kept, *task, wish.top)).collect();
        let choice = choose(evidence, &tasks, wish);
        let chosen: Vec<usize> = choice.chosen.iter().map(|chosen| chosen.column).collect();
        let shared = shared(evidence, &lists);
        Self {
            facts: facts(evidence, data),
            top: wish.top,
            tasks: tasks.iter().map(|task| table(evidence, *task, &lists[*task])).collect(),
            drawn: kept.iter().take(DRAWN).map(|kept| drawn(evidence, kept.column)).collect(),
            overlap: overlap(evidence, &lists),
            shared_by_two: shared.len(),
            shared,
            chosen: chosen.iter().map(|column| row_over_tasks(evidence, *column, count(&lists, *column))).collect(),
            rule: wish.rule.name(),
            cut: choice.cut,
            left_out: left_out(evidence),
            runtime: evidence.runtime(),
        }
    }
}

/// The metrics of the highest |r| in a task.
fn list<'a>(evidence: &Evidence, kept: &'a [Kept], task: usize, top: usize) -> Vec<&'a Kept> {
    let said = |kept: &&Kept| evidence.columns[kept.column].said[task].as_ref().map(|said| said.r.abs());
    let mut list: Vec<(f64, &Kept)> = kept.iter().filter_map(|kept| Some((said(&kept)?, kept))).collect();
    list.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.column.cmp(&other.1.column)));
    list.into_iter().take(top).map(|(_, kept)| kept).collect()
}

fn facts(evidence: &Evidence, data: &[Data]) -> Vec<(String, String)> {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![];
    for setup in &evidence.setups {
        let words =
            format!("{} ({}), driver {}, Nsight Compute {}", setup.gpu, setup.architecture, setup.driver, setup.ncu);
        facts.push(fact("profiled on", words));
    }
    let read = evidence.columns.len();
    facts.push(fact("metrics", format!("{read} read, {} of them evidence", evidence.eligible(&evidence.all()).len())));
    facts.extend(data.iter().map(|data| fact("data", format!("{} (SHA-256 {})", data.file, data.sha256))));
    facts
}

fn table(evidence: &Evidence, task: usize, list: &[&Kept]) -> Table {
    let of = &evidence.tasks[task];
    let (low, high) =
        of.runtimes.iter().fold((f64::MAX, 0.0_f64), |(low, high), time| (low.min(*time), high.max(*time)));
    let row = |kept: &&Kept| {
        let column = &evidence.columns[kept.column];
        let said = column.said[task].as_ref()?;
        Some(Row {
            name: column.name.clone(),
            meaning: catalog::meaning(&column.name).into_owned(),
            r: signed(said.r),
            size: format!("{:.6}", said.r.abs()),
            rho: format!("{:+.3}", said.rho),
            instead_of: kept.instead_of.len(),
        })
    };
    Table {
        name: of.name.clone(),
        kernels: of.kernels.len(),
        fastest: quantity::time(low),
        slowest: quantity::time(high),
        rows: list.iter().filter_map(row).collect(),
    }
}

fn drawn(evidence: &Evidence, column: usize) -> Drawn {
    let column = &evidence.columns[column];
    let panel = |(task, said): (&crate::evidence::Task, &Option<Said>)| {
        said.as_ref().map(|said| Panel::of(&task.name, &said.values, &task.runtimes, said.r))
    };
    Drawn {
        name: column.name.clone(),
        unit: column.unit.clone(),
        panels: evidence.tasks.iter().zip(&column.said).map(panel).collect(),
    }
}

fn overlap(evidence: &Evidence, lists: &[Vec<&Kept>]) -> Vec<(String, Vec<usize>)> {
    let common =
        |one: &[&Kept], other: &[&Kept]| one.iter().filter(|kept| count(&[other.to_vec()], kept.column) > 0).count();
    let row = |at: usize| lists.iter().map(|other| common(&lists[at], other)).collect();
    evidence.tasks.iter().enumerate().map(|(at, task)| (task.name.clone(), row(at))).collect()
}

/// In how many lists a metric is.
fn count(lists: &[Vec<&Kept>], column: usize) -> usize {
    lists.iter().filter(|list| list.iter().any(|kept| kept.column == column)).count()
}

/// The metrics in at least two lists, those in the most lists first.
fn shared(evidence: &Evidence, lists: &[Vec<&Kept>]) -> Vec<Shared> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for kept in lists.iter().flatten() {
        *counts.entry(kept.column).or_default() += 1;
    }
    let mut often: Vec<(usize, usize)> = counts.into_iter().filter(|(_, lists)| *lists > 1).collect();
    often.sort_by_key(|(column, lists)| (usize::MAX - lists, *column));
    often.into_iter().map(|(column, lists)| row_over_tasks(evidence, column, lists)).collect()
}

fn row_over_tasks(evidence: &Evidence, column: usize, lists: usize) -> Shared {
    let column = &evidence.columns[column];
    let r = column.said.iter().map(|said| said.as_ref().map(|said| format!("{:+.2}", said.r))).collect();
    Shared { name: column.name.clone(), meaning: catalog::meaning(&column.name).into_owned(), r, lists }
}

fn left_out(evidence: &Evidence) -> Vec<(&'static str, usize)> {
    let mut counts: BTreeMap<Out, usize> = BTreeMap::new();
    for out in evidence.columns.iter().filter_map(|column| column.out) {
        *counts.entry(out).or_default() += 1;
    }
    counts.into_iter().map(|(out, count)| (out.word(), count)).collect()
}

/// As the paper prints it.
fn signed(r: f64) -> String {
    format!("{r:.6}").replace('-', "\u{2212}")
}
