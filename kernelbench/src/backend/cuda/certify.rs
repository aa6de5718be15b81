//! What exactly can be claimed of the best candidate?
//!
//! It is built again from its text, runs in new processes on new inputs, on the task's own cases and on those that the loop
//! never saw. What could not be looked at stands in the certificate too.

use super::{
    Bench, Inner,
    check::{self, Pair},
    context,
    time::{self, Around},
    verifier::{Side, broken},
};
use crate::profile;
use crate::{
    backend::native::trial::{self, trusted},
    build::cc::private_folder,
    profile::cuda::{Called, DEADLINE},
    result::{
        candidate::{Candidate, CandidateId},
        certificate::{Certificate, Checked, Verdict},
        error::{Attempt, outcome},
        evaluation::Timed,
        failure::{Failure, Fault},
    },
    task::{Case, Task, suite::Suite},
    workshop::TimingPlan,
};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What this workshop cannot exclude on any machine.
const NOT_EXCLUDED: [(&str, &str); 6] = [
    ("races on the GPU", "racecheck is not run; a race that shows is a wrong output"),
    ("work of several calls done in one", "a timed request holds many calls, each on arguments of its own"),
    (
        "work on the processor, and copies from and to it, before the clock starts",
        "a process is let go 0.6 ms before that, while the GPU idles, for its launches; here a request lasts 2.4 ms or more",
    ),
    (
        "an end that is told before the GPU is done",
        "its outputs are read next, or after the reference's request, last written first; what is done by then counts as done",
    ),
    (
        "a candidate that tells tests from use",
        "it was seen on random contents of the task's shapes, and on nothing else",
    ),
    ("another machine's times", "one process on this GPU was measured, with the data out of the cache"),
];

/// Both sides, built anew.
pub struct Rebuilt {
    candidate: CandidateId,
    objects: Result<Objects, Failure>,
}

/// The shared objects, and the folders that they lie in.
struct Objects {
    reference: PathBuf,
    candidate: PathBuf,
    _folders: [TempDir; 2],
}

/// Builds both sides from their texts alone, in empty folders and without the cache of builds.
pub(super) fn rebuild(inner: &Inner, task: &Task, candidate: &Candidate) -> Result<Rebuilt, Fault> {
    Ok(Rebuilt { candidate: candidate.id(), objects: outcome(objects(inner, task, candidate))? })
}

fn objects(inner: &Inner, task: &Task, candidate: &Candidate) -> Attempt<Objects> {
    let place = std::env::temp_dir();
    let folders = [private_folder(&place)?, private_folder(&place)?];
    let context = context(task);
    let reference = inner.nvcc.compile(context, &context.reference, folders[0].path());
    let reference = trusted(reference, "while it was built")?;
    let candidate = inner.nvcc.compile(context, candidate.source(), folders[1].path())?;
    Ok(Objects { reference, candidate, _folders: folders })
}

pub(super) fn certify(inner: &Inner, task: &Task, rebuilt: Rebuilt, plan: &TimingPlan) -> Result<Certificate, Fault> {
    let mut checked = vec![];
    let verdict = match rebuilt.objects.map_or_else(
        |failure| Ok(Err(failure)),
        |objects| outcome(examine(inner, task, &objects, plan, &mut checked)),
    )? {
        Ok(timed) => Verdict::Certified(timed),
        Err(failure) => Verdict::Refused(failure),
    };
    let build = inner.nvcc.command_line(context(task))?;
    Ok(Certificate { candidate: rebuilt.candidate, verdict, checked, build, machine: inner.machine.name.clone() })
}

fn examine(
    inner: &Inner,
    task: &Task,
    objects: &Objects,
    plan: &TimingPlan,
    checked: &mut Vec<Checked>,
) -> Attempt<Timed> {
    let context = context(task);
    checked.push(Checked::done("rebuilt from its source alone", "in an empty folder, without the cache of builds"));
    let mut bench = inner.bench();
    bench.reference = None;
    inner.spare.settle();
    let mut one = inner.launcher.start(bench.judge.handle(Side::Reference).map_err(broken)?)?;
    trusted(one.load(&objects.reference), "while it was loaded")?;
    let mut two = inner.launcher.start(bench.judge.handle(Side::Candidate).map_err(broken)?)?;
    two.load(&objects.candidate)?;
    let mut pair = Pair {
        judge: &bench.judge,
        reference: &mut one,
        candidate: &mut two,
        context,
        tolerance: &task.tolerance,
        floor: inner.options.deadline_floor,
        memory_mib: inner.options.memory_mib,
    };
    let mut rng = inner.rng();
    let cases: Vec<Case> = task.cases.iter().chain(&task.final_cases).cloned().collect();
    check::check(&mut pair, &cases, &mut rng)?;
    let what = format!("outputs on {} shapes, {} of them new to it", cases.len(), task.final_cases.len());
    checked.push(Checked::done(
        &what,
        "fresh processes and fresh inputs, twice each; every element beside the reference's",
    ));
    checked.push(Checked::done("its surroundings", "inputs unchanged, nothing written beside an argument"));
    let suite = Suite::of_task(task);
    let around =
        Around { timing: plan, machine: &inner.machine, gpu: inner.gpu.as_ref(), trusted: false, brief: false };
    let (timed, remarks) = time::time(&mut pair, &suite, &around, &mut rng)?;
    let how = format!(
        "{} pairs of requests a shape in random order, new inputs each; outputs compared too",
        plan.repetitions
    );
    checked.push(Checked::done(&format!("times beside the reference's, on {} shapes", suite.timed.len()), &how));
    checked.push(Checked::done("two clocks agree", "events in its process, and the clock outside, which bounds them"));
    checked.push(Checked::done("no faster than the GPU moves the data", "the best bandwidth measured here"));
    checked.push(Checked::undisturbed(inner.gpu.is_some(), &remarks.disturbed));
    checked.push(Checked::at_once(&remarks.anew));
    checked.extend(remarks.issued.iter().map(|told| Checked::not_done("launches back to back, from a graph", told)));
    checked.extend(two.peer.layers.iter().map(Checked::layer));
    drop((one, two));
    sanitize(inner, &bench, task, &objects.candidate, checked)?;
    checked.extend(NOT_EXCLUDED.map(|(what, why)| Checked::not_done(what, why)));
    Ok(timed)
}

/// One call on each of the shapes that are new to the candidate, or where there are none, on the smallest.
fn sanitize(inner: &Inner, bench: &Bench, task: &Task, object: &Path, checked: &mut Vec<Checked>) -> Attempt<()> {
    let smallest = task.cases.iter().min_by_key(|case| context(task).bytes(case).unwrap_or(u64::MAX));
    let cases: Vec<&Case> =
        if task.final_cases.is_empty() { smallest.into_iter().collect() } else { task.final_cases.iter().collect() };
    let what = "compute-sanitizer's memcheck".to_owned();
    for case in &cases {
        let plan = trial::plan(context(task), case)?;
        let slot = bench.judge.drawn(&plan, &mut inner.rng()).map_err(broken)?;
        let called = Called { launcher: &inner.launcher, plan: &plan, object, slot: &slot, deadline: DEADLINE };
        if let Err(how) = profile::cuda_memcheck::sanitize(&called)? {
            checked.push(Checked { what, done: false, how });
            return Ok(());
        }
    }
    checked.push(Checked::done(
        &what,
        &format!("one call on each of {} shapes, each array in memory of its own", cases.len()),
    ));
    Ok(())
}
