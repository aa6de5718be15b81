//! `warpsmith features verify`: does each feature of an architecture fire?

use crate::{
    cli::FeaturesVerifyArgs,
    command::{json, on_threads, say},
    config::Config,
    exit::{Exit, Trouble},
    progress::Screen,
    proving::{Builder, Proved, Proving, Record, compile, record},
    wiring,
};
use kernelbench::feature::{Cell, Column, Features, State};
use metrics::MetricSet;
use std::{fs, path::Path};

/// Proves the cells that are asked for, as far as this machine can.
pub(super) fn verify(arguments: &FeaturesVerifyArgs, features: &Features, config: &Config) -> Result<Exit, Trouble> {
    let column = features.column(&arguments.arch).map_err(Trouble::usage)?;
    let cells = chosen(column, &arguments.cell)?;
    fs::create_dir_all(&arguments.out).map_err(|e| Trouble::record(format!("{}: {e}", arguments.out.display())))?;
    match elsewhere(column, config) {
        None => measure(arguments, column, &cells, config),
        Some(why) => compile_all(arguments, column, &cells, config, &why),
    }
}

/// The cells of these names, or all, but for what the architecture does not have.
pub(super) fn chosen<'a>(column: &'a Column, names: &[String]) -> Result<Vec<&'a Cell>, Trouble> {
    let mut cells: Vec<&Cell> = column.cells.iter().collect();
    if !names.is_empty() {
        let find = |name: &String| column.cell(name).map_err(Trouble::usage);
        cells = names.iter().map(find).collect::<Result<_, _>>()?;
    }
    cells.retain(|cell| !matches!(cell.state, State::Unsupported(_)));
    Ok(cells)
}

/// The counters of a column, and no other metric but one.
pub(super) fn counters(column: &Column) -> MetricSet {
    let metric = vec![metrics::Metric::named("sm__cycles_active.avg")];
    column.asked(MetricSet { name: column.name.clone(), provenance: None, metric })
}

/// Why nothing can be measured here; none where this GPU is one of the column's.
pub(super) fn elsewhere(column: &Column, config: &Config) -> Option<String> {
    let needed: Vec<String> = column.archs.iter().map(ToString::to_string).collect();
    match wiring::gpu_arch(config) {
        Some(arch) if column.archs.contains(&arch) => None,
        Some(arch) => Some(format!("this GPU is {arch}, and {} needs {}", column.title, needed.join(" or "))),
        None => Some(format!("there is no GPU here, and {} needs {}", column.title, needed.join(" or "))),
    }
}

fn measure(arguments: &FeaturesVerifyArgs, column: &Column, cells: &[&Cell], config: &Config) -> Result<Exit, Trouble> {
    let workshop = wiring::cuda_reading(config, Some(counters(column)))?;
    let options = wiring::cuda_options(config)?;
    let proving = Proving { workshop: &workshop, options: &options, column, out: &arguments.out };
    let screen = Screen::new(!arguments.json);
    let all = on_threads(prove_all(&proving, cells, &screen));
    screen.close();
    let all = all?;
    if arguments.json {
        say(&json(&all));
    } else {
        all.iter().flat_map(Proved::lines).for_each(|line| say(&line));
        let fired = all.iter().filter(|proved| proved.holds()).count();
        say(&format!("{fired} of {} features of {} fired", all.len(), column.title));
    }
    Ok(if all.iter().all(Proved::holds) { Exit::Done } else { Exit::NothingCorrect })
}

async fn prove_all(proving: &Proving<'_>, cells: &[&Cell], screen: &Screen) -> Result<Vec<Proved>, Trouble> {
    screen.show("building all kernels");
    proving.build_ahead(cells, std::thread::available_parallelism().map_or(2, usize::from)).await?;
    let mut all = vec![];
    for cell in cells {
        screen.show(&format!("{}: checked, counted and timed", cell.name));
        all.push(match proving.known(cell) {
            Some(known) => known,
            None => proving.prove(cell).await?,
        });
    }
    Ok(all)
}

fn keep(file: &Path, records: &[Record]) -> Result<(), Trouble> {
    let lines: String = records.iter().flat_map(serde_json::to_string).map(|line| line + "\n").collect();
    fs::write(file, lines).map_err(|e| Trouble::record(format!("{}: {e}", file.display())))
}

fn compile_all(
    arguments: &FeaturesVerifyArgs,
    column: &Column,
    cells: &[&Cell],
    config: &Config,
    why: &str,
) -> Result<Exit, Trouble> {
    let builder = Builder::of(column, config).map_err(|missing| {
        let message = format!("{why}; and {}, so nothing can be said of its features", missing.message);
        Trouble { message, ..missing }
    })?;
    if !arguments.json {
        say(&format!("{why}: nothing is measured, and only what compiles is said"));
    }
    let (mut exit, mut records) = (Exit::Done, vec![]);
    for cell in cells {
        let compiled = compile(cell, column, &arguments.out, &builder)?;
        if !arguments.json {
            say(&format!("{:<11} {compiled}", cell.name));
        }
        records.push(record(cell, column, &builder, &compiled));
        if !compiled.holds() {
            exit = Exit::NothingCorrect;
        } else if matches!(cell.state, State::Measured(_)) && exit == Exit::Done {
            // It is said to be measured, and was not.
            exit = Exit::Machine;
        }
    }
    keep(&arguments.out.join(&column.name).join("compiled.jsonl"), &records)?;
    if arguments.json {
        say(&json(&records));
    }
    Ok(exit)
}
