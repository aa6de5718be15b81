//! How did `CudaForge` choose, as printed and as published?

use super::{Chosen, Field};
use crate::collinear::Kept;

/// In the top lists of several tasks, with one sign, and a mean |r| above the percentile (the public version of the paper,
/// section 2.3: the mean of |r| is above P75 of all means).
pub(super) fn public(field: &Field<'_>) -> (Vec<Chosen>, String) {
    let wish = field.wish;
    let bar = percentile(field.kept.iter().map(|kept| field.mean_abs_r(kept)).collect(), wish.percentile);
    let least = wish.tasks.min(field.tasks.len());
    let signs = appearances(field);
    let passed = field.kept.iter().zip(&signs).filter(|(_, signs)| signs.len() >= least && one_sign(signs));
    let in_lists = passed.clone().count();
    let above: Vec<(f64, &Kept)> =
        passed.map(|(kept, _)| (field.mean_abs_r(kept), kept)).filter(|(score, _)| *score > bar).collect();
    let reached = above.len();
    let chosen = field.best(above);
    let cut = format!(
        "{in_lists} in the top {} of at least {least} tasks with one sign, {reached} of them with a mean |r| above {bar:.6} (percentile {}); {}",
        wish.top,
        wish.percentile,
        last(&chosen, reached),
    );
    (chosen, cut)
}

/// In the top lists of all tasks (algorithm 2 of the paper, line 253).
pub(super) fn intersection(field: &Field<'_>) -> (Vec<Chosen>, String) {
    let signs = appearances(field);
    let everywhere = field.kept.iter().zip(&signs).filter(|(_, signs)| signs.len() == field.tasks.len());
    let everywhere: Vec<(f64, &Kept)> = everywhere.map(|(kept, _)| (field.mean_abs_r(kept), kept)).collect();
    let reached = everywhere.len();
    let chosen = field.best(everywhere);
    let cut = format!(
        "{reached} in the top {} of all {} tasks; {}",
        field.wish.top,
        field.tasks.len(),
        last(&chosen, reached)
    );
    (chosen, cut)
}

/// The highest mean |r|.
pub(super) fn top(field: &Field<'_>) -> (Vec<Chosen>, String) {
    let all: Vec<(f64, &Kept)> = field.kept.iter().map(|kept| (field.mean_abs_r(kept), kept)).collect();
    let reached = all.len();
    let chosen = field.best(all);
    let cut = last(&chosen, reached);
    (chosen, cut)
}

/// Of each metric, the signs of r in the tasks whose top list it is in.
fn appearances(field: &Field<'_>) -> Vec<Vec<bool>> {
    let mut signs = vec![vec![]; field.kept.len()];
    for task in field.tasks {
        let mut said: Vec<(f64, &str, usize)> = vec![];
        for (at, kept) in field.kept.iter().enumerate() {
            said.extend(field.r(kept, *task).map(|r| (r, field.name(kept), at)));
        }
        said.sort_by(|one, other| other.0.abs().total_cmp(&one.0.abs()).then_with(|| one.1.cmp(other.1)));
        for (r, _, at) in said.into_iter().take(field.wish.top) {
            signs[at].push(r > 0.0);
        }
    }
    signs
}

fn one_sign(signs: &[bool]) -> bool {
    signs.iter().all(|sign| *sign == signs[0])
}

/// The value below which this share of them lies, between two of them in proportion.
pub(crate) fn percentile(mut values: Vec<f64>, percent: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let place = (percent / 100.0).clamp(0.0, 1.0) * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    values[below] + (values[above] - values[below]) * (place - below as f64)
}

/// Where the cut fell.
pub(super) fn last(chosen: &[Chosen], reached: usize) -> String {
    match chosen.last() {
        Some(last) if chosen.len() < reached => {
            format!("the first {} by score, down to {:.6}", chosen.len(), last.score)
        }
        Some(last) => format!("all {reached} taken, down to {:.6}", last.score),
        None => "none".to_owned(),
    }
}
