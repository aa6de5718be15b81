//! A task's `[tuning]`: parameters with their values, and the constraints between them.
//!
//! `TILE = [64, 128]` is the short form; `[tuning.TILE]` has `values`, or `from` and `to` with a `step` or a `factor`, and
//! may have a `constraint`.

use super::{Document, TaskError, arguments};
use crate::task::space::{MOST_POINTS, Parameter, Space};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use toml::{Spanned, Value};

/// A task's parameters, as they stand in its file.
pub(super) type Tuning = BTreeMap<Spanned<String>, Spanned<Value>>;

const VALUES: &str = "expected one or more different integers, words, or true and false, such as [64, 128]";
const RANGE: &str = "expected values = [64, 128], or from = 16 and to = 128 with step = 16 or factor = 2; constraint = \"..\" may follow";

const CONSTRAINT: &str = "a constraint is an expression of parameters, such as TILE * UNROLL <= 256";

/// The long form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Domain {
    values: Option<Vec<Parameter>>,
    from: Option<i64>,
    to: Option<i64>,
    step: Option<i64>,
    factor: Option<i64>,
    constraint: Option<String>,
}

/// The space that a task's `[tuning]` spans.
pub(super) fn space(document: &Document<'_>, tuning: Tuning) -> Result<Space, TaskError> {
    let mut space = Space::default();
    let at = tuning.keys().next().map_or(0..0, Spanned::span);
    for (name, value) in tuning {
        arguments::check_identifier(document, &name, "a tuning parameter")?;
        if !name.get_ref().starts_with(|c: char| c.is_ascii_uppercase())
            || name.get_ref().contains(|c: char| c.is_ascii_lowercase())
        {
            let help = "expected capitals, digits and `_`, such as TILE_K: a source names it as {{TILE_K}}";
            return document.error(&name, "this cannot name a tuning parameter", help);
        }
        let (values, constraint) = domain(document, &value)?;
        if space.grid.values().map(Vec::len).product::<usize>().saturating_mul(values.len()) > MOST_POINTS {
            let help = format!("expected at most {MOST_POINTS} points in all: name fewer values");
            return document.error(&value, "the space is too large", help);
        }
        space.grid.insert(name.into_inner(), values);
        if let Some(constraint) = constraint {
            space.constraints.push(constraint);
        }
    }
    if let Err(why) = space.check() {
        return Err(document.error_at(at, format!("[tuning]: {why}"), CONSTRAINT));
    }
    match space.configurations() {
        Err(why) => Err(document.error_at(at, format!("[tuning]: {why}"), CONSTRAINT)),
        Ok(points) if points.is_empty() => {
            let help = "loosen a constraint, or name more values";
            Err(document.error_at(at, "[tuning]: no values satisfy every constraint", help))
        }
        Ok(_) => Ok(space),
    }
}

/// The parameters that a transformation adds, in the same form: `TILE = [64, 128]`, or a table with values or a range and
/// perhaps a constraint, which may name parameters of the context too.
///
/// # Errors
/// In words: a name that cannot be one, or no values to choose from.
pub fn parameters(table: &toml::Table) -> Result<Space, String> {
    let mut space = Space::default();
    for (name, value) in table {
        let capital = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        if !name.starts_with(|c: char| c.is_ascii_uppercase()) || !name.chars().all(capital) {
            return Err(format!("`{name}` cannot name a tuning parameter: expected capitals, digits and `_`"));
        }
        let (values, constraint) = chosen(value).map_err(|why| format!("`{name}`: {why}"))?;
        let help = if value.is_table() { RANGE } else { VALUES };
        space
            .grid
            .insert(name.clone(), values.ok_or_else(|| format!("`{name}` has no values to choose from: {help}"))?);
        space.constraints.extend(constraint);
    }
    Ok(space)
}

/// The values that a parameter may have, where it says which, and its constraint.
type Chosen = (Option<Vec<Parameter>>, Option<String>);

fn chosen(value: &Value) -> Result<Chosen, String> {
    let (values, constraint) = match value {
        Value::Array(_) => (value.clone().try_into().ok(), None),
        Value::Table(_) => {
            let domain = value.clone().try_into::<Domain>().map_err(|why| why.message().to_owned())?;
            (domain.values(), domain.constraint)
        }
        _ => (None, None),
    };
    let distinct = |values: &Vec<Parameter>| values.iter().collect::<BTreeSet<_>>().len() == values.len();
    Ok((values.filter(|values| !values.is_empty() && distinct(values)), constraint))
}

fn domain(document: &Document<'_>, value: &Spanned<Value>) -> Result<(Vec<Parameter>, Option<String>), TaskError> {
    match chosen(value.get_ref()) {
        Err(why) => document.error(value, why, RANGE),
        Ok((Some(values), constraint)) => Ok((values, constraint)),
        Ok((None, _)) => {
            let help = if matches!(value.get_ref(), Value::Table(_)) { RANGE } else { VALUES };
            document.error(value, "these are no values to choose from", help)
        }
    }
}

impl Domain {
    /// Its values; `None` where it does not say which.
    fn values(&self) -> Option<Vec<Parameter>> {
        match (&self.values, self.from, self.to, self.step, self.factor) {
            (Some(values), None, None, None, None) => Some(values.clone()),
            (None, Some(from), Some(to), step, None) => {
                let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
                Some((from..=to).step_by(step).take(MOST_POINTS).map(Parameter::Number).collect())
            }
            (None, Some(from), Some(to), None, Some(factor)) if from > 0 && factor > 1 => {
                let next = |value: &i64| value.checked_mul(factor);
                let powers = std::iter::successors(Some(from), next).take_while(|value| *value <= to);
                Some(powers.map(Parameter::Number).collect())
            }
            _ => None,
        }
    }
}
