//! Is it right on every case?

use super::{
    trial::{self, Draw, Trial},
    wire::Layer,
    worker::Launch,
};
use crate::{
    result::error::Attempt,
    task::{Case, KernelContext, Tolerance},
};
use rand::rngs::StdRng;
use std::{path::Path, time::Duration};

/// Draws on which each case is checked: the second lies at the same addresses as the first.
const DRAWS: usize = 2;

/// What a check or a timing needs to know beside the case.
pub(crate) struct Bench<'a> {
    pub(crate) launch: &'a Launch,
    pub(crate) context: &'a KernelContext,
    pub(crate) tolerance: &'a Tolerance,
    /// The shared objects of the reference and of the candidate.
    pub(crate) objects: [&'a Path; 2],
    /// What every deadline has beside twenty times the reference's time.
    pub(crate) floor: Duration,
}

/// Compares with the reference on every case, and says how the candidate's process was confined.
pub(crate) fn check(bench: &Bench<'_>, cases: &[Case], rng: &mut StdRng) -> Attempt<Vec<Layer>> {
    let mut layers = vec![];
    for case in cases {
        let plan = trial::plan(bench.context, case)?;
        let mut trial = Trial::start(bench.launch, &plan, bench.tolerance, 1, bench.objects)?;
        for _ in 0..DRAWS {
            let draw = Draw::new(&plan, rng);
            trial.fill(0, &draw.as_drawn(), rng);
            let reference = trial.run_reference(1)?;
            trial.run_candidate(1, trial::deadline(reference.outside, bench.floor))?;
            trial.verify(0, &draw.as_drawn(), false)?;
        }
        layers = trial.candidate.layers().to_vec();
    }
    Ok(layers)
}
