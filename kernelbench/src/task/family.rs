//! Which kernels of widely different speed can be had for a task, without a model?
//!
//! A family is a few designs, each a template with a grid of parameters. Its members are drawn spread over the grid, always
//! the same for the same seed, and so that fewer are the first of more.

use super::space::{self, Bindings, Space};
use crate::result::candidate::Candidate;
use minijinja::{Error, Value};
use std::collections::BTreeSet;

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
    /// Its parameters, and which of their points are kernels.
    pub space: Space,
}

/// A kernel of a family.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its design and its parameters, in words: `tile: pad=1 tile=32`.
    pub name: String,
    /// Its source.
    pub candidate: Candidate,
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
    /// Whether the template and the constraints can be parsed; in words where not.
    pub(crate) fn check(&self) -> Result<(), String> {
        space::environment().template_from_str(&self.template).map_err(|e| told(&self.name, &e))?;
        self.space.check().map_err(|why| format!("design `{}`: where = {why}", self.name))
    }

    fn draw(&self, count: usize, seed: u64) -> Result<Vec<Member>, String> {
        let environment = space::environment();
        let template = environment.template_from_str(&self.template).map_err(|e| told(&self.name, &e))?;
        let member = |point: Bindings| {
            let source = template.render(Value::from(point.clone())).map_err(|e| told(&self.name, &e))?;
            Ok(Member {
                name: format!("{}: {}", self.name, space::in_words(&point)),
                candidate: Candidate::new(source.trim().to_owned() + "\n"),
            })
        };
        let points =
            self.space.spread(count, seed, &self.name).map_err(|why| format!("design `{}`: {why}", self.name))?;
        points.into_iter().map(member).collect()
    }
}

fn told(design: &str, error: &Error) -> String {
    let line = error.line().map(|line| format!(", line {line}")).unwrap_or_default();
    format!("design `{design}`{line}: {}", space::said(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::space::Parameter;

    fn design(name: &str, constraint: Option<&str>) -> Design {
        let numbers = |values: [i64; 4]| values.map(Parameter::Number).to_vec();
        Design {
            name: name.to_owned(),
            template: "// {{ wide }} x {{ high }}\n".to_owned() + name,
            space: Space {
                grid: [("high".to_owned(), numbers([1, 2, 3, 4])), ("wide".to_owned(), numbers([10, 20, 30, 40]))]
                    .into(),
                constraints: constraint.map(str::to_owned).into_iter().collect(),
            },
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
