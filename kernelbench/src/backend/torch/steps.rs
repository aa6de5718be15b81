//! What does a workshop do in each step of a candidate, from its text to its time?

use super::{
    CASE, Inner, Notes, check,
    crowd::{self, is_full},
    headers::{self, Headers},
    lock,
    options::Options,
    python::Facts,
    runner::{self, Runner},
    session::{self, Session},
    shelf::Shelf,
    time,
};
use crate::{
    hash::Hash,
    profile,
    result::{
        candidate::{Built, Candidate, CandidateId, Verified},
        error::{Attempt, Trouble},
        evaluation::Timed,
        failure::{Failure, Fault},
    },
    task::{Problem, Task},
    workshop::{Baseline, TimingPlan},
};
use metrics::Profile;
use rand::{SeedableRng, rngs::StdRng};
use std::sync::{Arc, Mutex, MutexGuard, atomic::Ordering};

impl Inner {
    pub(super) fn rng(&self) -> StdRng {
        self.options.seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)
    }

    pub(super) fn built(&self) -> MutexGuard<'_, Shelf<CandidateId, Runner>> {
        lock(&self.built)
    }

    /// Forgets a problem's session.
    pub(super) fn close(&self, task: &Task) -> Result<(), Fault> {
        let key = key(problem(task)?);
        lock(&self.sessions).remove(&key);
        Ok(())
    }

    /// The problem's session, opened and audited where it was not yet.
    pub(super) fn session(&self, task: &Task) -> Result<Arc<Mutex<Session>>, Fault> {
        let problem = problem(task)?;
        let key = key(problem);
        let mut sessions = lock(&self.sessions);
        if let Some(session) = sessions.get(&key) {
            return Ok(Arc::clone(session));
        }
        self.make_room(&mut sessions, None, self.of_a_problem());
        let mut opened = self.audited(task, problem);
        if is_short(&opened) && self.make_room(&mut sessions, None, u64::MAX) > 0 {
            opened = self.audited(task, problem);
        }
        let session = Arc::new(Mutex::new(settled(opened)?));
        drop(sessions.insert(key, Arc::clone(&session)));
        Ok(session)
    }

    fn audited(&self, task: &Task, problem: &Problem) -> Attempt<Session> {
        let mut session = self.open(problem)?;
        session.audit(&task.tolerance, &mut self.rng())?;
        Ok(session)
    }

    /// Keeps a candidate's process for the next step, without the memory that it can give back. One that cannot is not kept,
    /// and one that breaks out meanwhile fails.
    fn park(&self, candidate: CandidateId, mut runner: Runner) -> Attempt<()> {
        let rested = if runner.has_run { runner.rest(true) } else { Ok(()) };
        match rested {
            Err(Trouble::Failure(failure)) if matches!(*failure, Failure::Forbidden { .. }) => {
                return Err(Trouble::Failure(failure));
            }
            Err(_) => return Ok(()),
            Ok(()) => {}
        }
        let old = self.built().insert(candidate, runner);
        // Ending a process takes a while; nobody waits for the shelf meanwhile.
        drop(old);
        Ok(())
    }

    /// Changes what is noted of a candidate.
    fn note(&self, candidate: CandidateId, change: impl FnOnce(&mut Notes)) {
        let mut notes = lock(&self.notes);
        let mut known = notes.remove(&candidate).unwrap_or_default();
        change(&mut known);
        drop(notes.insert(candidate, known));
    }

    /// A new session. A driver that does not start behind landlock is given a second try without it; the layers say so.
    pub(super) fn open(&self, problem: &Problem) -> Attempt<Session> {
        let open = || {
            let opened = Session::open(&self.spares, &self.options, &self.facts, problem);
            self.spares.refill();
            opened
        };
        let first = open();
        let dead = matches!(&first, Err(Trouble::Failure(failure)) if matches!(**failure, Failure::Exit { .. }));
        if dead && self.options.device != "cpu" && !self.python.open_files.swap(true, Ordering::Relaxed) {
            self.spares.clear();
            return open();
        }
        first
    }

    /// What torch is, and where it runs.
    pub(super) fn described(&self) -> String {
        let Facts { torch, cuda, .. } = &self.facts;
        let cuda = cuda.as_ref().map(|cuda| format!(", CUDA {cuda}")).unwrap_or_default();
        format!("torch {torch}{cuda}, eager, on {}", self.options.device)
    }

    pub(super) fn prepare(&self, task: &Task, plan: &TimingPlan) -> Result<Baseline, Fault> {
        let (session, mine) = (self.session(task)?, key(problem(task)?));
        let mut session = lock(&session);
        let wanted = session.wanted_bytes();
        let timing = settled(self.with_room(Some(&mine), wanted, is_full, || {
            let _quiet = self.spares.quiet();
            time::time_reference(&mut session, plan, &mut self.rng())
        }))?;
        let labels = session.labels.clone();
        let variants = self.options.baselines.iter().map(|mode| self.variant(&mut session, task, *mode, plan));
        let variants = variants.collect::<Result<Vec<_>, Fault>>()?;
        Ok(Baseline { variants, labels, ..Baseline::new(vec![(CASE.to_owned(), timing)], self.described()) })
    }

    /// Builds a candidate.
    fn load(&self, candidate: &Candidate) -> Attempt<Runner> {
        let mut runner = Session::begin(&self.spares, candidate.source())?;
        self.spares.prepare_profile(Some(runner.folder()));
        let loaded = session::load(&mut runner, self.options.headers, self.options.build_deadline);
        self.spares.refill();
        loaded.map(|()| runner)
    }

    /// As `load`, with these headers.
    pub(super) fn load_with(&self, candidate: &Candidate, headers: Headers) -> Attempt<Runner> {
        let mut runner = Session::begin(&self.spares, candidate.source())?;
        let loaded = session::load(&mut runner, headers, self.options.build_deadline);
        self.spares.refill();
        loaded.map(|()| runner)
    }

    /// Where tools are started.
    pub(super) fn room(&self) -> profile::torch::Room<'_> {
        profile::torch::Room { python: &self.python, harness: &self.harness, landlock: true }
    }

    pub(super) fn build(&self, task: &Task, candidate: Candidate) -> Attempt<Built> {
        problem(task)?;
        let runner = self.with_room(None, 0, is_full, || self.load(&candidate))?;
        let artifact = session::source_of(runner.folder());
        self.park(candidate.id(), runner)?;
        Ok(Built { candidate, artifact })
    }

    /// The candidate's process, started anew where it is gone.
    pub(super) fn unpark(&self, candidate: &Candidate) -> Attempt<Runner> {
        let parked = self.built().remove(&candidate.id());
        parked.map_or_else(|| self.load(candidate), Ok)
    }

    pub(super) fn check(&self, task: &Task, built: Built) -> Attempt<Verified> {
        let mut parked = Some(self.unpark(&built.candidate)?);
        let (session, mine) = (self.session(task)?, key(problem(task)?));
        let mut session = lock(&session);
        let wanted = session.wanted_bytes();
        let labels = self.with_room(Some(&mine), wanted, no_room_for_labels, || {
            let runner = parked.take().map_or_else(|| self.unpark(&built.candidate), Ok)?;
            self.check_once(&mut session, task, &built.candidate, runner)
        })?;
        self.note(built.candidate.id(), |notes| notes.labels = labels);
        Ok(Verified { built })
    }

    /// Checks a candidate and parks it; what is worth a label.
    fn check_once(
        &self,
        session: &mut Session,
        task: &Task,
        candidate: &Candidate,
        mut runner: Runner,
    ) -> Attempt<Vec<String>> {
        let mut checked = self.examine(session, task, &mut runner);
        let mut of_build: Vec<String> = runner.extensions.iter().map(headers::label).collect();
        if let Some(why) = headers::in_doubt(&runner.extensions, checked.as_ref().err()) {
            runner = self.load_with(candidate, Headers::Stock)?;
            checked = self.examine(session, task, &mut runner);
            of_build = vec![why];
        }
        let mut labels = checked?;
        if runner.is_broken() {
            runner = self.load_with(candidate, runner.headers)?;
        }
        labels.append(&mut of_build);
        self.park(candidate.id(), runner)?;
        Ok(labels)
    }

    fn examine(&self, session: &mut Session, task: &Task, runner: &mut Runner) -> Attempt<Vec<String>> {
        let Options { trials, deadline_floor, .. } = self.options;
        let checked = session
            .introduce(runner)
            .and_then(|()| check::check(session, runner, &task.tolerance, trials, deadline_floor, &mut self.rng()));
        session.forget()?;
        checked
    }

    pub(super) fn profile(&self, task: &Task, verified: &Verified) -> Result<Profile, Fault> {
        let mut runner = settled(self.unpark(verified.candidate()))?;
        let (session, mine) = (self.session(task)?, key(problem(task)?));
        let mut session = lock(&session);
        let id = verified.candidate().id();
        let timing = lock(&self.notes).get(&id).and_then(|notes| notes.timing.clone());
        self.make_room(&mut lock(&self.sessions), Some(&mine), session.wanted_bytes());
        let waiting = self.spares.waiting(runner.folder());
        let quiet = self.spares.quiet();
        let bench = profile::torch::Bench { room: self.room(), ladder: &self.ladder, timing: timing.as_ref() };
        let profile = profile::torch::profile(&bench, &mut session, &mut runner, waiting, &mut self.rng());
        drop(quiet);
        self.spares.prepare_profile(None);
        let parked = self.park(id, runner);
        settled(profile.and_then(|profile| parked.map(|()| profile)))
    }

    pub(super) fn time(&self, task: &Task, verified: &Verified, plan: &TimingPlan) -> Attempt<Timed> {
        let candidate = verified.candidate();
        let mut parked = Some(self.unpark(candidate)?);
        let (session, mine) = (self.session(task)?, key(problem(task)?));
        let mut session = lock(&session);
        let wanted = session.wanted_bytes();
        self.with_room(Some(&mine), wanted, is_full, || {
            let runner = parked.take().map_or_else(|| self.unpark(candidate), Ok)?;
            self.time_once(&mut session, task, candidate, runner, plan)
        })
    }

    /// Times a candidate and parks it.
    fn time_once(
        &self,
        session: &mut Session,
        task: &Task,
        candidate: &Candidate,
        mut runner: Runner,
        plan: &TimingPlan,
    ) -> Attempt<Timed> {
        let _quiet = self.spares.quiet();
        let (floor, machine) = (self.options.deadline_floor, &self.machine);
        let bench =
            time::Bench { tolerance: &task.tolerance, plan, machine, floor, most_calls: usize::MAX, brief: true };
        let timed =
            session.introduce(&mut runner).and_then(|()| time::time(session, &mut runner, &bench, &mut self.rng()));
        session.forget()?;
        let (timed, clocks) = timed?;
        self.note(candidate.id(), |notes| {
            notes.clocks = Some(clocks);
            notes.timing = timed.cases.first().cloned().map(|case| (case, timed.statistic));
        });
        self.park(candidate.id(), runner)?;
        Ok(timed)
    }
}

/// Whether memory was short while a problem was opened, if only for its model in double precision.
pub(super) fn is_short(opened: &Attempt<Session>) -> bool {
    match opened {
        Ok(session) => session.no_oracle.as_deref().is_some_and(crowd::says_so),
        failed => is_full(failed),
    }
}

/// How a failure for want of memory begins.
const ASKED_FOR_MORE: &str = "it asked for more than";

/// Whether memory was short in a check, if only for what is worth a label.
fn no_room_for_labels(checked: &Attempt<Vec<String>>) -> bool {
    match checked {
        Ok(labels) => labels.iter().any(|label| crowd::says_so(label) || label.contains(ASKED_FOR_MORE)),
        failed => is_full(failed),
    }
}

/// What a trusted step came to: a failure there is a fault.
fn settled<T>(attempt: Attempt<T>) -> Result<T, Fault> {
    runner::trusted(attempt).map_err(|trouble| match trouble {
        Trouble::Failure(failure) => Fault(format!("the problem's reference failed: {failure}")),
        Trouble::Fault(fault) => fault,
    })
}

pub(super) fn problem(task: &Task) -> Result<&Problem, Fault> {
    task.problem().ok_or_else(|| Fault(format!("task `{}` is no problem in KernelBench's format", task.name)))
}

/// What names a problem's session.
pub(super) fn key(problem: &Problem) -> Hash {
    Hash::of(format!("{}\n{}", problem.precision.torch_name(), problem.source).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_memory_left_a_label_on_was_short_of_it_and_one_with_other_labels_was_not() {
        let failure = Failure::Memory { case: CASE.to_owned(), limit_mib: 81_000 };
        for label in [
            format!("beyond what get_inputs() draws: {failure}"),
            "its error could not be measured in double precision: OutOfMemoryError: CUDA out of memory.".to_owned(),
        ] {
            assert!(no_room_for_labels(&Ok(vec![label])));
        }
        assert!(no_room_for_labels(&Err(failure.into())));
        assert!(!no_room_for_labels(&Ok(vec!["lower precision: its error is 1e-2".to_owned()])));
    }
}
