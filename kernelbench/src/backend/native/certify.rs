//! What exactly can be claimed of the best candidate?
//!
//! It is built again from its text, runs in new processes, on new inputs, on the task's own cases and on those that the
//! loop never saw; then a sanitized build of it runs. What could not be looked at stands in the certificate too.

use super::{Inner, Purpose, check, context, time, trial};
use crate::{
    build::cc,
    profile::sanitizer::{LARGEST_CASE, Sanitized},
    result::{
        candidate::Candidate,
        certificate::{Certificate, Checked, Verdict},
        error::{Attempt, outcome},
        evaluation::Timed,
        failure::{Failure, Fault},
    },
    task::{Case, Task, suite::Suite},
    workshop::TimingPlan,
};
use std::path::PathBuf;
use tempfile::TempDir;

/// Both sides, built anew.
pub struct Rebuilt {
    candidate: Candidate,
    objects: Result<Objects, Failure>,
}

/// The shared objects, and the folders that they lie in.
struct Objects {
    reference: PathBuf,
    candidate: PathBuf,
    _folders: [TempDir; 2],
}

/// Builds both sides from their texts alone, in empty folders and without the cache of builds.
pub(crate) fn rebuild(workshop: &Inner, task: &Task, candidate: &Candidate) -> Result<Rebuilt, Fault> {
    Ok(Rebuilt { candidate: candidate.clone(), objects: outcome(objects(workshop, task, candidate))? })
}

fn objects(workshop: &Inner, task: &Task, candidate: &Candidate) -> Attempt<Objects> {
    let place = std::env::temp_dir();
    let folders = [cc::private_folder(&place)?, cc::private_folder(&place)?];
    let context = context(task);
    let reference = workshop.compiler.build_anew(context, &context.reference, folders[0].path());
    let reference = trial::trusted(reference, "while it was built")?;
    let candidate = workshop.compiler.build_anew(context, candidate.source(), folders[1].path())?;
    Ok(Objects { reference, candidate, _folders: folders })
}

/// Checks, times and sanitizes what was built anew.
pub(crate) fn certify(
    workshop: &Inner,
    task: &Task,
    rebuilt: Rebuilt,
    plan: &TimingPlan,
) -> Result<Certificate, Fault> {
    let Rebuilt { candidate, objects } = rebuilt;
    let mut checked = vec![];
    let verdict = match objects.map_or_else(
        |failure| Ok(Err(failure)),
        |objects| outcome(examine(workshop, task, (&candidate, &objects), plan, &mut checked)),
    )? {
        Ok(timed) => Verdict::Certified(timed),
        Err(failure) => Verdict::Refused(failure),
    };
    Ok(Certificate {
        candidate: candidate.id(),
        verdict,
        checked,
        build: workshop.compiler.command_line(context(task))?,
        machine: workshop.options.machine.name.clone(),
    })
}

fn examine(
    workshop: &Inner,
    task: &Task,
    (candidate, objects): (&Candidate, &Objects),
    plan: &TimingPlan,
    checked: &mut Vec<Checked>,
) -> Attempt<Timed> {
    checked.push(Checked::done("rebuilt from its source alone", "in an empty folder, without the cache of builds"));
    let bench = workshop.bench(task, [&objects.reference, &objects.candidate]);
    let mut rng = workshop.rng(Purpose::Certify);

    let cases: Vec<Case> = task.cases.iter().chain(&task.final_cases).cloned().collect();
    let what = format!("outputs on {} shapes, {} of them new to it", cases.len(), task.final_cases.len());
    checked.push(Checked::done(
        &what,
        "fresh processes and fresh inputs, twice each; every element beside the reference's",
    ));
    checked.push(Checked::done("its surroundings", "inputs unchanged, nothing written beside an argument"));
    checked.extend(check::check(&bench, &cases, &mut rng)?.iter().map(Checked::layer));

    let suite = Suite::of_task(task);
    let how =
        format!("{} pairs of samples a shape in random order, new inputs each; outputs compared too", plan.repetitions);
    // The shapes of the loop may be a model's choice; a claim is about the task's own.
    let what = format!("times beside the reference's, on {} of the task's own shapes", suite.timed.len());
    checked.push(Checked::done(&what, &how));
    let timed = time::time(&bench, &suite, plan, &workshop.options.machine, &mut rng)?;
    checked.push(Checked::done("two clocks agree", "the one in its process and the one outside, which counts"));
    let floor = timed.cases.iter().all(|case| case.floor_ns.is_some());
    checked.push(Checked {
        what: "no faster than the machine moves the data".to_owned(),
        done: floor,
        how: if floor { "the best bandwidth measured here" } else { "no bandwidth was measured here" }.to_owned(),
    });
    sanitize(workshop, task, candidate, checked)?;
    checked.extend(NOT_EXCLUDED.map(|(what, why)| Checked::not_done(what, why)));
    Ok(timed)
}

/// What this workshop cannot exclude on any machine.
const NOT_EXCLUDED: [(&str, &str); 2] = [
    (
        "a candidate that tells tests from use",
        "it was seen on random contents of the task's shapes, and on nothing else",
    ),
    ("another machine's times", "one core of this one was measured, alone"),
];

fn sanitize(workshop: &Inner, task: &Task, candidate: &Candidate, checked: &mut Vec<Checked>) -> Attempt<()> {
    const WHAT: &str = "address and undefined-behaviour sanitizer";
    let folder = cc::private_folder(&std::env::temp_dir())?;
    let built =
        Sanitized::build(&workshop.compiler, &workshop.launch, context(task), candidate.source(), folder.path())?;
    let sanitized = match built {
        Ok(sanitized) => sanitized,
        Err(why) => {
            checked.push(Checked::not_done(WHAT, &format!("it cannot be built with them here: {why}")));
            return Ok(());
        }
    };
    let fits = |case: &&Case| workshop.fits(task, case).is_ok_and(|bytes| bytes <= LARGEST_CASE);
    let cases: Vec<&Case> = task.cases.iter().chain(&task.final_cases).filter(fits).collect();
    checked.push(Checked::done(WHAT, &format!("one call on each of {} shapes", cases.len())));
    cases.iter().try_for_each(|case| sanitized.run(case, &mut workshop.rng(Purpose::Sanitize)))
}
