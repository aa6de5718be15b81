//! What a call launches, as torch's own profiler saw it in the candidate's process.
//!
//! The candidate could lie here: a profile is advice to the one who wants it faster, and decides nothing.

use crate::{
    backend::torch::{runner::Runner, wire::Row},
    profile::ncu::{Dominant, Launches, dominant},
    result::error::{Attempt, EvalError},
};
use metrics::{Kernel, Reading};
use std::time::Duration;

/// What it may take.
const DEADLINE: Duration = Duration::from_mins(1);

/// The launches of one call on the inputs that the candidate was shown last; in words why there are none.
pub(super) fn launches(candidate: &mut Runner) -> Attempt<Result<Vec<Launches>, String>> {
    let rows = match candidate.trace(DEADLINE) {
        Ok(rows) => rows,
        Err(EvalError::Candidate(failure)) => return Ok(Err(failure.to_string())),
        Err(fault @ EvalError::Infra(_)) => return Err(fault),
    };
    let seen: Vec<Launches> = rows.into_iter().map(launches_of).filter(|launched| launched.ns > 0.0).collect();
    Ok(if seen.is_empty() { Err("torch's profiler saw nothing run".to_owned()) } else { Ok(seen) })
}

fn launches_of(row: Row) -> Launches {
    let ns = if row.ns.is_finite() { row.ns } else { 0.0 };
    let fact =
        |(name, value, unit, meaning): &(String, f64, String, String)| Reading::new(name, Some(*value), unit, meaning);
    let facts = row.facts.iter().map(fact).collect();
    Launches { name: row.name, shape: [row.grid, row.block], count: row.count.max(1), ns, facts }
}

/// The kernels that the time goes to, with what is known of a launch of each.
pub(super) fn kernels(launches: &[Launches]) -> (Vec<Kernel>, Vec<String>) {
    let (shown, notes) = dominant(launches);
    let kernel = |kernel: &Dominant<'_>| Kernel {
        name: kernel.longest.name.clone(),
        launches: Some(kernel.launches),
        share: Some(kernel.share),
        readings: readings(kernel.longest),
    };
    (shown.iter().map(kernel).collect(), notes)
}

/// The duration of a launch, its shape where it has one, and what it was launched with.
pub(super) fn readings(launched: &Launches) -> Vec<Reading> {
    let each = launched.ns / launched.count.max(1) as f64;
    let mut readings = vec![Reading::new("duration", Some(each), "ns", "of one launch")];
    let [grid, block] = launched.shape.map(|shape| shape.iter().map(|n| *n as f64).product::<f64>());
    if grid > 0.0 {
        let [g, b] = launched.shape.map(|[x, y, z]| format!("{x} x {y} x {z}"));
        readings.push(Reading::new("grid", Some(grid), "block", &format!("blocks: {g}")));
        readings.push(Reading::new("block", Some(block), "thread", &format!("threads a block: {b}")));
    }
    readings.extend(launched.facts.iter().cloned());
    readings
}
