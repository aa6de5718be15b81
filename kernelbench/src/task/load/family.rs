//! How does a `family.toml` become a [`Family`] of kernels?

use super::{
    Document, HELP_FOLDER, SCHEMA, TaskError,
    arguments::check_identifier,
    reference::{self, Unreadable},
    task,
};
use crate::task::{
    Task,
    family::{Design, Family},
    space::{MOST_POINTS, Parameter, Space},
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};
use toml::Spanned;

/// The file that makes a task's folder a family.
const FAMILY_FILE: &str = "family.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FamilyFile {
    schema: Spanned<i64>,
    #[serde(default)]
    design: Vec<DesignFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DesignFile {
    name: Spanned<String>,
    template: Spanned<String>,
    #[serde(rename = "where")]
    constraint: Option<Spanned<String>>,
    #[serde(default)]
    grid: BTreeMap<Spanned<String>, Spanned<Vec<Parameter>>>,
}

/// The family in the folder of a task: what its `family.toml` says; `None` where there is none.
///
/// # Errors
/// Anything in it that is no whole family, with the place where it is not.
pub fn family(path: &Path) -> Result<Option<Family>, TaskError> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let path = folder.join(FAMILY_FILE);
    if !path.exists() {
        return Ok(None);
    }
    let Task { source: crate::task::Source::Context(context), .. } = task(folder)? else {
        return Err(TaskError::of_file(&path, "a problem in Python has no family", HELP_FOLDER));
    };
    let text = reference::read_text(&path).map_err(|Unreadable(what, help)| TaskError::of_file(&path, what, help))?;
    let document = Document { path: &path, text: &text };
    let file: FamilyFile = toml::from_str(&text).map_err(|error| document.not_toml(&error))?;
    if *file.schema.get_ref() != SCHEMA {
        return document.error(&file.schema, "this version of the format is unknown", "expected schema = 1");
    }
    if file.design.is_empty() {
        let help = "add a [[design]] with a name, a template and a grid";
        return Err(document.error_at(0..0, "this family has no design", help));
    }
    let mut names = BTreeSet::new();
    let mut designs = vec![];
    for read in file.design {
        if !names.insert(read.name.get_ref().clone()) {
            return document.error(&read.name, "an earlier design has this name", "give each design its own name");
        }
        designs.push(design(&document, read, &context.entry)?);
    }
    Ok(Some(Family { designs }))
}

fn design(document: &Document<'_>, read: DesignFile, entry: &str) -> Result<Design, TaskError> {
    check_identifier(document, &read.name, "a design")?;
    let template = reference::beside(document, &read.template, entry)?;
    let mut grid = BTreeMap::new();
    for (name, values) in read.grid {
        check_identifier(document, &name, "a parameter")?;
        let distinct: BTreeSet<_> = values.get_ref().iter().collect();
        if distinct.is_empty() || distinct.len() < values.get_ref().len() {
            let help = "expected one or more different numbers, words, or true and false, such as [64, 128]";
            return document.error(&values, "these are no values to choose from", help);
        }
        grid.insert(name.into_inner(), values.into_inner());
    }
    let constraints = read.constraint.map(Spanned::into_inner).into_iter().collect();
    let design = Design { name: read.name.get_ref().clone(), template, space: Space { grid, constraints } };
    if design.space.points() > MOST_POINTS {
        let help = format!("expected at most {MOST_POINTS} points: name fewer values");
        return document.error(&read.name, "this design's grid is too large", help);
    }
    match design.check() {
        Err(why) => document.error(&read.template, why, "templates are written in minijinja: {{ name }}, {% if %}"),
        Ok(()) => Ok(design),
    }
}
