//! How does a comparison read in a terminal?

use super::{Comparison, Difference, PairedMeasure, PairedTask, TaskChange};
use crate::{
    progress::plain,
    quantity,
    scores::text::{columns, cost, estimate},
};
use metrics::scores::{Change, Estimate};
use std::fmt::Write;

/// Doubts, measures, tasks and costs, the runs side by side.
pub(super) fn comparison(comparison: &Comparison) -> String {
    let mut text = String::new();
    for doubt in &comparison.doubts {
        let _ = writeln!(text, "beware: {}", plain(doubt));
    }
    text += &ways(comparison);
    let count = comparison.tasks.len();
    let _ = write!(text, "\n{count} tasks, paired\n{}", measures(comparison));
    text += "\nAfter a value: 95 % of its values when tasks are drawn anew (2000 times). A difference is drawn in pairs; one \
             whose interval holds 0 (a ratio: 1) is no difference. Fewer than 6 tasks have no interval.\n";
    let _ = write!(text, "\nTask by task\n{}", tasks(comparison));
    let _ = write!(text, "\nWhat it took\n{}", took(comparison));
    text
}

/// How each run worked, a line each.
fn ways(comparison: &Comparison) -> String {
    let each = comparison.names.iter().zip(&comparison.policies).zip(&comparison.models);
    let rows = each.map(|((name, policy), model)| {
        vec![name.clone(), format!("policy {}, answered by {}", plain(policy), plain(model))]
    });
    columns(&rows.collect::<Vec<_>>())
}

fn measures(comparison: &Comparison) -> String {
    let (first, others) = comparison.names.split_first().expect("a comparison has at least one run");
    let mut head = vec!["measure".to_owned(), first.clone()];
    head.extend(others.iter().flat_map(|name| [name.clone(), format!("beside {first}")]));
    head.push("formula".into());
    let mut rows = vec![head];
    rows.extend(comparison.measures.iter().map(measure));
    let ratios = comparison.ratios.iter().flat_map(|ratio| [String::new(), difference(ratio, ratio_of)]);
    let formula = "geometric mean of s here / s there over the tasks that both got right";
    let row = ["ratio".to_owned(), String::new()].into_iter().chain(ratios).chain([formula.to_owned()]);
    rows.push(row.collect());
    columns(&rows)
}

fn measure(measure: &PairedMeasure) -> Vec<String> {
    let mut row = vec![measure.measure.clone(), estimate(measure.values[0].as_ref())];
    for (value, beside) in measure.values.iter().skip(1).zip(&measure.differences) {
        row.extend([estimate(value.as_ref()), difference(beside, signed)]);
    }
    row.push(measure.formula.clone());
    row
}

fn difference(difference: &Difference, write: fn(&Estimate) -> String) -> String {
    let (Some(value), Some(change)) = (&difference.estimate, difference.change) else { return "-".into() };
    let words = match change {
        Change::Higher => "higher",
        Change::Lower => "lower",
        Change::NoDifference => "no difference",
        Change::TooFew => "too few to tell",
    };
    format!("{}, {words}", write(value))
}

fn signed(estimate: &Estimate) -> String {
    let interval = estimate.interval.map(|interval| format!(" [{:+.3}, {:+.3}]", interval.low, interval.high));
    format!("{:+.3}{}", estimate.value, interval.unwrap_or_default())
}

fn ratio_of(value: &Estimate) -> String {
    estimate(Some(value))
}

fn tasks(comparison: &Comparison) -> String {
    let mut head = vec!["task".to_owned()];
    head.extend(comparison.names.iter().cloned());
    let others = &comparison.names[1..];
    head.extend(others.iter().map(|name| format!("{name} is")));
    let row = |task: &PairedTask| {
        let speedups = task.speedups.iter().map(|s| s.as_ref().map_or_else(|| "failed".into(), quantity::speedup));
        let changes = task.changes.iter().map(|change| words(*change).to_owned());
        [task.task.clone()].into_iter().chain(speedups).chain(changes).collect()
    };
    columns(&[head].into_iter().chain(comparison.tasks.iter().map(row)).collect::<Vec<_>>())
}

/// A task's change in a word or two.
pub(crate) fn words(change: TaskChange) -> &'static str {
    match change {
        TaskChange::Faster => "faster",
        TaskChange::Slower => "slower",
        TaskChange::NoDifference => "no difference",
        TaskChange::SameCode => "the same code",
        TaskChange::Gained => "correct, not there",
        TaskChange::Lost => "failed, not there",
        TaskChange::Neither => "failed, as there",
    }
}

fn took(comparison: &Comparison) -> String {
    let head = [String::new()].into_iter().chain(comparison.names.iter().cloned()).collect();
    let row = |name: &str, of: &dyn Fn(&crate::scores::Spent) -> String| {
        [name.to_owned()].into_iter().chain(comparison.spent.iter().map(of)).collect::<Vec<_>>()
    };
    columns(&[
        head,
        row("dollars", &cost),
        row("model calls", &|spent| quantity::count(spent.calls)),
        row("tokens in", &|spent| quantity::count(spent.input_tokens)),
        row("tokens out", &|spent| quantity::count(spent.output_tokens)),
        row("device seconds", &|spent| format!("{:.1}", spent.device_ms as f64 / 1e3)),
        row("time, task by task", &|spent| quantity::wait(spent.wall_ms)),
    ])
}
