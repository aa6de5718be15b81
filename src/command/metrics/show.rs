//! `warpsmith metrics show`: a set as a table

use super::super::{json, say};
use crate::{
    cli::MetricsShowArgs,
    exit::{Exit, Trouble},
};
use metrics::{Metric, MetricSet};

/// Prints it.
pub(super) fn show(arguments: &MetricsShowArgs) -> Result<Exit, Trouble> {
    let set =
        MetricSet::of_name_or_file(&arguments.set, |file| std::fs::read_to_string(file)).map_err(Trouble::usage)?;
    if arguments.json {
        say(&json(&set));
        return Ok(Exit::Done);
    }
    head(&set);
    let widest = set.metric.iter().map(|metric| metric.name.len()).max().unwrap_or(0);
    say(&format!("{:>3}  {:<widest$}  {:>6}  {:>17}  meaning", "", "metric", "score", "r, task by task"));
    for (at, metric) in set.metric.iter().enumerate() {
        say(row(at + 1, metric, widest).trim_end());
        for (capability, near) in &metric.nearest {
            say(&format!("     on {capability}: {near}"));
        }
    }
    Ok(Exit::Done)
}

fn head(set: &MetricSet) {
    say(&format!("{}: {} metrics", set.name, set.metric.len()));
    let Some(from) = &set.provenance else { return };
    say(&format!("rule {}, {} wanted: {}", from.rule, from.want, from.cut));
    let tasks: Vec<String> = from.task.iter().map(|task| format!("{} ({} kernels)", task.name, task.kernels)).collect();
    say(&format!(
        "{} on {}, ncu {}: {}",
        from.architecture,
        from.gpu.join(", "),
        from.ncu.join(", "),
        tasks.join(", ")
    ));
}

fn row(at: usize, metric: &Metric, widest: usize) -> String {
    let score = metric.score.map_or_else(String::new, |score| format!("{score:.3}"));
    let (low, high) =
        metric.r.values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), r| (low.min(*r), high.max(*r)));
    let range = if metric.r.is_empty() { String::new() } else { format!("{low:+.3} to {high:+.3}") };
    format!("{at:>3}  {:<widest$}  {score:>6}  {range:>17}  {}", metric.name, metric.meaning)
}
