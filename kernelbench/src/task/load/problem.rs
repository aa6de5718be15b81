//! How does a file in KernelBench's format become a [`Task`]?

use super::{TaskError, error::Document, file::ProblemFile, is_plain_name, reference::read_text, tolerance};
use crate::task::{
    Beyond, Case, Precision, Problem, ReferenceMode, Source, Task, TimedCases, Tolerance, signature::Signature, suite,
};
use serde::Deserialize;
use std::path::Path;

/// What such a file defines.
const CONTRACT: [&str; 3] = ["class Model(", "def get_inputs(", "def get_init_inputs("];
/// Problems of the public collection that let pass what is no answer.
const DEFECTIVE: &str = include_str!("../../../problems/defective.toml");

/// Reads a problem, to be evaluated in single precision. Its level and number come from its folder and its file's name; its
/// tolerance from a file of its name that ends in `.toml`, where one is beside it.
///
/// # Errors
/// A file that cannot be read, or that does not define what the format asks for; a tolerance that is none.
pub fn problem(path: &Path) -> Result<Task, TaskError> {
    let source = read_text(path).map_err(|why| TaskError::of_file(path, why.0, why.1))?;
    if let Some(missing) = CONTRACT.iter().find(|name| !source.contains(*name)) {
        let what = format!("there is no `{}` in this file", missing.trim_end_matches('('));
        let help =
            "a problem in KernelBench's format defines the class `Model`, `get_inputs()` and `get_init_inputs()`";
        return Err(TaskError::of_file(path, what, help));
    }
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (level, number, precision) = (level(path), number(&stem), Precision::default());
    let labels = labels(level, number);
    let stated = tolerance_beside(path)?;
    Ok(Task {
        name: name(level, &stem),
        summary: format!("The forward pass of the PyTorch module `Model` of {}.", stem.replace('_', " ")),
        source: Source::Problem(Problem {
            source,
            file,
            level,
            number,
            precision,
            tolerance: stated.as_ref().map(|(tolerance, _)| *tolerance),
            labels,
            reference: ReferenceMode::KernelBench,
            beyond: Beyond::default(),
            signature: Signature::default(),
        }),
        tolerance: stated.as_ref().map_or_else(|| precision.tolerance(), |(tolerance, _)| *tolerance),
        tolerance_why: stated.map(|(_, why)| why).unwrap_or_default(),
        cases: vec![Case { name: suite::DEFAULT.to_owned(), scalars: [].into() }],
        final_cases: vec![],
        sanitizer_cases: vec![],
        valid_args: None,
        timed: TimedCases::All,
    })
}

/// What the file beside a problem says about its tolerance, and why.
fn tolerance_beside(path: &Path) -> Result<Option<(Tolerance, String)>, TaskError> {
    let path = path.with_extension("toml");
    if !path.is_file() {
        return Ok(None);
    }
    let text = read_text(&path).map_err(|why| TaskError::of_file(&path, why.0, why.1))?;
    let document = Document { path: &path, text: &text };
    let file: ProblemFile = toml::from_str(&text).map_err(|error| {
        document
            .not_toml(&error)
            .with_help("beside a problem a file of its name states its tolerance, and holds nothing else")
    })?;
    if let Some(share) = &file.tolerance.share {
        return document.error(share, "of a problem's outputs every element must be right", "take `share` away");
    }
    tolerance(&document, &file.tolerance).map(Some)
}

fn level(path: &Path) -> Option<u8> {
    let folder = path.canonicalize().ok()?.parent()?.file_name()?.to_string_lossy().into_owned();
    folder.strip_prefix("level")?.parse().ok()
}

fn number(stem: &str) -> Option<u32> {
    stem.split('_').next()?.parse().ok()
}

fn name(level: Option<u8>, stem: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '-' };
    let level = level.map(|level| format!("level{level}-")).unwrap_or_default();
    let name: String = format!("{level}{stem}").chars().map(plain).take(64).collect();
    if is_plain_name(&name) { name } else { "problem".to_owned() }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Defective {
    label: Vec<Label>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Label {
    what: String,
    source: String,
    #[serde(default)]
    level1: Vec<u32>,
    #[serde(default)]
    level2: Vec<u32>,
    #[serde(default)]
    level3: Vec<u32>,
}

fn labels(level: Option<u8>, number: Option<u32>) -> Vec<String> {
    let (Some(level), Some(number)) = (level, number) else { return vec![] };
    let known: Defective = toml::from_str(DEFECTIVE).expect("our own list is valid: a test reads it");
    let names = |label: &Label| match level {
        1 => label.level1.contains(&number),
        2 => label.level2.contains(&number),
        3 => label.level3.contains(&number),
        _ => false,
    };
    known.label.into_iter().filter(names).map(|label| format!("{} ({})", label.what, label.source)).collect()
}
