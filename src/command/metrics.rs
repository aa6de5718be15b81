//! `warpsmith metrics`: which metrics tell a fast kernel from a slow one?

mod report;
mod sample;
mod score;
mod select;
mod show;

use crate::{
    cli::{Metrics, ProfilesArgs},
    config::Layers,
    exit::{Exit, Trouble},
};
use kernelbench::Hash;
use metrics::{MetricSet, set::Data};
use selection::{Evidence, Rule, Table, TableError, Wish};
use std::path::Path;

/// Does what is asked about metrics.
pub(super) fn metrics(what: &Metrics, layers: Layers) -> Result<Exit, Trouble> {
    match what {
        Metrics::Sample(arguments) => sample::sample(arguments, layers),
        Metrics::Select(arguments) => select::select(arguments),
        Metrics::Score(arguments) => score::score(arguments),
        Metrics::Show(arguments) => show::show(arguments),
        Metrics::Report(arguments) => report::report(arguments),
    }
}

/// The set of this name, or in this file.
fn set(name: &str) -> Result<MetricSet, Trouble> {
    if let Some(set) = MetricSet::known(name).filter(|set| !set.is_full()) {
        return Ok(set);
    }
    let text = std::fs::read_to_string(Path::new(name))
        .map_err(|e| Trouble::usage(format!("{name}: {e}; expected a file of a set, or cudaforge24, hopper24")))?;
    MetricSet::parse(&text).map_err(|why| Trouble::usage(format!("{name}: {why}")))
}

/// What the tables say, and which files they are.
fn evidence(arguments: &ProfilesArgs) -> Result<(Evidence, Vec<Data>), Trouble> {
    let (mut tables, mut data) = (vec![], vec![]);
    for path in &arguments.profiles {
        let bytes = std::fs::read(path).map_err(|e| Trouble::usage(format!("{}: {e}", path.display())))?;
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        data.push(Data { file, sha256: Hash::of(&bytes).to_string() });
        tables.push((path.as_path(), Table::of_bytes(path, bytes)?));
    }
    let table = Table::joined(tables)?;
    Ok((Evidence::of(&table, arguments.present).map_err(Trouble::usage)?, data))
}

/// What the flags ask for.
fn wish(arguments: &ProfilesArgs) -> Wish {
    Wish {
        rule: Rule::Stable,
        want: arguments.want,
        top: arguments.top,
        tasks: arguments.tasks,
        percentile: arguments.percentile,
        collinear: arguments.collinear,
        seed: 1,
    }
}

impl From<TableError> for Trouble {
    fn from(error: TableError) -> Self {
        Self::usage(error.to_string())
    }
}
