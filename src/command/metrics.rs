//! `warpsmith metrics`: which metrics tell a fast kernel from a slow one?

mod sample;
mod show;

use crate::{
    cli::{HandedOver, Metrics, MetricsArgs},
    config::Layers,
    exit::{Exit, Trouble},
    handover::Companion,
};
use std::ffi::OsString;

/// Does what is asked about metrics, or has it done by `warpsmith-metrics`.
pub(super) fn metrics(arguments: &MetricsArgs, layers: Layers) -> Result<Exit, Trouble> {
    match &arguments.what {
        Metrics::Sample(what) => sample::sample(what, layers, arguments.build),
        Metrics::Show(what) => show::show(what),
        Metrics::Select(what) => hand_over("select", what, arguments.build),
        Metrics::Score(what) => hand_over("score", what, arguments.build),
        Metrics::Report(what) => hand_over("report", what, arguments.build),
    }
}

/// Becomes `warpsmith-metrics`: what that says and how it ends is what this command says and how it ends.
fn hand_over(command: &str, what: &HandedOver, build: bool) -> Result<Exit, Trouble> {
    let (asked, words): (Vec<OsString>, Vec<OsString>) =
        what.arguments.iter().cloned().partition(|word| word == "--build");
    Err(Companion::metrics(build || !asked.is_empty())?.replace(command, &words))
}
