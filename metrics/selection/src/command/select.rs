//! `warpsmith-metrics select`: a set of metrics, computed from profiles

use super::{Wrong, say};
use crate::{
    Rule, Wish, choose,
    cli::{RuleArg, SelectArgs},
    set::set,
};
use metrics::MetricSet;

/// Chooses, and writes the set's file.
pub(super) fn select(arguments: &SelectArgs) -> Result<(), Wrong> {
    let (evidence, data) = super::evidence(&arguments.profiles)?;
    let wish = Wish { rule: rule(arguments.rule), seed: arguments.seed, ..super::wish(&arguments.profiles) };
    let choice = choose(&evidence, &evidence.all(), &wish);
    if choice.chosen.is_empty() {
        return Err(Wrong::new(format!("the rule {} chose no metric: {}", wish.rule.name(), choice.cut)));
    }
    let set = set(&name(arguments), &evidence, &choice, &wish, arguments.profiles.present, data);
    let text = format!("{}\n{}", heading(&set, &wish, arguments.profiles.present), set.text());
    let Some(out) = &arguments.out else {
        say(text.trim_end());
        return Ok(());
    };
    std::fs::write(out, text).map_err(|e| Wrong::new(format!("{}: {e}", out.display())))?;
    say(&format!("{}: {} of {} metrics wanted", out.display(), set.metric.len(), wish.want));
    say(&format!("{} eligible, {} not collinear; {}", choice.eligible, choice.distinct, choice.cut));
    Ok(())
}

fn rule(rule: RuleArg) -> Rule {
    match rule {
        RuleArg::Stable => Rule::Stable,
        RuleArg::Public => Rule::Public,
        RuleArg::Intersection => Rule::Intersection,
        RuleArg::Top => Rule::Top,
        RuleArg::Random => Rule::Random,
        RuleArg::Full => Rule::Full,
    }
}

fn name(arguments: &SelectArgs) -> String {
    let stem = arguments.out.as_ref().and_then(|out| Some(out.file_stem()?.to_string_lossy().into_owned()));
    arguments.name.clone().or(stem).unwrap_or_else(|| "selected".to_owned())
}

/// What made the file, with every flag, so that it can be made again.
fn heading(set: &MetricSet, wish: &Wish, present: f64) -> String {
    let files: Vec<&str> =
        set.provenance.iter().flat_map(|from| from.data.iter().map(|data| data.file.as_str())).collect();
    let Wish { rule, want, top, tasks, percentile, collinear, seed } = wish;
    format!(
        "# Computed, nothing by hand:\n# warpsmith metrics select {} --name {} --rule {} --want {want} --top {top} \
         --tasks {tasks} --percentile {percentile} --collinear {collinear} --present {present} --seed {seed}\n",
        files.join(" "),
        set.name,
        rule.name(),
    )
}
