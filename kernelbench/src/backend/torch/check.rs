//! Is it right on every trial?

use super::{
    CASE,
    runner::Runner,
    session::Session,
    verify::{Found, Look},
};
use crate::{
    result::{
        error::{Attempt, Trouble},
        failure::Failure,
    },
    task::Tolerance,
};
use rand::{Rng, rngs::StdRng};
use std::time::Duration;

/// How many times the reference's own error a candidate's may be before it is labelled.
const FAR_ABOVE: f64 = 16.0;
/// Below this an error is that of single precision, whatever the reference's.
const NEGLIGIBLE: f64 = 3e-6;
/// By how much wider inputs of both signs widen the tolerance: their reference is less exact.
const WIDER: f64 = 10.0;
/// What the trial on such inputs is called.
pub(crate) const SIGNED: &str = "default, with inputs of both signs";

/// Compares on so many draws, and once on inputs of a wider range; says what is worth a label. The process may have
/// ended over the last.
pub(crate) fn check(
    session: &mut Session,
    candidate: &mut Runner,
    tolerance: &Tolerance,
    trials: u32,
    floor: Duration,
    rng: &mut StdRng,
) -> Attempt<Vec<String>> {
    let mut found = Found::default();
    // Double precision takes longer than all else, and says the same of each draw: which one is asked, nobody knows.
    let asked = rng.random_range(0..trials.max(1));
    for at in 0..trials.max(1) {
        let look = Look { tolerance, case: CASE, oracle: at == asked, while_timed: false, beyond: false };
        let one = trial(session, candidate, &look, false, floor, rng)?;
        found.errors.extend(one.errors);
        found.no_oracle = one.no_oracle;
    }
    let mut labels = labels(&found);
    let wider = Tolerance { atol: tolerance.atol * WIDER, rtol: tolerance.rtol * WIDER, ..*tolerance };
    let look = Look { tolerance: &wider, case: SIGNED, oracle: false, while_timed: false, beyond: true };
    labels.extend(beyond(trial(session, candidate, &look, true, floor, rng))?);
    Ok(labels)
}

/// What a trial on inputs that the problem does not draw is worth. The contract's rule does not ask for it, so what
/// differs there is shown and no failure; but an output that is its own input, bit by bit, is one, and so is a break-out.
fn beyond(trial: Attempt<Found>) -> Attempt<Option<String>> {
    let not_tried = format!("not tried: {SIGNED}");
    let differs = |failure: &Failure| Some(format!("beyond what get_inputs() draws: {failure}"));
    match trial {
        Ok(Found { differs: Some(failure), .. }) if has_no_answer(&failure) => Ok(Some(not_tried)),
        Ok(Found { differs: Some(failure), .. }) => Ok(differs(&failure)),
        Ok(_) => Ok(None),
        // The reference itself cannot take such inputs: then no candidate has to.
        Err(Trouble::Fault(fault)) if fault.0.contains("reference failed") => Ok(Some(not_tried)),
        Err(Trouble::Failure(failure)) if decides(&failure) => Err(Trouble::Failure(failure)),
        Err(Trouble::Failure(failure)) => Ok(differs(&failure)),
        Err(fault) => Err(fault),
    }
}

fn decides(failure: &Failure) -> bool {
    matches!(failure, Failure::Mismatch { .. } | Failure::Forbidden { .. })
}

fn has_no_answer(failure: &Failure) -> bool {
    matches!(failure, Failure::Mismatch { expected, .. } if ["nan", "inf", "-inf"].contains(&expected.as_str()))
}

fn trial(
    session: &mut Session,
    candidate: &mut Runner,
    look: &Look<'_>,
    signed: bool,
    floor: Duration,
    rng: &mut StdRng,
) -> Attempt<Found> {
    let count = session.slots.min(2);
    session.draw(count, signed, rng)?;
    candidate.inputs(&session.inputs)?;
    let slots = [rng.random_range(0..count)];
    let reference = session.run_reference(&slots)?;
    let got = session.run_candidate(candidate, &slots, floor + reference.outside * 20, rng)?;
    let found = session.verify(candidate, &reference, &got, &slots, look)?;
    candidate.release()?;
    session.reference.release()?;
    Ok(found)
}

/// A candidate whose error is far above the reference's own works in a lower precision than it was asked to.
fn labels(found: &Found) -> Vec<String> {
    let worst = |of: fn(&(f64, f64)) -> f64| found.errors.iter().map(of).fold(0.0, f64::max);
    let (reference, candidate) = (worst(|e| e.0), worst(|e| e.1));
    let mut labels = vec![];
    if let Some(why) = &found.no_oracle {
        labels.push(format!("its error could not be measured in double precision: {why}"));
    } else if candidate > NEGLIGIBLE && candidate > FAR_ABOVE * reference {
        labels.push(format!(
            "lower precision: its error against double precision is {candidate:.1e}, the reference's {reference:.1e}"
        ));
    }
    labels
}
