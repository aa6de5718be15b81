//! How does a choice become a set's file?

use crate::{
    evidence::Evidence,
    rule::{Choice, Chosen, Wish},
};
use metrics::{
    catalog,
    set::{Data, Metric, MetricSet, Provenance, Sampled},
};
use std::collections::{BTreeMap, BTreeSet};

/// The set of this choice, with all that it was made from. Numbers have six digits behind the point, so that every
/// processor writes the same.
#[must_use]
pub fn set(name: &str, evidence: &Evidence, choice: &Choice, wish: &Wish, present: f64, data: Vec<Data>) -> MetricSet {
    let metric = choice.chosen.iter().map(|chosen| metric(evidence, chosen)).collect();
    let provenance = provenance(evidence, choice, wish, present, data);
    MetricSet { name: name.to_owned(), provenance: Some(provenance), metric }
}

fn metric(evidence: &Evidence, chosen: &Chosen) -> Metric {
    let column = &evidence.columns[chosen.column];
    let said = || evidence.tasks.iter().zip(&column.said).filter_map(|(task, said)| Some((&task.name, said.as_ref()?)));
    let mut instead_of: Vec<String> = chosen.instead_of.iter().map(|at| evidence.columns[*at].name.clone()).collect();
    instead_of.sort();
    Metric {
        meaning: catalog::meaning(&column.name).into_owned(),
        unit: column.unit.clone(),
        score: Some(round(chosen.score)),
        r: said().map(|(task, said)| (task.clone(), round(said.r))).collect(),
        rho: said().map(|(task, said)| (task.clone(), round(said.rho))).collect(),
        instead_of,
        ..Metric::named(&column.name)
    }
}

fn provenance(evidence: &Evidence, choice: &Choice, wish: &Wish, present: f64, data: Vec<Data>) -> Provenance {
    let setups = &evidence.setups;
    let each = |of: fn(&crate::table::Setup) -> &String| -> Vec<String> {
        setups.iter().map(of).cloned().collect::<BTreeSet<_>>().into_iter().collect()
    };
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    for out in evidence.columns.iter().filter_map(|column| column.out) {
        *left_out.entry(out.word().to_owned()).or_default() += 1;
    }
    if choice.distinct > 0 {
        left_out.insert("collinear with another".to_owned(), choice.eligible - choice.distinct);
    }
    Provenance {
        program: format!("warpsmith {}", env!("CARGO_PKG_VERSION")),
        rule: wish.rule.name().to_owned(),
        want: wish.want,
        cut: choice.cut.clone(),
        architecture: setups.iter().next().map(|setup| setup.architecture.clone()).unwrap_or_default(),
        gpu: each(|setup| &setup.gpu),
        driver: each(|setup| &setup.driver),
        ncu: each(|setup| &setup.ncu),
        parameters: parameters(wish, present),
        left_out,
        runtime: evidence.runtime(),
        data,
        task: evidence.tasks.iter().map(sampled).collect(),
    }
}

fn parameters(wish: &Wish, present: f64) -> BTreeMap<String, f64> {
    let named = [
        ("top", wish.top as f64),
        ("tasks", wish.tasks as f64),
        ("percentile", wish.percentile),
        ("collinear", wish.collinear),
        ("seed", wish.seed as f64),
        ("present", present),
    ];
    named.map(|(name, value)| (name.to_owned(), value)).into()
}

fn sampled(task: &crate::evidence::Task) -> Sampled {
    let (low, high) =
        task.runtimes.iter().fold((f64::MAX, 0.0_f64), |(low, high), time| (low.min(*time), high.max(*time)));
    Sampled { name: task.name.clone(), kernels: task.kernels.len(), spread: (high / low * 100.0).round() / 100.0 }
}

fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6 + 0.0
}
