//! `warpsmith features report`: how did kernels come about?

use crate::{
    cli::FeaturesReportArgs,
    command::{json, say},
    exit::{Exit, Trouble},
    progress::plain,
    stacking::{Stacking, together},
    store::{Record, RunFolder},
};
use agents::trajectory::Trajectory;
use kernelbench::{Task, feature::Features};
use serde_json::json;

/// One task of a run.
struct Told {
    name: String,
    model: String,
    stacking: Stacking,
    /// The rows whose marks its final kernel has; none where none is certified or right.
    rows: Option<Vec<u8>>,
}

/// Each task of each run, and what their final kernels have in common.
pub(super) fn report(arguments: &FeaturesReportArgs, features: &Features) -> Result<Exit, Trouble> {
    let mut all = vec![];
    for path in &arguments.runs {
        let run = RunFolder::open(path)?;
        for name in run.tasks()?.into_iter().filter(|name| run.has_record(name)) {
            all.push(told(format!("{} {name}", path.display()), &run.record(&name)?, features)?);
        }
    }
    let kernels: Vec<Vec<u8>> = all.iter().filter_map(|told| told.rows.clone()).collect();
    if arguments.json {
        let tasks: Vec<_> = all.iter().map(|told| as_json(told, arguments.expert)).collect();
        let pairs: Vec<_> =
            together(&kernels).into_iter().map(|((one, other), count)| json!([one, other, count])).collect();
        say(&json(&json!({ "tasks": tasks, "kernels": kernels.len(), "together": pairs })));
        return Ok(Exit::Done);
    }
    for told in &all {
        tell(told, arguments.expert);
    }
    if !kernels.is_empty() {
        matrix(&kernels);
    }
    Ok(Exit::Done)
}

fn told(name: String, record: &Record, features: &Features) -> Result<Told, Trouble> {
    let story: Trajectory = record.events().collect();
    let task = story.task.as_ref().map(|task| record.blobs.fetch(task)).transpose()?;
    let task: Option<Task> = task.and_then(|text| serde_json::from_str(&text).ok());
    let kernel = crate::best::of(&story).map(|id| record.blobs.fetch(&id)).transpose()?;
    let rows = kernel.map(|kernel| features.rows_in(&crate::best::source(&kernel)));
    Ok(Told { name, model: story.model.clone(), stacking: Stacking::of(&story, task.as_ref()), rows })
}

fn as_json(told: &Told, expert: Option<f64>) -> serde_json::Value {
    let stacking = &told.stacking;
    json!({
        "task": told.name, "model": told.model, "rows": told.rows, "stacking": stacking, "best": stacking.best(),
        "tokens_per_unit": stacking.tokens_per_unit(), "collapsed": expert.map(|expert| stacking.collapsed(expert)),
    })
}

fn tell(told: &Told, expert: Option<f64>) {
    let Stacking { unit, turns, credits, tokens, after_the_peak } = &told.stacking;
    say(&format!("{} ({})", plain(&told.name), plain(&told.model)));
    let Some(best) = told.stacking.best() else {
        say(&format!("  nothing right in {} turns; {tokens} tokens", turns.len()));
        return;
    };
    let each = told.stacking.tokens_per_unit().map(|each| format!(", {each:.0} for each {unit}")).unwrap_or_default();
    let expert = expert.map(|expert| {
        let collapsed = if told.stacking.collapsed(expert) { ", a collapse" } else { "" };
        format!("; {:.2} of the expert's{collapsed}", best / expert)
    });
    let (expert, count) = (expert.unwrap_or_default(), turns.len());
    say(&format!(
        "  best {best:.2} {unit} in {count} turns{expert}; {tokens} tokens{each}, {after_the_peak} behind the peak"
    ));
    say("  turn    tokens      best");
    let mut last = None;
    for turn in turns.iter().filter(|turn| turn.best.is_some()) {
        if turn.best != last {
            say(&format!("  {:>4} {:>9} {:>9.2}", turn.number, turn.tokens, turn.best.unwrap_or_default()));
            last = turn.best;
        }
    }
    for credit in credits {
        let feature = credit.feature.as_deref().map(|feature| format!("{}, ", plain(feature))).unwrap_or_default();
        say(&format!("  turn {:>3}  {:>+9.2} {unit}  {feature}{}", credit.turn, credit.delta, plain(&credit.counter)));
    }
}

/// How many kernels have both rows.
fn matrix(kernels: &[Vec<u8>]) {
    let counts = together(kernels);
    let rows: Vec<u8> = counts.keys().filter(|(one, other)| one == other).map(|(one, _)| *one).collect();
    say(&format!("strategies in {} final kernels, by words of the source:", kernels.len()));
    let line =
        |cells: Vec<String>| cells.iter().map(|cell| " ".repeat(5_usize.saturating_sub(cell.len())) + cell).collect();
    let heads: String = line(rows.iter().map(u8::to_string).collect());
    say(&format!("       {heads}"));
    for one in &rows {
        let count = |other: &u8| counts.get(&(*one, *other)).copied().unwrap_or(0).to_string();
        let cells: String = line(rows.iter().map(count).collect());
        say(&format!("  {one:>4} {cells}"));
    }
}
