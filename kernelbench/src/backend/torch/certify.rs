//! What exactly can be claimed of the best candidate for a problem?
//!
//! It is loaded and built again from its text in an empty folder, by a new process, checked on new seeds, and timed. What
//! could not be looked at stands in the certificate too.

use super::{
    CASE, Inner, check, crowd::is_full, headers::Headers, open::OPEN, runner::Runner, session::Session, steps::problem,
    time,
};
use crate::{
    profile,
    result::{
        candidate::Candidate,
        certificate::{Certificate, Checked, Verdict},
        error::{Attempt, outcome},
        evaluation::Timed,
        failure::{Failure, Fault},
    },
    task::Task,
    workshop::TimingPlan,
};
use rand::rngs::StdRng;

/// What was not looked at, beside the kinds of cheat that are open.
const NOT_LOOKED_AT: [(&str, &str); 3] = [
    ("races on the GPU", "compute-sanitizer's racecheck is not run"),
    ("speedup against torch.compile", "what is certified is against eager torch; `--baselines` times others beside"),
    ("another machine's times", "one process on this device was measured; it differs from process to process"),
];

/// A candidate in a process of its own that loaded it and built it, from its text alone, with torch's own headers.
pub struct Rebuilt {
    candidate: Candidate,
    runner: Result<Runner, Failure>,
}

pub(super) fn rebuild(inner: &Inner, candidate: &Candidate) -> Result<Rebuilt, Fault> {
    let loaded = inner.with_room(None, 0, is_full, || inner.load_with(candidate, Headers::Stock));
    Ok(Rebuilt { candidate: candidate.clone(), runner: outcome(loaded)? })
}

pub(super) fn certify(inner: &Inner, task: &Task, rebuilt: Rebuilt, plan: &TimingPlan) -> Result<Certificate, Fault> {
    let Rebuilt { candidate, runner } = rebuilt;
    // The loop is over: what it kept open makes room.
    drop(inner.built().remove(&candidate.id()));
    inner.close(task)?;
    let (mut checked, mut first) = (vec![], Some(runner));
    let examined = inner.with_room(None, inner.of_a_problem(), is_full, || {
        checked.clear();
        let runner = match first.take() {
            Some(runner) => runner?,
            None => inner.load_with(&candidate, Headers::Stock)?,
        };
        examine(inner, task, runner, plan, &mut checked)
    });
    let verdict = match outcome(examined)? {
        Ok(timed) => Verdict::Certified(timed),
        Err(failure) => Verdict::Refused(failure),
    };
    let build = inner.described();
    Ok(Certificate { candidate: candidate.id(), verdict, checked, build, machine: inner.machine.name.clone() })
}

fn examine(
    inner: &Inner,
    task: &Task,
    mut runner: Runner,
    plan: &TimingPlan,
    checked: &mut Vec<Checked>,
) -> Attempt<Timed> {
    let mut session = inner.open(problem(task)?)?;
    session.audit(&task.tolerance, &mut inner.rng())?;
    checked.push(Checked::done(
        "rebuilt from its source alone",
        "in an empty folder, by new processes, with torch's own headers",
    ));
    session.introduce(&mut runner)?;
    let (trials, floor) = (inner.options.trials, inner.options.deadline_floor);
    let rng = &mut inner.rng();
    let labels = check::check(&mut session, &mut runner, &task.tolerance, trials, floor, rng)?;
    checked.push(Checked::done(
        &format!("outputs in {trials} trials, and one on inputs of both signs"),
        "new secret seeds; every element beside the reference's; inputs unchanged",
    ));
    let machine = &inner.machine;
    let bench = time::Bench { tolerance: &task.tolerance, plan, machine, floor, most_calls: usize::MAX, brief: false };
    let quiet = inner.spares.quiet();
    let (timed, clocks) = time::time(&mut session, &mut runner, &bench, rng)?;
    drop(quiet);
    let how = format!("{} pairs in random order, new inputs each, outputs compared", clocks.readings.len());
    checked.push(Checked::done("times beside the reference's", &how));
    checked.push(Checked::done("two clocks agree", "the one in its process and the one outside, which bounds it"));
    if session.on_gpu {
        checked.push(Checked::undisturbed(clocks.watched, &clocks.disturbed));
    }
    checked.push(Checked::at_once(&clocks.anew));
    checked.push(memory(inner, &mut session, &runner, rng)?);
    let floor = timed.cases.iter().any(|case| case.case == CASE && case.floor_ns.is_some());
    let how = if floor { "the best bandwidth measured here" } else { "no bandwidth was measured here" };
    checked.push(Checked { what: "no faster than the machine moves the data".into(), done: floor, how: how.into() });
    checked.extend(runner.peer.layers.iter().map(Checked::layer));
    checked.extend(session.labels.iter().chain(&labels).map(|label| Checked::not_done("no label", label)));
    let open = OPEN.iter().map(|open| (open.what, open.how));
    checked.extend(open.chain(NOT_LOOKED_AT).map(|(what, why)| Checked::not_done(what, why)));
    Ok(timed)
}

/// Whether it stays within its memory, as far as the GPU's sanitizer can be had; a finding is a failure.
fn memory(inner: &Inner, session: &mut Session, runner: &Runner, rng: &mut StdRng) -> Attempt<Checked> {
    let looked = if session.on_gpu {
        session.draw(1, false, rng)?;
        let job = profile::torch::job(&inner.python, session, runner);
        let owner = runner.peer.company().user;
        profile::torch::memcheck(&inner.room(), runner.folder(), owner, &job)?
    } else {
        Err("compute-sanitizer looks at GPUs alone".to_owned())
    };
    let what = "compute-sanitizer's memcheck";
    let how = "one call, every tensor in an allocation of its own; an access that lands in another tensor is not seen";
    Ok(looked.map_or_else(|why| Checked::not_done(what, &why), |()| Checked::done(what, how)))
}
