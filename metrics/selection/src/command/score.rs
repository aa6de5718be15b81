//! `warpsmith-metrics score`: how well does a set that was chosen on some tasks rank the kernels of another?

use super::{Wrong, say};
use crate::{
    Evidence, Rule, Wish,
    cli::ScoreArgs,
    score::{Contender, Score, contenders, leave_one_out},
};
use metrics::MetricSet;
use serde::Serialize;

/// Scores all contenders, and prints a line each.
pub(super) fn score(arguments: &ScoreArgs) -> Result<(), Wrong> {
    let (evidence, _) = super::evidence(&arguments.profiles)?;
    if evidence.tasks.len() < 2 {
        return Err(Wrong::new("leaving a task out needs profiles of at least two tasks"));
    }
    let wish = super::wish(&arguments.profiles);
    let mut lines = vec![];
    for name in &arguments.set {
        let set = MetricSet::of_name_or_file(name, |file| std::fs::read_to_string(file)).map_err(Wrong)?;
        let contender = Contender::Fixed(known(&set, &evidence));
        let scored = Line::of(&set.name, &leave_one_out(&evidence, &contender));
        lines.push(Line { chosen_on: chosen_on(&set, &evidence), ..scored });
    }
    for (name, contender) in contenders(&wish) {
        lines.push(Line::of(&name, &leave_one_out(&evidence, &contender)));
    }
    lines.push(random(&evidence, &wish, arguments.seeds));
    if arguments.json {
        say(&serde_json::to_string_pretty(&lines).unwrap_or_default());
        return Ok(());
    }
    print(&lines, &evidence);
    Ok(())
}

/// The set's metrics that were read, and for those that were not what stands for them on this architecture.
fn known(set: &MetricSet, evidence: &Evidence) -> Vec<String> {
    let capability = evidence.setups.iter().next().map(|setup| capability(&setup.architecture)).unwrap_or_default();
    let there = |name: &&String| evidence.find(name).is_some();
    let mut names: Vec<String> = vec![];
    for metric in &set.metric {
        let found = Some(&metric.name).filter(there).or_else(|| metric.nearest.get(&capability).filter(there));
        names.extend(found.filter(|name| !names.contains(name)).cloned().into_iter().collect::<Vec<_>>());
    }
    names
}

/// The tasks here that the set was chosen on: its scores there are no proof, for it has seen their kernels.
fn chosen_on(set: &MetricSet, evidence: &Evidence) -> Vec<String> {
    let from = set.provenance.iter().flat_map(|provenance| &provenance.task);
    from.map(|task| task.name.clone()).filter(|name| evidence.tasks.iter().any(|task| task.name == *name)).collect()
}

/// `9.0` of `sm_90`.
fn capability(architecture: &str) -> String {
    let digits = architecture.trim_start_matches("sm_").trim_end_matches(char::is_alphabetic);
    let (major, minor) = digits.split_at(digits.len().saturating_sub(1));
    format!("{major}.{minor}")
}

/// How one set did, over all left-out tasks.
#[derive(Debug, Serialize)]
struct Line {
    set: String,
    /// Metrics that speak, on average over the left-out tasks.
    metrics: f64,
    spearman: Spread,
    kendall: f64,
    ridge: f64,
    /// Spearman's rho of each left-out task.
    tasks: Vec<(String, f64)>,
    /// Those of them that the set was chosen on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chosen_on: Vec<String>,
}

/// A mean, and how far it goes down and up: over the left-out tasks, or over the seeds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    mean: f64,
    low: f64,
    high: f64,
}

impl Line {
    fn of(set: &str, scores: &[Score]) -> Self {
        let each = |of: fn(&Score) -> f64| scores.iter().map(of).collect::<Vec<_>>();
        Self {
            set: set.to_owned(),
            metrics: Spread::of(&each(|score| score.metrics as f64)).mean,
            spearman: Spread::of(&each(|score| score.spearman)),
            kendall: Spread::of(&each(|score| score.kendall)).mean,
            ridge: Spread::of(&each(|score| score.ridge)).mean,
            tasks: scores.iter().map(|score| (score.task.clone(), score.spearman)).collect(),
            chosen_on: vec![],
        }
    }
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        let (low, high) =
            values.iter().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
        Self { mean: values.iter().sum::<f64>() / values.len().max(1) as f64, low, high }
    }
}

/// Sets drawn by lot: the mean over the seeds, and how far single ones go.
fn random(evidence: &Evidence, wish: &Wish, seeds: usize) -> Line {
    let draw = |seed: usize| {
        let wish = Wish { rule: Rule::Random, seed: seed as u64, ..*wish };
        Line::of("", &leave_one_out(evidence, &Contender::Chosen(wish)))
    };
    let lines: Vec<Line> = (1..=seeds).map(draw).collect();
    let over = |of: fn(&Line) -> f64| Spread::of(&lines.iter().map(of).collect::<Vec<_>>());
    let task = |at: usize| lines.iter().map(|line| line.tasks[at].1).sum::<f64>() / lines.len() as f64;
    Line {
        set: format!("random {}, {seeds} seeds", wish.want),
        metrics: over(|line| line.metrics).mean,
        spearman: over(|line| line.spearman.mean),
        kendall: over(|line| line.kendall).mean,
        ridge: over(|line| line.ridge).mean,
        tasks: evidence.tasks.iter().enumerate().map(|(at, name)| (name.name.clone(), task(at))).collect(),
        chosen_on: vec![],
    }
}

fn print(lines: &[Line], evidence: &Evidence) {
    let widest = lines.iter().map(|line| line.set.len()).max().unwrap_or(0);
    let tasks: Vec<&str> = evidence.tasks.iter().map(|task| task.name.as_str()).collect();
    say(&format!(
        "{:<widest$}  metrics  Spearman      low to high  Kendall   ridge  each left-out task ({})",
        "set",
        tasks.join(", ")
    ));
    for line in lines {
        let mark = |task: &String| if line.chosen_on.contains(task) { "*" } else { "" };
        let each: Vec<String> = line.tasks.iter().map(|(task, rho)| format!("{rho:+.2}{}", mark(task))).collect();
        let Spread { mean, low, high } = line.spearman;
        say(&format!(
            "{:<widest$}  {:>7.1}  {mean:>+8.3}  {low:>+6.3} to {high:>+6.3}  {:>+7.3}  {:>+6.3}  {}",
            line.set,
            line.metrics,
            line.kendall,
            line.ridge,
            each.join(" ")
        ));
    }
    if lines.iter().any(|line| !line.chosen_on.is_empty()) {
        say("* the set was chosen on this task, too: how it ranks kernels that it has seen is no proof");
    }
}
