//! Reading the features: from files to rows, columns and cells, or what is wrong, where, and what was expected.

use super::module::{API, PATTERNS, modules};
use super::{Cell, Column, Features, Measured, Paper, Row, Rule, State};
use metrics::{
    Arch,
    feature::{Counter, Direction, Over, Sign},
};
use serde::{Deserialize, de::DeserializeOwned};
use std::collections::{BTreeMap, BTreeSet};

/// The files that come with the program, by their paths from `kernelbench/features`.
const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/features.rs"));

/// The rows, and the kinds of operators.
const ROWS: &str = "rows.toml";
/// What a column is for.
const COLUMN: &str = "column.toml";
/// What its cells came to on a GPU.
const MEASURED: &str = "measured.toml";
/// A cell's evidence.
const CONFIG: &str = "config.toml";
/// What else a cell must have; a kernel ends with `.cu` or `.hip`.
const TASK: &str = "task.toml";
const GUIDE: &str = "guide.md";
const KERNELS: [&str; 3] = ["reference", "naive", "optimized"];
/// The only version of the format there is.
const SCHEMA: u32 = 1;

/// What is wrong with a file of the features.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("features/{file}: {why}")]
pub struct FeatureError {
    /// The file, from the folder of features.
    pub file: String,
    /// What is wrong with it, and what was expected.
    pub why: String,
}

pub(super) fn wrong<T>(file: &str, why: impl Into<String>) -> Result<T, FeatureError> {
    Err(FeatureError { file: file.to_owned(), why: why.into() })
}

pub(super) type Files = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowsFile {
    row: Vec<Row>,
    operators: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnFile {
    schema: u32,
    title: String,
    archs: Vec<Arch>,
    #[serde(default)]
    also_on: Vec<Arch>,
    #[serde(default)]
    foreign: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellFile {
    schema: u32,
    row: String,
    cell: String,
    architecture: String,
    summary: String,
    #[serde(default)]
    unsupported: Option<String>,
    #[serde(default)]
    coupled: Vec<String>,
    #[serde(default)]
    no_instruction: Option<String>,
    #[serde(default)]
    paper: Option<Paper>,
    #[serde(default)]
    evidence: Vec<Evidence>,
    #[serde(default)]
    rule: Vec<Rule>,
}

/// One `[[evidence]]`: a counter, an instruction or a number of launches.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Evidence {
    counter: Option<String>,
    instruction: Option<String>,
    launches: Option<u64>,
    direction: Option<Direction>,
    over: Option<Over>,
    floor: Option<f64>,
    least_gain: Option<f64>,
    #[serde(default)]
    target: bool,
}

/// The files that come with the program, by their paths.
pub(super) fn embedded() -> Files {
    EMBEDDED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// All features in these files.
pub(super) fn features(files: &Files) -> Result<Features, FeatureError> {
    let text = files.get(ROWS).ok_or_else(|| missing(ROWS))?;
    let RowsFile { row: rows, operators } = parse(ROWS, text)?;
    let folders: BTreeSet<&str> = files.keys().filter_map(|file| Some(file.split_once('/')?.0)).collect();
    let mut columns: Vec<Column> =
        folders.into_iter().map(|name| column(name, files, &rows)).collect::<Result<_, _>>()?;
    // Where nobody says which column, it is one that was measured.
    columns.sort_by_key(|column| !column.cells.iter().any(|cell| matches!(cell.state, State::Measured(_))));
    let features = Features { rows, operators, columns };
    check_rules(&features)?;
    Ok(features)
}

fn missing(file: &str) -> FeatureError {
    FeatureError { file: file.to_owned(), why: "this file is missing".to_owned() }
}

fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, FeatureError> {
    toml::from_str(text).or_else(|error: toml::de::Error| wrong(file, error.to_string().trim_end()))
}

fn column(name: &str, files: &Files, rows: &[Row]) -> Result<Column, FeatureError> {
    let file = format!("{name}/{COLUMN}");
    let ColumnFile { schema, title, archs, also_on, foreign } =
        parse(&file, files.get(&file).ok_or_else(|| missing(&file))?)?;
    if schema != SCHEMA {
        return wrong(&file, format!("expected schema = {SCHEMA}"));
    }
    let measured = format!("{name}/{MEASURED}");
    let mut measured: BTreeMap<String, Measured> =
        files.get(&measured).map_or(Ok(BTreeMap::new()), |text| parse(&measured, text))?;
    let of_column = |file: &String| Some(file.strip_prefix(name)?.strip_prefix('/')?.split_once('/')?.0.to_owned());
    let [api, patterns] = [API, PATTERNS].map(|kind| modules(name, kind, files));
    let mut folders: BTreeSet<String> = files.keys().filter_map(of_column).collect();
    folders.retain(|folder| folder != API && folder != PATTERNS);
    let mut cells = vec![];
    for folder in folders {
        let prefix = format!("{name}/{folder}/");
        let own = files.iter().filter_map(|(file, text)| Some((file.strip_prefix(&prefix)?.to_owned(), text.clone())));
        cells.push(cell(&prefix, &folder, own.collect(), measured.remove(&folder), rows)?);
    }
    if let Some(unknown) = measured.keys().next() {
        return wrong(&format!("{name}/{MEASURED}"), format!("there is no cell {unknown}"));
    }
    cells.sort_by_key(|cell| cell.row);
    if let Some(coupled) = cells.iter().find_map(|cell| unknown_cell(cell, &cells)) {
        return wrong(&format!("{name}/{coupled}"), "it is coupled with a cell that is not there");
    }
    Ok(Column { name: name.to_owned(), title, archs, also_on, foreign, api: api?, patterns: patterns?, cells })
}

/// The file of a cell that is coupled with none of these.
fn unknown_cell(cell: &Cell, cells: &[Cell]) -> Option<String> {
    let known = |name: &String| cells.iter().any(|cell| cell.name == *name);
    (!cell.coupled.iter().all(known)).then(|| format!("{}/{CONFIG}", cell.folder))
}

fn cell(
    prefix: &str,
    folder: &str,
    files: Files,
    measured: Option<Measured>,
    rows: &[Row],
) -> Result<Cell, FeatureError> {
    let config = format!("{prefix}{CONFIG}");
    let file: CellFile = parse(&config, files.get(CONFIG).ok_or_else(|| missing(&config))?)?;
    let row = check_heading(&config, &file, prefix, rows)?;
    let state = match (&file.unsupported, measured) {
        (Some(why), _) => State::Unsupported(why.clone()),
        (None, Some(measured)) => State::Measured(measured),
        (None, None) => State::Compiled,
    };
    let guide = files.get(GUIDE).cloned().unwrap_or_default();
    if !matches!(state, State::Unsupported(_)) {
        whole(prefix, &files)?;
    }
    let signs = signs(&config, file.evidence, matches!(state, State::Unsupported(_)))?;
    if let Some(rule) = file.rule.iter().find(|rule| rule.operator.is_none() && rule.metric.is_none()) {
        return wrong(&config, format!("the rule {:?} has neither an operator nor a metric", rule.why));
    }
    let told = signs.iter().any(|sign| matches!(sign, Sign::Instruction(_)));
    if told && file.no_instruction.is_some() {
        return wrong(&config, "it says no_instruction, and an [[evidence]] names one");
    }
    let CellFile { cell: name, summary, coupled, no_instruction, paper, rule: rules, .. } = file;
    let folder = folder.to_owned();
    Ok(Cell { row, name, folder, summary, state, signs, no_instruction, paper, coupled, rules, guide, files })
}

fn check_heading(config: &str, file: &CellFile, prefix: &str, rows: &[Row]) -> Result<u8, FeatureError> {
    if file.schema != SCHEMA {
        return wrong(config, format!("expected schema = {SCHEMA}"));
    }
    if !prefix.starts_with(&format!("{}/", file.architecture)) {
        return wrong(config, format!("it says architecture = {:?}, and lies in another's folder", file.architecture));
    }
    let row = file.row.parse().ok().filter(|number| rows.iter().any(|row| row.number == *number));
    row.map_or_else(|| wrong(config, format!("there is no row {:?}; {ROWS} has all", file.row)), Ok)
}

/// Whether a cell has all its files, and something in them.
fn whole(prefix: &str, files: &Files) -> Result<(), FeatureError> {
    let filled = |name: &str| files.get(name).map(|text| !text.trim().is_empty());
    for name in [TASK, GUIDE] {
        match filled(name) {
            None => return Err(missing(&format!("{prefix}{name}"))),
            Some(false) => return wrong(&format!("{prefix}{name}"), "this file is empty"),
            Some(true) => {}
        }
    }
    let has = |kernel: &&str| ["cu", "hip"].iter().any(|ending| filled(&format!("{kernel}.{ending}")) == Some(true));
    match KERNELS.iter().find(|kernel| !has(kernel)) {
        Some(kernel) => {
            let hip = KERNELS.iter().any(|kernel| files.contains_key(&format!("{kernel}.hip")));
            Err(missing(&format!("{prefix}{kernel}.{}", if hip { "hip" } else { "cu" })))
        }
        None => Ok(()),
    }
}

fn signs(config: &str, evidence: Vec<Evidence>, unsupported: bool) -> Result<Vec<Sign>, FeatureError> {
    let targets = evidence.iter().filter(|one| one.target).count();
    if targets != 1 && !unsupported {
        return wrong(config, format!("{targets} of its [[evidence]] say target = true; expected exactly one"));
    }
    evidence.into_iter().map(|one| sign(config, one)).collect()
}

fn sign(config: &str, evidence: Evidence) -> Result<Sign, FeatureError> {
    let Evidence { counter, instruction, launches, direction, over, floor, least_gain, target } = evidence;
    match (counter, instruction, launches) {
        (Some(name), None, None) => {
            if !is_counter(&name) {
                let expected = "expected a metric as its profiler calls it, such as sm__inst_executed.sum";
                return wrong(config, format!("{name:?} is no counter: {expected}"));
            }
            let (Some(direction), Some(least_gain)) = (direction, least_gain.filter(|least| *least >= 1.0)) else {
                return wrong(config, format!("{name} needs a direction, and a least_gain of 1 or more"));
            };
            let over = over.unwrap_or(usual(&name));
            Ok(Sign::Counter(Counter { name, direction, over, floor: floor.unwrap_or(0.0), least_gain, target }))
        }
        (None, Some(name), None) if !target => Ok(Sign::Instruction(name)),
        (None, None, Some(most)) if !target => Ok(Sign::Launches(most)),
        (None, _, _) if target => wrong(config, "the target must be a counter: nothing else proves that a feature ran"),
        _ => wrong(config, "each [[evidence]] has exactly one of counter, instruction and launches"),
    }
}

/// What of several launches counts where a cell does not say: counts add up, shares and ratios do not.
fn usual(counter: &str) -> Over {
    if counter.rsplit('.').next() == Some("sum") { Over::Sum } else { Over::Largest }
}

/// Whether this can be a metric's name: words of letters and digits that underscores join.
fn is_counter(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
    name.chars().all(plain) && name.contains('_') && name.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Rules speak of operators that are there.
fn check_rules(features: &Features) -> Result<(), FeatureError> {
    let known = |name: &String| features.operators.contains_key(name);
    for column in &features.columns {
        for cell in &column.cells {
            let mut named = cell.rules.iter().filter_map(|rule| rule.operator.as_ref());
            if let Some(name) = named.find(|name| !known(name)) {
                let config = format!("{}/{}/{CONFIG}", column.name, cell.folder);
                return wrong(&config, format!("there is no operator {name:?}; {ROWS} has all"));
            }
        }
    }
    Ok(())
}
