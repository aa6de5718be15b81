//! Parameter spaces: named parameters with their values, and constraints that say which points are configurations.
//!
//! A task's `[tuning]` is one, and so is the grid of a family's design. Constraints are expressions (minijinja) of the
//! parameters. Points are drawn spread over the space, always the same for the same seed, so that fewer are the first of
//! more.

use crate::hash::Hash;
use minijinja::{Environment, Error, UndefinedBehavior, Value};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The most points that a space may have, its constraints aside.
pub(crate) const MOST_POINTS: usize = 100_000;
/// What one template or constraint may cost, in steps of the template's machine.
const FUEL: u64 = 1_000_000;

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Parameter {
    /// Whether something is so.
    Flag(bool),
    /// A size or a count.
    Number(i64),
    /// One of several ways.
    Word(String),
}

/// A value for each of some parameters, by name.
pub type Bindings = BTreeMap<String, Parameter>;

/// The values of each parameter, and what must hold between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// The values of each parameter.
    pub grid: BTreeMap<String, Vec<Parameter>>,
    /// Expressions of the parameters: a point of the grid is a configuration where all are true.
    pub constraints: Vec<String>,
}

impl From<Parameter> for Value {
    fn from(parameter: Parameter) -> Self {
        match parameter {
            Parameter::Flag(flag) => flag.into(),
            Parameter::Number(number) => number.into(),
            Parameter::Word(word) => word.into(),
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => flag.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => word.fmt(f),
        }
    }
}

impl From<&str> for Parameter {
    /// The value as it is written on a command line: a number, `true` or `false`, or else a word.
    fn from(text: &str) -> Self {
        match (text.parse(), text.parse()) {
            (Ok(number), _) => Self::Number(number),
            (_, Ok(flag)) => Self::Flag(flag),
            _ => Self::Word(text.to_owned()),
        }
    }
}

/// Bindings in words: `TILE=64 UNROLL=4`.
#[must_use]
pub fn in_words(bindings: &Bindings) -> String {
    let words: Vec<String> = bindings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(" ")
}

impl Space {
    /// Whether it has no parameter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.grid.is_empty()
    }

    /// How many points the grid has, before its constraints.
    #[must_use]
    pub fn points(&self) -> usize {
        self.grid.values().map(Vec::len).fold(1, usize::saturating_mul)
    }

    /// Whether every constraint is an expression of these parameters; in words where one is not.
    pub(crate) fn check(&self) -> Result<(), String> {
        let environment = environment();
        for text in &self.constraints {
            let expression =
                environment.compile_expression(text).map_err(|error| format!("`{text}`: {}", said(&error)))?;
            let named = expression.undeclared_variables(false);
            let strangers: BTreeSet<&String> = named.iter().filter(|name| !self.grid.contains_key(*name)).collect();
            if let Some(name) = strangers.first() {
                let known: Vec<&str> = self.grid.keys().map(String::as_str).collect();
                return Err(format!("`{text}` names `{name}`; the parameters are {}", known.join(", ")));
            }
        }
        Ok(())
    }

    /// The points that are configurations: the product of all values, less those that violate a constraint.
    ///
    /// # Errors
    /// In words, where a constraint cannot be evaluated.
    pub fn configurations(&self) -> Result<Vec<Bindings>, String> {
        let mut points: Vec<Bindings> = vec![Bindings::new()];
        for (name, values) in &self.grid {
            let with = |point: &Bindings| values.iter().map(|value| extended(point, name, value)).collect::<Vec<_>>();
            points = points.iter().flat_map(with).collect();
        }
        let environment = environment();
        for text in &self.constraints {
            let holds = environment.compile_expression(text).map_err(|e| format!("`{text}`: {}", said(&e)))?;
            let mut allowed = vec![];
            for point in points {
                let value = holds
                    .eval(Value::from(point.clone()))
                    .map_err(|e| format!("`{text}` at {}: {}", in_words(&point), said(&e)))?;
                if value.is_true() {
                    allowed.push(point);
                }
            }
            points = allowed;
        }
        Ok(points)
    }

    /// The first so many configurations in an order that uses each value of each parameter as often as the others. `salt`
    /// names the space, so that two of the same shape are drawn differently.
    ///
    /// # Errors
    /// In words, where a constraint cannot be evaluated.
    pub fn spread(&self, count: usize, seed: u64, salt: &str) -> Result<Vec<Bindings>, String> {
        self.configurations().map(|points| spread(points, count, seed, salt))
    }

    /// The same with further parameters and constraints.
    ///
    /// # Errors
    /// In words: a parameter that it has already, a constraint that names another, or no configuration left.
    pub fn widened(&self, by: &Self) -> Result<Self, String> {
        if let Some(name) = by.grid.keys().find(|name| self.grid.contains_key(*name)) {
            return Err(format!("the context has the tuning parameter `{name}` already"));
        }
        let mut wider = self.clone();
        wider.grid.extend(by.grid.clone());
        wider.constraints.extend(by.constraints.clone());
        wider.check().map(|()| wider)
    }

    /// The same without these parameters, and without the constraints that name one of them.
    #[must_use]
    pub fn without(&self, names: &[String]) -> Self {
        let environment = environment();
        let names_one = |text: &String| {
            let of = environment.compile_expression(text).map(|expression| expression.undeclared_variables(false));
            of.is_ok_and(|parameters| parameters.iter().any(|name| names.contains(name)))
        };
        let mut left = self.clone();
        left.grid.retain(|name, _| !names.contains(name));
        left.constraints.retain(|text| !names_one(text));
        left
    }

    /// The configurations that extend one of these, as far as they are of its parameters; all where there is none to extend.
    ///
    /// # Errors
    /// In words: too many points, no configuration, or a constraint that cannot be evaluated.
    pub fn extending(&self, kept: &[Bindings]) -> Result<Vec<Bindings>, String> {
        let own = |bindings: &Bindings| -> Bindings {
            bindings
                .iter()
                .filter(|(name, _)| self.grid.contains_key(*name))
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect()
        };
        let mut seen = BTreeSet::new();
        let mut kept: Vec<Bindings> = kept.iter().map(own).filter(|bindings| seen.insert(bindings.clone())).collect();
        if kept.is_empty() {
            kept.push(Bindings::new());
        }
        let mut all: Vec<Bindings> = vec![];
        for bindings in &kept {
            let part = self.bound(bindings);
            if part.points().saturating_mul(kept.len()) > MOST_POINTS {
                return Err(format!("there are more than {MOST_POINTS} points: give a parameter fewer values"));
            }
            all.extend(part.configurations()?);
        }
        if all.is_empty() { Err("no values satisfy every constraint".to_owned()) } else { Ok(all) }
    }

    /// The same with these parameters at these values alone, whether they were among its values or not.
    #[must_use]
    pub fn bound(&self, bindings: &Bindings) -> Self {
        let mut bound = self.clone();
        for (name, value) in bindings {
            if let Some(values) = bound.grid.get_mut(name) {
                *values = vec![value.clone()];
            }
        }
        bound
    }

    /// Whether these bindings may be part of a configuration of it; in words why not.
    ///
    /// # Errors
    /// Which name or value is unknown, or that no configuration has them.
    pub fn allows(&self, bindings: &Bindings) -> Result<(), String> {
        for (name, value) in bindings {
            let Some(values) = self.grid.get(name) else {
                let known: Vec<&str> = self.grid.keys().map(String::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(format!("the task has no tuning parameter `{name}`; it has {known}"));
            };
            if !values.contains(value) {
                let choices: Vec<String> = values.iter().map(ToString::to_string).collect();
                return Err(format!("{name}={value}: expected one of {}", choices.join(", ")));
            }
        }
        if self.bound(bindings).configurations()?.is_empty() {
            return Err(format!("no configuration has {}: a constraint forbids it", in_words(bindings)));
        }
        Ok(())
    }
}

/// The first so many points in an order that uses each value of each parameter as often as the others; always the same for
/// the same seed and salt.
#[must_use]
pub fn spread(mut points: Vec<Bindings>, count: usize, seed: u64, salt: &str) -> Vec<Bindings> {
    points.sort_by_cached_key(|point| Hash::of(format!("{seed} {salt} {point:?}").as_bytes()));
    let values: Vec<Vec<usize>> = numbered(&points);
    let mut used = vec![0_u32; values.iter().flatten().max().map_or(0, |most| most + 1)];
    let (mut left, mut chosen): (Vec<usize>, Vec<usize>) = ((0..points.len()).collect(), vec![]);
    while chosen.len() < count && !left.is_empty() {
        let often = |at: usize| -> u32 { values[at].iter().map(|value| used[*value] * used[*value]).sum() };
        let next = (0..left.len()).min_by_key(|at| often(left[*at])).unwrap_or(0);
        let point = left.remove(next);
        values[point].iter().for_each(|value| used[*value] += 1);
        chosen.push(point);
    }
    chosen.into_iter().map(|at| std::mem::take(&mut points[at])).collect()
}

/// Each point's values as numbers, the same for the same value of the same parameter.
fn numbered(points: &[Bindings]) -> Vec<Vec<usize>> {
    let mut known: BTreeMap<(&String, &Parameter), usize> = BTreeMap::new();
    let mut of = |pair| {
        let next = known.len();
        *known.entry(pair).or_insert(next)
    };
    points.iter().map(|point| point.iter().map(&mut of).collect()).collect()
}

fn extended(point: &Bindings, name: &str, value: &Parameter) -> Bindings {
    let mut point = point.clone();
    point.insert(name.to_owned(), value.clone());
    point
}

/// What templates and constraints are evaluated in: nothing undefined, no escaping, an end.
pub(crate) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment
}

/// An error of a template or an expression, in its own words.
pub(crate) fn said(error: &Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(constraints: &[&str]) -> Space {
        let numbers = |values: &[i64]| values.iter().copied().map(Parameter::Number).collect();
        Space {
            grid: [("TILE".to_owned(), numbers(&[32, 64, 128])), ("UNROLL".to_owned(), numbers(&[1, 2, 4]))].into(),
            constraints: constraints.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn configurations_are_the_product_less_what_violates_a_constraint() {
        assert_eq!(space(&[]).configurations().unwrap().len(), 9);
        let both = space(&["TILE * UNROLL <= 128", "TILE % 64 == 0 or UNROLL > 1"]).configurations().unwrap();
        let words: Vec<String> = both.iter().map(in_words).collect();
        assert_eq!(
            words,
            ["TILE=32 UNROLL=2", "TILE=32 UNROLL=4", "TILE=64 UNROLL=1", "TILE=64 UNROLL=2", "TILE=128 UNROLL=1"]
        );
    }

    #[test]
    fn an_unknown_name_or_a_half_expression_is_said_in_words() {
        let unknown = space(&["TILE <= BLOCK"]).check().unwrap_err();
        assert_eq!(unknown, "`TILE <= BLOCK` names `BLOCK`; the parameters are TILE, UNROLL");
        assert!(space(&["TILE <="]).check().unwrap_err().starts_with("`TILE <=`: "));
        assert_eq!(space(&["TILE <= 64"]).check(), Ok(()));
    }

    #[test]
    fn bindings_that_no_configuration_has_are_refused_with_what_there_is() {
        let space = space(&["TILE * UNROLL <= 128"]);
        let said = |pairs: &[(&str, &str)]| {
            space.allows(&pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect())
        };
        assert_eq!(said(&[("TILE", "64"), ("UNROLL", "2")]), Ok(()));
        assert_eq!(said(&[("TILE", "64")]), Ok(()));
        for (pairs, why) in [
            (&[("TILES", "64")][..], "the task has no tuning parameter `TILES`; it has TILE, UNROLL"),
            (&[("TILE", "65"), ("UNROLL", "2")][..], "TILE=65: expected one of 32, 64, 128"),
            (
                &[("TILE", "128"), ("UNROLL", "2")][..],
                "no configuration has TILE=128 UNROLL=2: a constraint forbids it",
            ),
        ] {
            assert_eq!(said(pairs), Err(why.to_owned()));
        }
    }

    #[test]
    fn a_wider_space_extends_what_was_kept_and_has_no_name_twice() {
        let by = |name: &str, constraint: &str| {
            let grid = [(name.to_owned(), vec![Parameter::Number(1), Parameter::Number(2)])].into();
            Space { grid, constraints: vec![constraint.to_owned()] }
        };
        let wider = space(&[]).widened(&by("STAGES", "STAGES * TILE <= 64")).unwrap();
        let kept: Vec<Bindings> = space(&[]).configurations().unwrap().into_iter().take(4).collect();
        let words: Vec<String> = wider.extending(&kept).unwrap().iter().map(in_words).collect();
        assert_eq!(words.len(), 7, "TILE=32 with UNROLL 1, 2, 4 twice each, and TILE=64 once: {words:?}");
        let why = "the context has the tuning parameter `TILE` already";
        assert_eq!(space(&[]).widened(&by("TILE", "TILE > 0")).unwrap_err(), why);
        let far = space(&[]).widened(&by("STAGES", "STAGES > 2")).unwrap();
        assert_eq!(far.extending(&[]).unwrap_err(), "no values satisfy every constraint");
    }

    #[test]
    fn without_a_parameter_its_constraints_go_and_what_was_kept_counts_once() {
        let before = space(&["TILE * UNROLL <= 64", "TILE >= 32"]);
        let after = before.without(&["UNROLL".to_owned()]);
        assert_eq!((after.grid.len(), &after.constraints[..]), (1, &["TILE >= 32".to_owned()][..]));
        let kept = before.configurations().unwrap();
        let tiles: Vec<String> = after.extending(&kept).unwrap().iter().map(in_words).collect();
        assert!(kept.len() > tiles.len() && tiles.len() == tiles.iter().collect::<BTreeSet<_>>().len(), "{tiles:?}");
    }

    #[test]
    fn fewer_are_the_first_of_more_and_every_value_has_its_turn() {
        let (few, all) = (space(&[]).spread(3, 7, "a").unwrap(), space(&[]).spread(20, 7, "a").unwrap());
        assert_eq!((few.len(), all.len()), (3, 9));
        assert_eq!(few[..], all[..3]);
        let tiles: BTreeSet<&Parameter> = few.iter().map(|point| &point["TILE"]).collect();
        assert_eq!(tiles.len(), 3, "{few:?}");
    }
}
