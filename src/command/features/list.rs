//! `warpsmith features list` and `show`: which features are there, and what is known of one?

use crate::{
    cli::{FeaturesListArgs, FeaturesShowArgs},
    command::{json, say, verbatim},
    exit::{Exit, Trouble},
};
use kernelbench::feature::{Cell, Column, Features, Module, State};
use metrics::feature::Sign;
use prompts::Context;
use serde_json::json;

/// A line a cell, or each as JSON.
pub(super) fn list(arguments: &FeaturesListArgs, features: &Features) -> Result<Exit, Trouble> {
    let columns: Vec<&Column> = match &arguments.arch {
        Some(name) => vec![features.column(name).map_err(Trouble::usage)?],
        None => features.columns().iter().collect(),
    };
    if arguments.json {
        let all: Vec<_> =
            columns.iter().flat_map(|column| column.cells.iter().map(|cell| as_json(features, column, cell))).collect();
        say(&json(&all));
        return Ok(Exit::Done);
    }
    for column in columns {
        let archs: Vec<String> = column.archs.iter().map(metrics::Arch::target).collect();
        say(&format!("{}: {} ({})", column.name, column.title, archs.join(", ")));
        for cell in &column.cells {
            say(&line(features, cell));
        }
    }
    Ok(Exit::Done)
}

/// A line a module with its tokens, and what `modules:K` comes to for each K; or each module as JSON.
pub(super) fn modules(arguments: &FeaturesListArgs, features: &Features) -> Result<Exit, Trouble> {
    let columns: Vec<&Column> = match &arguments.arch {
        Some(name) => vec![features.column(name).map_err(Trouble::usage)?],
        None => features.columns().iter().collect(),
    };
    let mut all = vec![];
    for column in columns {
        let up_to: Vec<usize> =
            (0..=column.patterns.len()).map(|count| Context::modules(column, count).tokens()).collect();
        let patterns = (1..).zip(&column.patterns).map(|(at, module)| ("pattern", module, up_to[at]));
        let api = column.api.iter().map(|module| ("api", module, up_to[0]));
        for (kind, Module { name, text }, so_far) in api.chain(patterns) {
            let tokens = Context { api: vec![Module { name: name.clone(), text: text.clone() }], ..Context::default() };
            let tokens = tokens.tokens();
            all.push(json!({ "arch": column.name, "kind": kind, "module": name, "tokens": tokens, "with_those_before": so_far, "text": text }));
            if !arguments.json {
                say(&format!(
                    "{:<8} {kind:<8} {name:<17} {tokens:>5} tokens, {so_far:>5} with those before",
                    column.name
                ));
            }
        }
    }
    if arguments.json {
        say(&json(&all));
    }
    Ok(Exit::Done)
}

fn line(features: &Features, cell: &Cell) -> String {
    let title = features.row(cell).map_or("", |row| row.title.as_str());
    let (row, name, state) = (cell.row, &cell.name, cell.state.name());
    let told = match (&cell.state, cell.target()) {
        (State::Unsupported(why), _) => why.as_str(),
        (_, Some(target)) => target.name.as_str(),
        (_, None) => "",
    };
    format!("  {row:02} {title:<23}  {name:<11}  {state:<11}  {told}").trim_end().to_owned()
}

fn as_json(features: &Features, column: &Column, cell: &Cell) -> serde_json::Value {
    let speedup = if let State::Measured(measured) = &cell.state { Some(measured.speedup) } else { None };
    json!({
        "arch": column.name, "row": cell.row, "title": features.row(cell).map(|row| &row.title), "cell": cell.name,
        "summary": cell.summary, "counter": cell.target().map(|target| &target.name), "state": cell.state.name(),
        "speedup": speedup, "paper": cell.paper.as_ref().map(|paper| paper.time_gain), "coupled": cell.coupled,
    })
}

/// Everything about one cell.
pub(super) fn show(arguments: &FeaturesShowArgs, features: &Features) -> Result<Exit, Trouble> {
    let column = match &arguments.arch {
        Some(name) => Some(features.column(name).map_err(Trouble::usage)?),
        None => features.columns().iter().find(|column| column.cell(&arguments.name).is_ok()),
    };
    let column = column.or(features.columns().first()).ok_or_else(|| Trouble::usage("there are no features"))?;
    let cell = column.cell(&arguments.name).map_err(Trouble::usage)?;
    if arguments.kernel {
        verbatim(cell.optimized().trim_end());
        return Ok(Exit::Done);
    }
    say(&format!("{} on {}, row {:02}: {}", cell.name, column.title, cell.row, cell.summary));
    say(&format!("state: {}", state(cell)));
    say("evidence:");
    for sign in &cell.signs {
        say(&format!("  {}", said(sign, cell)));
    }
    if !cell.coupled.is_empty() {
        say(&format!("taken over with: {}", cell.coupled.join(", ")));
    }
    say(&format!("\n{}", cell.guide.trim_end()));
    Ok(Exit::Done)
}

fn state(cell: &Cell) -> String {
    let paper = cell.paper.as_ref().map(|paper| format!(" (the paper's: {}x)", paper.time_gain)).unwrap_or_default();
    match &cell.state {
        State::Measured(measured) => {
            let (gpu, date) = (&measured.gpu, &measured.date);
            format!("measured on {gpu}, {date}: {:.2}x as fast as without{paper}", measured.speedup)
        }
        State::Compiled => format!("compiled, and not measured{paper}"),
        State::Unsupported(why) => format!("unsupported: {why}"),
    }
}

fn said(sign: &Sign, cell: &Cell) -> String {
    let read = |name: &str| match &cell.state {
        State::Measured(measured) => {
            measured.read.get(name).map(|[naive, optimized]| format!(": {naive} -> {optimized}")).unwrap_or_default()
        }
        _ => String::new(),
    };
    match sign {
        Sign::Counter(counter) => {
            let target = if counter.target { "target " } else { "" };
            format!("{target}{}{} (at least {}x)", counter.name, read(&counter.name), counter.least_gain)
        }
        Sign::Instruction(name) => format!("{name} in the code, which alone proves nothing"),
        Sign::Launches(most) => format!("launches{} (at most {most})", read("launches")),
    }
}
