//! Which metrics are strong with one sign, and say what was not said before?

use super::{Chosen, Field};
use crate::collinear::{Kept, dot, unit};

/// How much a metric's likeness to those before it counts against its strength.
const LIKENESS: f64 = 0.5;

/// One metric after another: each time the one with the most strength left when its likeness to those before is taken off.
pub(super) fn stable(field: &Field<'_>) -> (Vec<Chosen>, String) {
    let mut open: Vec<Open<'_>> = field.kept.iter().filter_map(|kept| Open::new(field, kept)).collect();
    let (reached, mut chosen) = (open.len(), vec![]);
    while chosen.len() < field.wish.want && !open.is_empty() {
        let left = |open: &Open<'_>| open.strength - LIKENESS * open.likeness / chosen.len().max(1) as f64;
        let best = (0..open.len()).max_by(|one, other| {
            let (one, other) = (&open[*one], &open[*other]);
            left(one).total_cmp(&left(other)).then_with(|| field.name(other.kept).cmp(field.name(one.kept)))
        });
        let Some(best) = best else { break };
        let score = left(&open[best]);
        let taken = open.swap_remove(best);
        for other in &mut open {
            other.likeness += dot(&other.vector, &taken.vector).abs();
        }
        chosen.push(Chosen { column: taken.kept.column, score, instead_of: taken.kept.instead_of.clone() });
    }
    let cut = format!(
        "{reached} with one sign in at least {} tasks; {}",
        least(field),
        super::theirs::last(&chosen, reached)
    );
    (chosen, cut)
}

/// A metric that may still be taken.
struct Open<'a> {
    kept: &'a Kept,
    strength: f64,
    /// The sum of its correlations, in size, with those that were taken.
    likeness: f64,
    vector: Vec<f64>,
}

impl<'a> Open<'a> {
    fn new(field: &Field<'_>, kept: &'a Kept) -> Option<Self> {
        let column = &field.evidence.columns[kept.column];
        let said = field.tasks.iter().filter_map(|task| column.said[*task].as_ref());
        let signed: Vec<f64> = said.map(|said| f64::midpoint(said.r, said.rho)).collect();
        let sum: f64 = signed.iter().sum();
        let agree = signed.iter().filter(|one| **one * sum > 0.0).count();
        let strength = sum.abs() / field.tasks.len() as f64;
        let vector = unit(column.pooled(field.evidence, field.tasks));
        (agree >= least(field)).then_some(Self { kept, strength, likeness: 0.0, vector })
    }
}

fn least(field: &Field<'_>) -> usize {
    field.wish.tasks.min(field.tasks.len())
}
