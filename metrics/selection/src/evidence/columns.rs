//! How does a tidy table become one column of comparable numbers for each metric?

use super::{Column, Out, Said, Task};
use crate::table::{Setup, Table};
use metrics::unit;
use polars::prelude::*;
use polars_ops::{
    chunked_array::cov::pearson_corr,
    prelude::{RankMethod, RankOptions, SeriesRank},
};
use std::collections::{BTreeMap, BTreeSet};

/// The fewest kernels of a task whose correlation is looked at.
const FEWEST: usize = 4;
/// Values that differ by less than this share of the largest are one value.
const SAME: f64 = 1e-9;

/// The tasks of a table and where it was taken.
pub(super) fn tasks(table: &Table) -> Result<(Vec<Task>, BTreeSet<Setup>), String> {
    let kernels = table.frame.select(["task", "kernel", "runtime_ns", "architecture", "gpu", "driver", "ncu"]);
    let one_row_each = |kernels: DataFrame| {
        let names = ["task", "kernel"].map(str::to_owned);
        kernels.unique_stable(Some(&names), UniqueKeepStrategy::First, None)
    };
    let kernels = kernels.and_then(one_row_each);
    let kernels = words(kernels.and_then(|kernels| kernels.sort(["task", "kernel"], SortMultipleOptions::default())))?;
    let text = |name: &str| words(kernels.column(name).and_then(|column| column.str()));
    let (task, kernel, time) =
        (text("task")?, text("kernel")?, words(kernels.column("runtime_ns").and_then(|c| c.f64()))?);
    let place = [text("architecture")?, text("gpu")?, text("driver")?, text("ncu")?];
    let (mut tasks, mut setups): (Vec<Task>, BTreeSet<Setup>) = (vec![], BTreeSet::new());
    for row in 0..kernels.height() {
        let name = task.get(row).unwrap_or_default();
        if tasks.last().is_none_or(|last| last.name != name) {
            tasks.push(Task { name: name.to_owned(), kernels: vec![], runtimes: vec![] });
        }
        if let Some(task) = tasks.last_mut() {
            task.kernels.push(kernel.get(row).unwrap_or_default().to_owned());
            task.runtimes.push(time.get(row).unwrap_or(f64::NAN));
        }
        let [architecture, gpu, driver, ncu] = place.map(|column| column.get(row).unwrap_or_default().to_owned());
        setups.insert(Setup { architecture, gpu, driver, ncu });
    }
    comparable(&tasks, &setups)?;
    Ok((tasks, setups))
}

fn comparable(tasks: &[Task], setups: &BTreeSet<Setup>) -> Result<(), String> {
    let architectures: BTreeSet<&str> = setups.iter().map(|setup| setup.architecture.as_str()).collect();
    if architectures.len() > 1 {
        let names = architectures.into_iter().collect::<Vec<_>>().join(" and ");
        return Err(format!("the profiles are of {names}; choose a set for one architecture at a time"));
    }
    for task in tasks {
        let kernels = task.runtimes.len();
        if kernels < FEWEST {
            return Err(format!(
                "{} has {kernels} kernels; expected at least {FEWEST} to correlate anything",
                task.name
            ));
        }
        if constant(&task.runtimes) {
            return Err(format!("all kernels of {} take equally long: nothing goes with that", task.name));
        }
    }
    Ok(())
}

/// Every metric of a table, with its correlations.
pub(super) fn columns(table: &Table, tasks: &[Task], present: f64) -> Result<Vec<Column>, String> {
    let values = words(in_base_units(table))?;
    let correlated = correlations(&values)?;
    let text = |name: &str| words(values.column(name).and_then(|column| column.str()));
    let (metric, task, kernel, unit) = (text("metric")?, text("task")?, text("kernel")?, text("base")?);
    let base = words(values.column("in_base").and_then(|column| column.f64()))?;
    let places: BTreeMap<&str, usize> = tasks.iter().enumerate().map(|(at, task)| (task.name.as_str(), at)).collect();
    let mut columns: Vec<Raw> = vec![];
    for row in 0..values.height() {
        let name = metric.get(row).unwrap_or_default();
        if columns.last().is_none_or(|last| last.name != name) {
            let empty = tasks.iter().map(|task| vec![None; task.kernels.len()]).collect();
            columns.push(Raw { name: name.to_owned(), units: BTreeSet::new(), values: empty });
        }
        let (Some(column), Some(value)) = (columns.last_mut(), base.get(row)) else { continue };
        let at = places[task.get(row).unwrap_or_default()];
        let kernel =
            tasks[at].kernels.binary_search_by(|known| known.as_str().cmp(kernel.get(row).unwrap_or_default()));
        column.values[at][kernel.map_err(|_| "a kernel is in one column and not in the other")?] = Some(value);
        if column.units.last().is_none_or(|last| Some(last.as_str()) != unit.get(row)) {
            column.units.insert(unit.get(row).unwrap_or_default().to_owned());
        }
    }
    Ok(columns.into_iter().map(|raw| raw.column(tasks, present, &correlated)).collect())
}

/// The rows in the order of metric, task and kernel, each value in its base unit.
fn in_base_units(table: &Table) -> PolarsResult<DataFrame> {
    let mut rows = table.frame.select(["task", "kernel", "runtime_ns", "metric", "unit", "value"])?;
    let printed = rows.column("unit")?.str()?;
    let known: BTreeMap<&str, (f64, String)> = printed.iter().flatten().map(|unit| (unit, unit::base(unit))).collect();
    let known = |unit: Option<&str>| unit.and_then(|unit| known.get(unit));
    let factor: Float64Chunked = printed.iter().map(|unit| known(unit).map(|(factor, _)| *factor)).collect();
    let base: StringChunked = printed.iter().map(|unit| known(unit).map(|(_, base)| base.as_str())).collect();
    let in_base = rows.column("value")?.f64()? * &factor;
    rows.with_column(in_base.with_name("in_base".into()).into_column())?;
    rows.with_column(base.with_name("base".into()).into_column())?;
    rows.sort(["metric", "task", "kernel"], SortMultipleOptions::default())
}

/// Pearson's and Spearman's correlation of each metric with the runtime, in each task.
type Correlations = BTreeMap<(String, String), (f64, f64)>;

/// Of rows in the order of metric and task.
fn correlations(values: &DataFrame) -> Result<Correlations, String> {
    let rows = words(values.column("in_base").and_then(|column| values.filter(&column.is_not_null())))?;
    let text = |name: &str| words(rows.column(name).and_then(|column| column.str()));
    let number = |name: &str| words(rows.column(name).and_then(|column| column.f64()));
    let (metric, task, in_base, time) = (text("metric")?, text("task")?, number("in_base")?, number("runtime_ns")?);
    let about = |row: usize| (metric.get(row).unwrap_or_default(), task.get(row).unwrap_or_default());
    let mut found = Correlations::new();
    let mut from = 0;
    while from < rows.height() {
        let (metric, task) = about(from);
        let many = (from..rows.height()).take_while(|row| about(*row) == (metric, task)).count();
        let at = i64::try_from(from).map_err(|e| format!("a table of {} rows: {e}", rows.height()))?;
        let (one, other) = (in_base.slice(at, many), time.slice(at, many));
        let r = pearson_corr(&one, &other).unwrap_or(f64::NAN);
        let rho = pearson_corr(&words(ranks(one))?, &words(ranks(other))?).unwrap_or(f64::NAN);
        found.insert((metric.to_owned(), task.to_owned()), (r, rho));
        from += many;
    }
    Ok(found)
}

/// The ranks of values, equal ones at the mean of theirs.
fn ranks(values: Float64Chunked) -> PolarsResult<Float64Chunked> {
    let by_mean = RankOptions { method: RankMethod::Average, descending: false };
    values.into_series().rank(by_mean, None).f64().cloned()
}

/// A metric's values in each task.
struct Raw {
    name: String,
    units: BTreeSet<String>,
    values: Vec<Vec<Option<f64>>>,
}

impl Raw {
    fn column(self, tasks: &[Task], present: f64, correlated: &Correlations) -> Column {
        let mut said = vec![];
        let mut enough = false;
        for (task, values) in tasks.iter().zip(self.values) {
            let there: Vec<f64> = values.iter().copied().flatten().collect();
            let many = there.len() >= FEWEST && there.len() as f64 >= present * values.len() as f64;
            enough |= many;
            let found = correlated.get(&(self.name.clone(), task.name.clone()));
            let found = found.filter(|(r, rho)| many && r.is_finite() && rho.is_finite() && !constant(&there));
            said.push(found.map(|(r, rho)| Said { r: *r, rho: *rho, z: standard(&values), values }));
        }
        let out = match (self.units.len() > 1, enough, said.iter().any(Option::is_some)) {
            (true, ..) => Some(Out::Units),
            (_, false, _) => Some(Out::Missing),
            (_, true, false) => Some(Out::Constant),
            _ => None,
        };
        let unit = self.units.into_iter().next().unwrap_or_default();
        Column { name: self.name, unit, said, out }
    }
}

fn constant(values: &[f64]) -> bool {
    let (low, high) =
        values.iter().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    high - low <= SAME * low.abs().max(high.abs())
}

/// As a vector of mean 0 and length 1; 0 where there is no value.
fn standard(values: &[Option<f64>]) -> Vec<f64> {
    let there: Vec<f64> = values.iter().copied().flatten().collect();
    let mean = there.iter().sum::<f64>() / there.len() as f64;
    let length = there.iter().map(|value| (value - mean).powi(2)).sum::<f64>().sqrt();
    values.iter().map(|value| value.map_or(0.0, |value| (value - mean) / length)).collect()
}

fn words<T>(result: PolarsResult<T>) -> Result<T, String> {
    result.map_err(|e| format!("the table cannot be worked on: {e}"))
}
