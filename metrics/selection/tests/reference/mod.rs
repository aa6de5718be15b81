//! The same rules once more, written in another way: by the textbook, row by row, without polars and without vectors that are
//! shared

use metrics::unit;
use std::collections::{BTreeMap, BTreeSet};
use warpsmith_selection::{Profiled, Rule, Wish, name};

type Pairs = Vec<(f64, f64)>;

/// Of each metric and each task, the pairs of value and time.
struct Facts {
    pairs: BTreeMap<String, BTreeMap<String, Pairs>>,
    tasks: BTreeSet<String>,
}

/// The names that the rule chooses, with their scores.
pub(crate) fn choose(profiles: &[Profiled], wish: &Wish) -> Vec<(String, f64)> {
    let facts = facts(profiles);
    let names = distinct(&facts, wish.collinear);
    match wish.rule {
        Rule::Public => public(&facts, &names, wish),
        Rule::Stable => stable(&facts, &names, wish),
        other => panic!("there is no second implementation of {}", other.name()),
    }
}

fn facts(profiles: &[Profiled]) -> Facts {
    let tasks: BTreeSet<String> = profiles.iter().map(|one| one.task.clone()).collect();
    let mut pairs: BTreeMap<String, BTreeMap<String, Pairs>> = BTreeMap::new();
    let mut sorted: Vec<&Profiled> = profiles.iter().collect();
    sorted.sort_by_key(|one| &one.kernel);
    for one in sorted {
        for measured in &one.measured {
            if let Some(value) = measured.value {
                let value = value * unit::base(&measured.unit).0;
                let of_task = pairs.entry(measured.metric.clone()).or_default().entry(one.task.clone()).or_default();
                of_task.push((value, one.runtime_ns));
            }
        }
    }
    let kernels = |task: &String| profiles.iter().filter(|one| one.task == *task).count();
    for of_metric in pairs.values_mut() {
        of_metric.retain(|task, pairs| {
            let varies = pairs.iter().any(|pair| (pair.0 - pairs[0].0).abs() > 1e-9 * pair.0.abs());
            pairs.len() * 10 >= kernels(task) * 8 && varies
        });
    }
    pairs.retain(|metric, of_metric| {
        let like = of_metric.values().filter(|pairs| pearson(pairs).abs() >= 0.999).count();
        name::nothing(metric).is_none() && !of_metric.is_empty() && like < tasks.len()
    });
    Facts { pairs, tasks }
}

impl Facts {
    fn r(&self, name: &str, task: &str) -> Option<f64> {
        self.pairs[name].get(task).map(|pairs| pearson(pairs))
    }

    fn score(&self, name: &str) -> f64 {
        let sum: f64 = self.tasks.iter().filter_map(|task| self.r(name, task)).map(f64::abs).sum();
        sum / self.tasks.len() as f64
    }
}

/// By the sums.
fn pearson(pairs: &[(f64, f64)]) -> f64 {
    let n = pairs.len() as f64;
    let shift = pairs[0];
    let (mut x, mut y, mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for pair in pairs {
        let (value, time) = (pair.0 - shift.0, pair.1 - shift.1);
        x += value;
        y += time;
        xx += value * value;
        yy += time * time;
        xy += value * time;
    }
    (n * xy - x * y) / ((n * xx - x * x).sqrt() * (n * yy - y * y).sqrt())
}

fn spearman(pairs: &[(f64, f64)]) -> f64 {
    let rank = |values: Vec<f64>| -> Vec<f64> {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let place = |value: &f64| {
            let first = sorted.iter().position(|other| other >= value).unwrap();
            let last = sorted.iter().rposition(|other| other <= value).unwrap();
            (first + last) as f64 / 2.0
        };
        values.iter().map(place).collect()
    };
    let (one, other) = pairs.iter().copied().unzip();
    pearson(&rank(one).into_iter().zip(rank(other)).collect::<Vec<_>>())
}

/// The covariance of two metrics over all tasks, each standardised within its task.
fn likeness(profiles: &Standard, one: &str, other: &str) -> f64 {
    let product = |a: &str, b: &str| -> f64 {
        let (a, b) = (&profiles[a], &profiles[b]);
        a.iter().filter_map(|(at, value)| Some(value * b.get(at)?)).sum()
    };
    product(one, other) / (product(one, one) * product(other, other)).sqrt()
}

/// Of each metric, its standardised values by task and time (no two kernels of a task take equally long here).
type Standard = BTreeMap<String, BTreeMap<(String, u64), f64>>;

fn standard(facts: &Facts) -> Standard {
    let mut all = Standard::new();
    for (name, of_metric) in &facts.pairs {
        let own = all.entry(name.clone()).or_default();
        for (task, pairs) in of_metric {
            let mean = pairs.iter().map(|pair| pair.0).sum::<f64>() / pairs.len() as f64;
            let squares: f64 = pairs.iter().map(|pair| (pair.0 - mean).powi(2)).sum();
            own.extend(
                pairs.iter().map(|(value, time)| ((task.clone(), time.to_bits()), (value - mean) / squares.sqrt())),
            );
        }
    }
    all
}

fn distinct(facts: &Facts, threshold: f64) -> Vec<String> {
    let standard = standard(facts);
    let mut names: Vec<&String> = facts.pairs.keys().collect();
    names.sort_by_key(|n| (-(facts.score(n) * 100.0).round() as i64, name::plainness(n), n.len(), (*n).clone()));
    let mut kept: Vec<String> = vec![];
    for candidate in names {
        if kept.iter().all(|other| likeness(&standard, candidate, other).abs() < threshold) {
            kept.push(candidate.clone());
        }
    }
    kept
}

fn public(facts: &Facts, names: &[String], wish: &Wish) -> Vec<(String, f64)> {
    let mut scores: Vec<f64> = names.iter().map(|name| facts.score(name)).collect();
    scores.sort_by(f64::total_cmp);
    let place = wish.percentile / 100.0 * (scores.len() - 1) as f64;
    let (low, high) = (scores[place as usize], scores[(place.ceil() as usize).min(scores.len() - 1)]);
    let bar = low * (1.0 - place.fract()) + high * place.fract();
    let mut listed: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for task in &facts.tasks {
        let mut list: Vec<(&String, f64)> =
            names.iter().filter_map(|name| Some((name, facts.r(name, task)?))).collect();
        list.sort_by(|one, other| other.1.abs().total_cmp(&one.1.abs()).then(one.0.cmp(other.0)));
        for (name, r) in list.iter().take(wish.top) {
            listed.entry(name).or_default().push(r.signum());
        }
    }
    let agrees =
        |signs: &Vec<f64>| signs.len() >= wish.tasks && signs.iter().sum::<f64>().abs() as usize == signs.len();
    let mut passed: Vec<(String, f64)> = vec![];
    for (name, signs) in listed {
        if agrees(&signs) && facts.score(name) > bar {
            passed.push((name.to_owned(), facts.score(name)));
        }
    }
    passed.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    passed.into_iter().take(wish.want).collect()
}

fn stable(facts: &Facts, names: &[String], wish: &Wish) -> Vec<(String, f64)> {
    let standard = standard(facts);
    let mut strength: BTreeMap<&String, f64> = BTreeMap::new();
    for name in names {
        let signed: Vec<f64> =
            facts.pairs[name].values().map(|pairs| f64::midpoint(pearson(pairs), spearman(pairs))).collect();
        let sum: f64 = signed.iter().sum();
        if signed.iter().filter(|one| one.signum() == sum.signum()).count() >= wish.tasks {
            strength.insert(name, sum.abs() / facts.tasks.len() as f64);
        }
    }
    let mut chosen: Vec<(String, f64)> = vec![];
    while chosen.len() < wish.want {
        let left = |name: &String| {
            let likenesses: f64 = chosen.iter().map(|(other, _)| likeness(&standard, name, other).abs()).sum();
            strength[name] - 0.5 * likenesses / chosen.len().max(1) as f64
        };
        let open = strength.keys().filter(|name| chosen.iter().all(|(other, _)| other != **name));
        let Some(best) = open.max_by(|one, other| left(one).total_cmp(&left(other)).then(other.cmp(one))) else {
            break;
        };
        let next = ((*best).clone(), left(best));
        chosen.push(next);
    }
    chosen
}
