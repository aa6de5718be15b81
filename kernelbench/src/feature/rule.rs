//! Choosing cells: which features do a profile and a task call for?

use super::{Cell, Column, Features, State};
use crate::task::{Source, Task};
use metrics::Profile;
use serde::Deserialize;

/// Something that calls for a cell: a kind of task, a reading of its profile, or both at once.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The kind of task, by a word of `operators.toml`.
    #[serde(default)]
    pub operator: Option<String>,
    /// The metric that is looked at.
    #[serde(default)]
    pub metric: Option<String>,
    /// It must read more than this.
    #[serde(default)]
    pub above: Option<f64>,
    /// It must read less than this.
    #[serde(default)]
    pub below: Option<f64>,
    /// How much it counts beside others.
    #[serde(default = "once")]
    pub weight: f64,
    /// What it says to a reader.
    pub why: String,
}

fn once() -> f64 {
    1.0
}

/// A cell that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice<'a> {
    /// Which.
    pub cell: &'a Cell,
    /// What called for it, in words.
    pub why: Vec<String>,
    /// The weights together.
    pub weight: f64,
}

impl Features {
    /// The cells of a column that a task and its profile call for, the heaviest first, at most so many. Where a metric
    /// of one of its rules was read, the kind of task alone does not call for a cell: the reading says whether it is called for.
    #[must_use]
    pub fn choose<'a>(
        &self,
        column: &'a Column,
        task: &Task,
        profile: Option<&Profile>,
        most: usize,
    ) -> Vec<Choice<'a>> {
        let operators = self.operators_of(task);
        let choice = |cell: &'a Cell| {
            let read = profile.is_some_and(|profile| cell.rules.iter().any(|rule| rule.reading(profile).is_some()));
            let holding =
                cell.rules.iter().filter(|rule| rule.holds(&operators, profile) && !(read && rule.metric.is_none()));
            let (mut why, mut weight) = (vec![], 0.0);
            for rule in holding {
                why.push(rule.said(profile));
                weight += rule.weight;
            }
            Choice { cell, why, weight }
        };
        let there = column.cells.iter().filter(|cell| !matches!(cell.state, State::Unsupported(_)));
        let mut chosen: Vec<Choice<'a>> = there.map(choice).filter(|choice| choice.weight > 0.0).collect();
        chosen.sort_by(|one, other| other.weight.total_cmp(&one.weight));
        chosen.truncate(most);
        chosen
    }

    /// The kinds of operator that a task's own words name.
    #[must_use]
    pub fn operators_of(&self, task: &Task) -> Vec<&str> {
        let code = match &task.source {
            Source::Problem(problem) => problem.source.as_str(),
            Source::Context(context) => context.entry.as_str(),
        };
        let text = format!("{} {} {code}", task.name, task.summary).to_lowercase();
        let words: std::collections::HashSet<&str> =
            text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let named = |known: &Vec<String>| known.iter().any(|word| words.contains(word.as_str()));
        self.operators.iter().filter(|(_, known)| named(known)).map(|(name, _)| name.as_str()).collect()
    }
}

impl Rule {
    /// What its metric reads.
    fn reading(&self, profile: &Profile) -> Option<f64> {
        value(profile, self.metric.as_deref()?)
    }

    fn holds(&self, operators: &[&str], profile: Option<&Profile>) -> bool {
        let called = self.operator.as_deref().is_none_or(|name| operators.contains(&name));
        called
            && match &self.metric {
                None => self.operator.is_some(),
                Some(metric) => {
                    profile.and_then(|profile| value(profile, metric)).is_some_and(|value| self.admits(value))
                }
            }
    }

    fn admits(&self, value: f64) -> bool {
        self.above.is_none_or(|above| value > above) && self.below.is_none_or(|below| value < below)
    }

    /// Why it holds, with the reading.
    fn said(&self, profile: Option<&Profile>) -> String {
        let read = self.metric.as_deref().and_then(|metric| Some((metric, value(profile?, metric)?)));
        match read {
            Some((metric, value)) => format!("{} ({metric} = {})", self.why, (value * 100.0).round() / 100.0),
            None => self.why.clone(),
        }
    }
}

/// What was read under this name: of the call, else of the kernel that takes most of its time.
fn value(profile: &Profile, metric: &str) -> Option<f64> {
    let kernels = profile.kernels.iter().flat_map(|kernel| &kernel.readings);
    let reading =
        profile.readings.iter().chain(kernels).find(|reading| reading.name == metric && reading.value.is_some())?;
    Some(reading.value? * metrics::unit::base(&reading.unit).0)
}
