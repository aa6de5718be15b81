//! How do scores read in a terminal?

use super::{RunScores, ScoreTable, Spent, State, TaskScore, spent::StageTime, table::Score};
use crate::{
    progress::{correct, plain},
    quantity,
};
use metrics::scores::Estimate;
use std::fmt::Write;

/// Everything: what ran, the tables with their formulas, the tasks, and what it took.
pub(super) fn run(run: &RunScores) -> String {
    let mut text = opening(run);
    for table in run.tables() {
        let _ = write!(text, "\nSpeedup s over {}, n tasks in brackets\n{}", plain(&table.baseline), scores(&table));
    }
    text += "\ns is the certified speedup; a task without a certificate is a failure. In brackets after a value: 95 % of \
             its values when tasks are drawn anew from these (2000 times); fewer than 6 tasks have none.\n";
    let _ = write!(text, "\nTasks\n{}", tasks(&run.tasks));
    let _ = write!(text, "\nWhat it took\n{}", took(&run.spent(), run.tasks.len(), run.wins()));
    let stages = stage_rows(&run.spent());
    if stages.len() > 1 {
        let _ = write!(text, "\nWhere device time went, in seconds\n{}", columns(&stages));
    }
    text
}

fn opening(run: &RunScores) -> String {
    let count = |fits: fn(&TaskScore) -> bool| run.tasks.iter().filter(|task| fits(task)).count();
    let ended = count(|task| task.state == State::Ended);
    let mut text = format!(
        "{}: {} tasks, {ended} ended, {}, {} faster than {}\nanswered by {}, policy {}, on {}\n",
        plain(&run.run),
        run.tasks.len(),
        correct(count(|task| task.speedup.is_some()), count(|task| task.only_as_drawn)),
        run.wins(),
        plain(&super::table::own_name(&run.tasks)),
        plain(&run.model),
        plain(&run.policy),
        plain(&run.machine),
    );
    if run.simulated {
        text += "simulated: nothing was built or run, and these numbers say nothing about any machine\n";
    }
    if ended < run.tasks.len() {
        let _ =
            writeln!(text, "not ended, counted as failures: {} of {} tasks", run.tasks.len() - ended, run.tasks.len());
    }
    text
}

/// A table of scores: a line a measure, a column a group, the formulas last.
pub(crate) fn scores(table: &ScoreTable) -> String {
    let heads = table.groups.iter().map(|group| format!("{} ({})", group.name, group.tasks));
    let head: Vec<String> = [String::from("measure")].into_iter().chain(heads).chain(["formula".into()]).collect();
    let measures = table.groups.first().map(|group| group.scores.as_slice()).unwrap_or_default();
    let line = |(at, score): (usize, &Score)| {
        let values = table.groups.iter().map(|group| estimate(group.scores[at].estimate.as_ref()));
        let name = [score.measure.clone()].into_iter();
        name.chain(values).chain([score.formula.clone()]).collect::<Vec<_>>()
    };
    columns(&[head].into_iter().chain(measures.iter().enumerate().map(line)).collect::<Vec<_>>())
}

/// A value with its interval, where it has one: `0.700 [0.400, 1.000]`.
pub(crate) fn estimate(estimate: Option<&Estimate>) -> String {
    let Some(Estimate { value, interval }) = estimate else { return "-".into() };
    let interval = interval.map(|interval| format!(" [{:.3}, {:.3}]", interval.low, interval.high));
    format!("{value:.3}{}", interval.unwrap_or_default())
}

fn tasks(tasks: &[TaskScore]) -> String {
    let head = ["task", "outcome", "rounds", "passed", "cost", "time"].map(str::to_owned).to_vec();
    let line = |task: &TaskScore| {
        let defect = if task.defects.is_empty() { "" } else { " (defective)" };
        vec![
            format!("{}{defect}", task.task),
            outcome(task),
            task.rounds.to_string(),
            task.passed.to_string(),
            cost(&task.spent),
            quantity::wait(task.spent.wall_ms),
        ]
    };
    columns(&[head].into_iter().chain(tasks.iter().map(line)).collect::<Vec<_>>())
}

/// A task's outcome in a few words.
pub(crate) fn outcome(task: &TaskScore) -> String {
    let unfinished = match task.state {
        State::Ended => "",
        State::BrokenOff => ", broken off",
        State::Open => ", not ended",
        State::NotBegun => return "not begun".into(),
    };
    let words = match (&task.speedup, &task.best) {
        (Some(speedup), _) => {
            let beyond = if task.only_as_drawn { ", only on inputs as drawn" } else { "" };
            format!("{}, {}{beyond}", quantity::speedup(speedup), quantity::claim(speedup))
        }
        (None, Some(best)) => format!("not certified, {} in a round", quantity::ratio(best)),
        (None, None) if task.refused > 0 => "refused when certified".into(),
        (None, None) => "nothing correct".into(),
    };
    words + unfinished
}

/// What the calls cost, as far as it is known.
pub(crate) fn cost(spent: &Spent) -> String {
    match spent.unpriced_calls {
        0 => quantity::usd(spent.usd),
        unknown if unknown == spent.calls => "price unknown".into(),
        unknown => format!("{} and {unknown} calls of unknown price", quantity::usd(spent.usd)),
    }
}

fn took(spent: &Spent, tasks: usize, wins: usize) -> String {
    columns(&took_rows(spent, tasks, wins))
}

/// What it took as lines of four cells, a head first: what, in all, a task, a win.
pub(crate) fn took_rows(spent: &Spent, tasks: usize, wins: usize) -> Vec<Vec<String>> {
    let mut rows =
        vec![["", "in all", "a task (in all / tasks)", "a win (in all / faster tasks)"].map(str::to_owned).to_vec()];
    let per = |of: usize, one: &dyn Fn(f64) -> String| if of == 0 { "-".into() } else { one(of as f64) };
    let mut row = |name: &str, all: String, part: &dyn Fn(f64) -> String| {
        rows.push(vec![name.to_owned(), all, per(tasks, part), per(wins, part)]);
    };
    let shared = |of: f64| if spent.unpriced_calls > 0 { "-".into() } else { quantity::usd(spent.usd / of) };
    row("dollars", cost(spent), &shared);
    let calls = spent.calls;
    row("model calls", quantity::count(calls), &|of| format!("{:.1}", calls as f64 / of));
    for (name, tokens) in [
        ("tokens in", spent.input_tokens),
        ("  of these cached", spent.cached_tokens),
        ("tokens out", spent.output_tokens),
    ] {
        let all = match spent.uncounted_calls {
            0 => quantity::count(tokens),
            all if all == calls => "not counted".into(),
            some => format!("{} and {some} calls not counted", quantity::count(tokens)),
        };
        row(name, all, &|of| {
            if spent.uncounted_calls > 0 { "-".into() } else { quantity::count((tokens as f64 / of) as u64) }
        });
    }
    let time = |ms: u64| move |of: f64| quantity::wait((ms as f64 / of) as u64);
    row("device seconds", seconds(spent.device_ms), &|of| format!("{:.1}", spent.device_ms as f64 / 1e3 / of));
    row("  of these alone", seconds(spent.exclusive_ms), &|of| format!("{:.1}", spent.exclusive_ms as f64 / 1e3 / of));
    row("time, task by task", quantity::wait(spent.wall_ms), &time(spent.wall_ms));
    for (name, _, ms) in spent.times().into_iter().filter(|(_, _, ms)| *ms > 0) {
        let share = 100.0 * ms as f64 / spent.wall_ms.max(1) as f64;
        row(&format!("  {name}"), format!("{} ({share:.1} %)", quantity::wait(ms)), &time(ms));
    }
    rows
}

/// Device time by stage as lines of five cells, a head first: while it was held alone, beside others, and not at all.
pub(crate) fn stage_rows(spent: &Spent) -> Vec<Vec<String>> {
    let rounds = spent.staged.max(1) as f64;
    let row = |name: &str, time: StageTime| {
        let held = (time.exclusive_us + time.shared_us) as f64 / 1e6 / rounds;
        let cells = [time.exclusive_us, time.shared_us, time.free_us].map(|us| seconds(us / 1000));
        [name.to_owned()].into_iter().chain(cells).chain([format!("{held:.2}")]).collect::<Vec<_>>()
    };
    let head = ["stage", "held alone", "held beside others", "not held", "held, a candidate"].map(str::to_owned);
    let all = spent.stages.iter().map(|(stage, time)| row(stage.name(), *time));
    [head.to_vec()].into_iter().chain(all).collect()
}

fn seconds(ms: u64) -> String {
    format!("{:.1}", ms as f64 / 1e3)
}

/// Lines of cells under one another.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let cells = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..cells).map(|column| if column + 1 == cells { 0 } else { width(column) }).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}", plain(cell)));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}
