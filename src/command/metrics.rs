//! `warpsmith metrics`: which metrics tell a fast kernel from a slow one?

mod sample;
mod show;

use crate::{
    cli::Metrics,
    config::Layers,
    exit::{Exit, Trouble},
};
use metrics::MetricSet;
use std::path::Path;

/// Does what is asked about metrics.
pub(super) fn metrics(what: &Metrics, layers: Layers) -> Result<Exit, Trouble> {
    match what {
        Metrics::Sample(arguments) => sample::sample(arguments, layers),
        Metrics::Show(arguments) => show::show(arguments),
    }
}

/// The set of this name, or in this file.
fn set(name: &str) -> Result<MetricSet, Trouble> {
    if name == "cudaforge24" {
        return Ok(MetricSet::cudaforge24());
    }
    let text = std::fs::read_to_string(Path::new(name))
        .map_err(|e| Trouble::usage(format!("{name}: {e}; expected a file of a set, or cudaforge24")))?;
    MetricSet::parse(&text).map_err(|why| Trouble::usage(format!("{name}: {why}")))
}
