//! An evaluation on a machine that others use too.

use crate::{file::File, python};
use warpsmith_kernelbench::{Failure, Outcome, Task, Timed, torch::Torch};

/// Evaluates a file, and anew where the two clocks disagreed and its heading does not say so: as a rule that is another
/// program's doing, and it is never an acceptance. At most three times.
pub(crate) fn evaluate(workshop: &Torch, task: &Task, file: &File) -> Outcome<Timed> {
    let expected = file.line("ours").is_some_and(|ours| ours.contains("clocks"));
    let mut outcome = python::evaluate(workshop, task, &file.source)?;
    for _ in 1..3 {
        if expected || !matches!(outcome, Err(Failure::Clocks { .. })) {
            break;
        }
        outcome = python::evaluate(workshop, task, &file.source)?;
    }
    Ok(outcome)
}
