//! An evaluation on a machine that others use too.

use crate::{file::File, python};
use warpsmith_kernelbench::{Failure, Outcome, Task, Timed, TimingPlan, torch::Torch};

/// Evaluates a file, and anew where the two clocks disagreed and its heading does not say so, or where it passed and its
/// heading does not: as a rule either is another program's doing, and what is a cheat's own comes again. At most three times.
pub(crate) fn evaluate(workshop: &Torch, task: &Task, file: &File) -> Outcome<Timed> {
    let says = |word: &str| file.line("ours").is_some_and(|ours| ours.contains(word));
    let evaluate = |plan: &TimingPlan| python::evaluate(workshop, task, &file.source, plan);
    // What claims no more than to be no faster is held to a ratio that does not scatter; what two clocks disagree on, they
    // do in a few samples.
    let many = if says("not faster") { TimingPlan::median_of(2, 40) } else { python::PLAN };
    let mut outcome = evaluate(if says("clocks") { &python::PLAN } else { &many })?;
    if says("clocks") && file.word(&outcome, &[]) != "clocks" {
        outcome = evaluate(&many)?;
    }
    for _ in 1..3 {
        let apart = matches!(outcome, Err(Failure::Clocks { .. })) && !says("clocks");
        let faster = says("not faster") && file.word(&outcome, &[]) == "passed";
        if !(apart || faster) {
            break;
        }
        outcome = evaluate(&many)?;
    }
    Ok(outcome)
}
