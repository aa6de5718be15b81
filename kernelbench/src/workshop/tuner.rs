//! Which configurations are tried next? All of them, drawn ones, or those that a model of the times hopes for.
//!
//! A tuner is asked for a few at a time and told what came of each. It gives the same answers to the same findings, so that a
//! search that was killed goes on as it would have, and none twice.

mod neighbours;
mod tpe;

use crate::task::space::{Bindings, spread};
use neighbours::Grid;
use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, fmt, str::FromStr, sync::Arc};
use tpe::Tpe;

/// How configurations are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tuner {
    /// Every one, however many are allowed.
    Exhaustive,
    /// As many as are allowed, drawn so that each value has its turn.
    Sampled,
    /// A tree-structured Parzen estimator (Bergstra and others, 2011), whose last quarter is spent beside the best.
    Tpe,
}

impl Tuner {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Exhaustive, Self::Sampled, Self::Tpe];

    /// The name, as in flags and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exhaustive => "exhaustive",
            Self::Sampled => "sampled",
            Self::Tpe => "tpe",
        }
    }
}

impl fmt::Display for Tuner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tuner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|tuner| tuner.name() == text);
        found.ok_or_else(|| format!("there is no tuner {text:?}; there are {}", known()))
    }
}

/// A search that is under way.
pub struct Tuning(Way);

enum Way {
    Listed(VecDeque<Bindings>),
    Modelled(Box<Tpe>),
}

impl Tuning {
    /// A search among these configurations, of which at most `tests` are tried unless all are to be. Without a tuner all are
    /// tried in their order, where they are not more than that, and else drawn ones. What is drawn is drawn by `seed`.
    #[must_use]
    pub fn new(tuner: Option<Tuner>, points: Vec<Bindings>, tests: usize, seed: u64) -> Self {
        let few = points.len() <= tests;
        Self(match tuner {
            Some(Tuner::Tpe) if !few => Way::Modelled(Box::new(Tpe::new(Arc::new(Grid::new(points)), tests, seed))),
            Some(Tuner::Exhaustive) => Way::Listed(points.into()),
            None | Some(Tuner::Tpe) if few => Way::Listed(points.into()),
            _ => Way::Listed(spread(points, tests, seed, "tuning").into()),
        })
    }

    /// The next configurations, at most so many; none where the search is over.
    pub fn ask(&mut self, at_most: usize) -> Vec<Bindings> {
        match &mut self.0 {
            Way::Listed(points) => points.drain(..at_most.min(points.len())).collect(),
            Way::Modelled(tpe) => std::iter::from_fn(|| tpe.ask()).take(at_most).collect(),
        }
    }

    /// What came of one: how many times as fast as the reference it is; `None` where it is none.
    pub fn tell(&mut self, bindings: &Bindings, ratio: Option<f64>) {
        if let Way::Modelled(tpe) = &mut self.0 {
            tpe.tell(bindings, ratio);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::space::{Parameter, Space};

    fn space(sizes: &[i64]) -> Space {
        let values = |size: &i64| (0..*size).map(Parameter::Number).collect();
        let grid = sizes.iter().enumerate().map(|(at, size)| (format!("P{at}"), values(size))).collect();
        Space { grid, constraints: vec![] }
    }

    fn numbers(bindings: &Bindings) -> Vec<f64> {
        let number = |value: &Parameter| if let Parameter::Number(number) = value { *number as f64 } else { 0.0 };
        bindings.values().map(number).collect()
    }

    #[test]
    fn each_tuner_tries_what_it_is_for_and_the_same_findings_lead_to_the_same_questions() {
        let points = space(&[3, 4]).configurations().unwrap();
        let by = |seed, tuner, tests| {
            let mut tuning = Tuning::new(tuner, points.clone(), tests, seed);
            let mut all = vec![];
            loop {
                let batch = tuning.ask(2);
                if batch.is_empty() {
                    return all;
                }
                for point in &batch {
                    tuning.tell(point, Some(numbers(point).iter().sum()));
                }
                all.extend(batch);
            }
        };
        let asked = |tuner, tests| by(0, tuner, tests);
        assert_eq!(asked(Some(Tuner::Exhaustive), 5), points, "however many are allowed");
        assert_eq!(asked(None, 12), points);
        assert_eq!(asked(Some(Tuner::Sampled), 5), spread(points.clone(), 5, 0, "tuning"));
        assert_eq!(asked(None, 5), asked(Some(Tuner::Sampled), 5), "as records have it that name no tuner");
        assert_eq!(asked(Some(Tuner::Tpe), 9), asked(Some(Tuner::Tpe), 9));
        assert_eq!(asked(Some(Tuner::Tpe), 9).len(), 9);
        for tuner in [Tuner::Sampled, Tuner::Tpe] {
            assert_ne!(by(1, Some(tuner), 5), by(0, Some(tuner), 5), "{tuner}: another seed draws others");
        }
        assert_eq!("tp".parse::<Tuner>().unwrap_err(), "there is no tuner \"tp\"; there are exhaustive, sampled, tpe");
    }
}
