//! Points of a grid by the places of their values, and what lies beside them.

use crate::task::space::{Bindings, Parameter};
use std::collections::{BTreeSet, HashMap};

/// A point as the place of each parameter's value among its values in order.
pub(super) type Place = Vec<u16>;

/// The points of a search.
pub(super) struct Grid {
    points: Vec<Bindings>,
    places: Vec<Place>,
    at: HashMap<Place, usize>,
    values: Vec<Vec<Parameter>>,
}

impl Grid {
    /// All of these, which bind the same parameters.
    pub(super) fn new(points: Vec<Bindings>) -> Self {
        let names: Vec<String> = points.first().map(|point| point.keys().cloned().collect()).unwrap_or_default();
        let of = |name: &String| points.iter().filter_map(|point| point.get(name).cloned()).collect::<BTreeSet<_>>();
        let values: Vec<Vec<Parameter>> = names.iter().map(|name| of(name).into_iter().collect()).collect();
        let place = |point: &Bindings| -> Place {
            point.values().zip(&values).map(|(value, all)| all.binary_search(value).unwrap_or(0) as u16).collect()
        };
        let places: Vec<Place> = points.iter().map(place).collect();
        let at = places.iter().enumerate().map(|(at, place)| (place.clone(), at)).collect();
        Self { points, places, at, values }
    }

    /// How many values each parameter has.
    pub(super) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.values.iter().map(Vec::len)
    }

    /// How many points there are.
    pub(super) fn len(&self) -> usize {
        self.points.len()
    }

    pub(super) fn point(&self, at: usize) -> &Bindings {
        &self.points[at]
    }

    pub(super) fn place(&self, at: usize) -> &Place {
        &self.places[at]
    }

    /// The point of this place, where there is one.
    pub(super) fn find(&self, place: &Place) -> Option<usize> {
        self.at.get(place).copied()
    }

    /// Which point these bindings are.
    pub(super) fn which(&self, bindings: &Bindings) -> Option<usize> {
        let place = bindings.values().zip(&self.values).map(|(value, all)| all.binary_search(value).ok());
        self.find(&place.map(|place| place.map(|place| place as u16)).collect::<Option<Place>>()?)
    }

    /// The points that differ from a place in one parameter, those with the next value first.
    pub(super) fn beside(&self, place: &Place) -> Vec<usize> {
        let mut found: Vec<(u16, usize)> = vec![];
        for (at, all) in self.values.iter().enumerate() {
            for other in (0..all.len() as u16).filter(|other| *other != place[at]) {
                let mut beside = place.clone();
                beside[at] = other;
                found.extend(self.find(&beside).map(|found| (other.abs_diff(place[at]), found)));
            }
        }
        found.sort_by_key(|(steps, _)| *steps);
        found.into_iter().map(|(_, at)| at).collect()
    }
}
