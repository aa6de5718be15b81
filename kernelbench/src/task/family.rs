//! Which kernels of widely different speed can be had for a task, without a model?
//!
//! A family is a few designs, each a template with a grid of parameters. Its members are drawn spread over the grid, always
//! the same for the same seed, and so that fewer are the first of more.

use crate::{hash::Hash, result::candidate::Candidate};
use minijinja::{Environment, Error, UndefinedBehavior, Value};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The most points of one design's grid.
pub(crate) const MOST_POINTS: usize = 100_000;
/// What rendering one member may cost, in steps of the template's machine.
const FUEL: u64 = 1_000_000;

/// Several designs of kernels for one task.
#[derive(Clone, Debug)]
pub struct Family {
    /// The designs, in order.
    pub designs: Vec<Design>,
}

/// A template with a grid of parameters.
#[derive(Clone, Debug)]
pub struct Design {
    /// Its name, unique in its family.
    pub name: String,
    /// The template (minijinja), which renders to a candidate's source.
    pub template: String,
    /// The values of each parameter.
    pub grid: BTreeMap<String, Vec<Parameter>>,
    /// An expression of the parameters that is true of those points of the grid that are kernels.
    pub constraint: Option<String>,
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Parameter {
    /// Whether something is so.
    Flag(bool),
    /// A size or a count.
    Number(i64),
    /// One of several ways.
    Word(String),
}

/// A kernel of a family.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its design and its parameters, in words: `tile: pad=1 tile=32`.
    pub name: String,
    /// Its source.
    pub candidate: Candidate,
}

type Point = BTreeMap<String, Parameter>;

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

impl Family {
    /// So many members, or all where there are fewer: from each design in turn, spread over its grid.
    ///
    /// # Errors
    /// In words, where a template or a constraint cannot be rendered.
    pub fn draw(&self, count: usize, seed: u64) -> Result<Vec<Member>, String> {
        let drawn = self.designs.iter().map(|design| design.draw(count, seed)).collect::<Result<Vec<_>, _>>()?;
        let mut turns: Vec<_> = drawn.into_iter().map(Vec::into_iter).collect();
        let (mut members, mut sources) = (vec![], BTreeSet::new());
        while members.len() < count {
            let turn: Vec<Member> = turns.iter_mut().filter_map(Iterator::next).collect();
            if turn.is_empty() {
                break;
            }
            members.extend(turn.into_iter().filter(|member| sources.insert(member.candidate.id())));
        }
        members.truncate(count);
        Ok(members)
    }
}

impl Design {
    /// Whether the template and the constraint can be parsed; in words where not.
    pub(crate) fn check(&self) -> Result<(), String> {
        let environment = environment();
        let said = |error: &Error| told(&self.name, error);
        environment.template_from_str(&self.template).map_err(|e| said(&e))?;
        self.constraint.as_ref().map_or(Ok(()), |text| {
            environment.compile_expression(text).map(|_| ()).map_err(|e| format!("where = {text:?}: {}", said(&e)))
        })
    }

    /// How many points the grid has.
    pub(crate) fn points(&self) -> usize {
        self.grid.values().map(Vec::len).fold(1, usize::saturating_mul)
    }

    fn draw(&self, count: usize, seed: u64) -> Result<Vec<Member>, String> {
        let environment = environment();
        let said = |error: &Error| told(&self.name, error);
        let template = environment.template_from_str(&self.template).map_err(|e| said(&e))?;
        let points = self.allowed(&environment).map_err(|e| said(&e))?;
        let member = |point: Point| {
            let source = template.render(Value::from(point.clone())).map_err(|e| said(&e))?;
            let words: Vec<String> = point.iter().map(|(name, value)| format!("{name}={value}")).collect();
            Ok(Member {
                name: format!("{}: {}", self.name, words.join(" ")),
                candidate: Candidate::new(source.trim().to_owned() + "\n"),
            })
        };
        self.spread(points, count, seed).into_iter().map(member).collect()
    }

    /// The points that are kernels.
    fn allowed(&self, environment: &Environment<'_>) -> Result<Vec<Point>, Error> {
        let mut points: Vec<Point> = vec![Point::new()];
        for (name, values) in &self.grid {
            let with = |point: &Point| values.iter().map(|value| extended(point, name, value)).collect::<Vec<_>>();
            points = points.iter().flat_map(with).collect();
        }
        let Some(text) = &self.constraint else { return Ok(points) };
        let holds = environment.compile_expression(text)?;
        let mut allowed = vec![];
        for point in points {
            if holds.eval(Value::from(point.clone()))?.is_true() {
                allowed.push(point);
            }
        }
        Ok(allowed)
    }

    /// The first so many points in an order that uses each value of each parameter as often as the others.
    fn spread(&self, mut points: Vec<Point>, count: usize, seed: u64) -> Vec<Point> {
        points.sort_by_cached_key(|point| Hash::of(format!("{seed} {} {point:?}", self.name).as_bytes()));
        let mut used: BTreeMap<(String, Parameter), u32> = BTreeMap::new();
        let mut chosen = vec![];
        while chosen.len() < count && !points.is_empty() {
            let often = |point: &Point| -> u32 {
                let one = |(name, value): (&String, &Parameter)| used.get(&(name.clone(), value.clone())).copied();
                point.iter().filter_map(one).map(|times| times * times).sum()
            };
            let next = (0..points.len()).min_by_key(|at| often(&points[*at])).unwrap_or(0);
            let point = points.remove(next);
            for (name, value) in &point {
                *used.entry((name.clone(), value.clone())).or_default() += 1;
            }
            chosen.push(point);
        }
        chosen
    }
}

fn extended(point: &Point, name: &str, value: &Parameter) -> Point {
    let mut point = point.clone();
    point.insert(name.to_owned(), value.clone());
    point
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment
}

fn told(design: &str, error: &Error) -> String {
    let line = error.line().map(|line| format!(", line {line}")).unwrap_or_default();
    format!("design `{design}`{line}: {}", error.detail().map_or_else(|| error.kind().to_string(), Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn design(name: &str, constraint: Option<&str>) -> Design {
        let numbers = |values: [i64; 4]| values.map(Parameter::Number).to_vec();
        Design {
            name: name.to_owned(),
            template: "// {{ wide }} x {{ high }}\n".to_owned() + name,
            grid: [("high".to_owned(), numbers([1, 2, 3, 4])), ("wide".to_owned(), numbers([10, 20, 30, 40]))].into(),
            constraint: constraint.map(str::to_owned),
        }
    }

    fn names(family: &Family, count: usize, seed: u64) -> Vec<String> {
        family.draw(count, seed).unwrap().into_iter().map(|member| member.name).collect()
    }

    #[test]
    fn fewer_are_the_first_of_more_and_each_design_has_its_turn() {
        let family = Family { designs: vec![design("a", None), design("b", Some("wide > 20"))] };
        let all = names(&family, 100, 7);
        assert_eq!(all.len(), 16 + 8);
        assert_eq!(all[..5], names(&family, 5, 7));
        assert_ne!(all[..5], names(&family, 5, 8));
        assert!(all[..16].iter().step_by(2).all(|name| name.starts_with("a:")), "{all:?}");
        assert!(!all.iter().any(|name| name.starts_with("b:") && name.ends_with("wide=10")));
    }

    #[test]
    fn a_few_members_are_spread_over_every_parameter() {
        let family = Family { designs: vec![design("a", None)] };
        let four = names(&family, 4, 1);
        for value in ["high=1", "high=2", "high=3", "high=4", "wide=10", "wide=20", "wide=30", "wide=40"] {
            assert!(four.iter().any(|name| name.contains(value)), "{value}: {four:?}");
        }
    }

    #[test]
    fn a_name_that_no_parameter_has_is_told_with_its_line() {
        let family = Family { designs: vec![Design { template: "//\n{{ deep }}".to_owned(), ..design("a", None) }] };
        assert!(family.draw(1, 0).unwrap_err().contains("design `a`, line 2"));
        assert!(design("a", Some("wide >")).check().unwrap_err().contains("where"));
    }

    #[test]
    fn a_template_that_never_ends_is_stopped() {
        let endless = "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}";
        let family = Family { designs: vec![Design { template: endless.to_owned(), ..design("a", None) }] };
        assert!(family.draw(1, 0).unwrap_err().contains("fuel"));
    }
}
