//! How does each metric go with the runtime, task by task?

mod columns;

use crate::{
    name::{Nothing, nothing},
    table::{Setup, Table},
};
use std::collections::BTreeSet;

/// The share of a task's kernels that must have a value.
pub const PRESENT: f64 = 0.8;
/// A metric that goes with the runtime as closely as this in every task is the runtime under another name.
pub const SAME_AS_RUNTIME: f64 = 0.999;

/// What the profiles of all tasks say.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The tasks, in the order of their names.
    pub tasks: Vec<Task>,
    /// Every metric that was read anywhere, in the order of their names.
    pub columns: Vec<Column>,
    /// Where it was profiled: one architecture.
    pub setups: BTreeSet<Setup>,
}

/// The kernels of a task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// Its kernels, in the order of their hashes.
    pub kernels: Vec<String>,
    /// Their times, in nanoseconds.
    pub runtimes: Vec<f64>,
}

/// One metric over all tasks.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The base unit of its values.
    pub unit: String,
    /// What it says in each task; `None` where it has too few values there, or one and the same.
    pub said: Vec<Option<Said>>,
    /// Why it is no evidence at all, if so.
    pub out: Option<Out>,
}

/// Why a metric is no evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Out {
    /// Hardly ever a value.
    Missing,
    /// Always the same value.
    Constant,
    /// Values in units that cannot be compared.
    Units,
    /// About the machine or the profiler, by its name.
    Machine,
    /// The runtime under another name, by its name.
    Runtime,
    /// The runtime under another name, by its values.
    LikeRuntime,
}

/// What a metric says in one task.
#[derive(Clone, Debug)]
pub struct Said {
    /// Pearson's correlation with the runtime.
    pub r: f64,
    /// Spearman's.
    pub rho: f64,
    /// Its values in the base unit, a kernel each.
    pub values: Vec<Option<f64>>,
    /// Its values as a vector of mean 0 and length 1; 0 where there is no value.
    pub z: Vec<f64>,
}

impl Out {
    /// In a few words, as a set's file says it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Missing => "mostly missing",
            Self::Constant => "constant",
            Self::Units => "units that cannot be compared",
            Self::Machine => "about the machine or the profiler",
            Self::Runtime => "the runtime, by its name",
            Self::LikeRuntime => "the runtime, by its values",
        }
    }
}

impl Evidence {
    /// What the table says, where a metric needs values of this share of a task's kernels to speak there.
    ///
    /// # Errors
    ///
    /// In words: where profiles of several architectures are mixed, and where a task has too few kernels to compare.
    pub fn of(table: &Table, present: f64) -> Result<Self, String> {
        let (tasks, setups) = columns::tasks(table)?;
        let mut evidence = Self { columns: columns::columns(table, &tasks, present)?, tasks, setups };
        let several = evidence.tasks.len();
        for column in &mut evidence.columns {
            column.out = column.out.or_else(|| out(column, several));
        }
        Ok(evidence)
    }

    /// The metrics that are evidence in at least one of these tasks.
    #[must_use]
    pub fn eligible(&self, tasks: &[usize]) -> Vec<usize> {
        let speaks = |column: &Column| column.out.is_none() && tasks.iter().any(|task| column.said[*task].is_some());
        (0..self.columns.len()).filter(|at| speaks(&self.columns[*at])).collect()
    }

    /// The metric of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.columns.binary_search_by(|column| column.name.as_str().cmp(name)).ok()
    }

    /// The metrics that are the runtime under another name.
    #[must_use]
    pub fn runtime(&self) -> Vec<String> {
        let runtime = |column: &&Column| matches!(column.out, Some(Out::Runtime | Out::LikeRuntime));
        self.columns.iter().filter(runtime).map(|column| column.name.clone()).collect()
    }

    /// All tasks, by their places.
    #[must_use]
    pub fn all(&self) -> Vec<usize> {
        (0..self.tasks.len()).collect()
    }
}

impl Column {
    /// Pearson's correlations in these tasks, where it speaks.
    pub fn r<'a>(&'a self, tasks: &'a [usize]) -> impl Iterator<Item = f64> + 'a {
        tasks.iter().filter_map(|task| self.said[*task].as_ref()).map(|said| said.r)
    }

    /// The global score of the authors' public rule: the mean of |r| over these tasks; 0 where it does not speak.
    #[must_use]
    pub fn mean_abs_r(&self, tasks: &[usize]) -> f64 {
        self.r(tasks).map(f64::abs).sum::<f64>() / tasks.len() as f64
    }

    /// Its vectors of these tasks, one behind the other; 0 where it does not speak.
    #[must_use]
    pub fn pooled(&self, evidence: &Evidence, tasks: &[usize]) -> Vec<f64> {
        let mut pooled = vec![];
        for task in tasks {
            let kernels = evidence.tasks[*task].runtimes.len();
            match &self.said[*task] {
                Some(said) => pooled.extend(&said.z),
                None => pooled.extend(std::iter::repeat_n(0.0, kernels)),
            }
        }
        pooled
    }
}

fn out(column: &Column, tasks: usize) -> Option<Out> {
    match nothing(&column.name) {
        Some(Nothing::Machine) => Some(Out::Machine),
        Some(Nothing::Runtime) => Some(Out::Runtime),
        None => {
            let like = column.said.iter().flatten().filter(|said| said.r.abs() >= SAME_AS_RUNTIME).count();
            (tasks > 1 && like == tasks).then_some(Out::LikeRuntime)
        }
    }
}
