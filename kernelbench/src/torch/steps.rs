//! What does a workshop do in each step of a candidate, from its text to its time?

use super::{
    CASE, Inner, Parked, check,
    headers::{self, Headers},
    lock,
    options::Options,
    profile,
    python::Facts,
    runner::{self, Runner},
    session::{self, Session},
    shelf::Shelf,
    time,
};
use crate::{
    candidate::{Built, Candidate, CandidateId, Verified},
    evaluation::Timed,
    failure::{Failure, Fault},
    gpu::Gpu,
    hash::Hash,
    native::trouble::{Attempt, Trouble},
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

    pub(super) fn built(&self) -> MutexGuard<'_, Shelf<CandidateId, Parked>> {
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
        while self.is_crowded() {
            let Some(oldest) = sessions.take_oldest() else { break };
            drop(oldest);
        }
        let opened = self.open(problem).and_then(|mut session| {
            session.audit(&task.tolerance, &mut self.rng())?;
            Ok(session)
        });
        let session = Arc::new(Mutex::new(settled(opened)?));
        drop(sessions.insert(key, Arc::clone(&session)));
        Ok(session)
    }

    /// Whether half of the device's memory is taken, so that one more problem might not fit.
    fn is_crowded(&self) -> bool {
        let ordinal = self.options.device.strip_prefix("cuda:").and_then(|number| number.parse().ok());
        let taken = ordinal.and_then(|ordinal| Gpu::at(ordinal).ok()?.memory_taken());
        taken.is_some_and(|share| share > 0.5)
    }

    fn park(&self, candidate: CandidateId, parked: Parked) {
        let old = self.built().insert(candidate, parked);
        // Ending a process takes a while; nobody waits for the shelf meanwhile.
        drop(old);
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
        let session = self.session(task)?;
        let mut session = lock(&session);
        let quiet = self.spares.quiet();
        let timing = settled(time::time_reference(&mut session, plan, &mut self.rng()))?;
        drop(quiet);
        let labels = session.labels.clone();
        let variants = self.options.baselines.iter().map(|mode| self.variant(&mut session, task, *mode, plan));
        let variants = variants.collect::<Result<Vec<_>, Fault>>()?;
        Ok(Baseline { variants, labels, ..Baseline::new(vec![(CASE.to_owned(), timing)], self.described()) })
    }

    /// Builds a candidate.
    fn load(&self, candidate: &Candidate) -> Attempt<Parked> {
        let mut runner = Session::begin(&self.spares, candidate.source())?;
        self.spares.prepare_profile(Some(runner.folder()));
        let loaded = session::load(&mut runner, self.options.headers, self.options.build_deadline);
        self.spares.refill();
        loaded.map(|()| Parked::new(runner))
    }

    /// As `load`, with these headers.
    pub(super) fn load_with(&self, candidate: &Candidate, headers: Headers) -> Attempt<Runner> {
        let mut runner = Session::begin(&self.spares, candidate.source())?;
        let loaded = session::load(&mut runner, headers, self.options.build_deadline);
        self.spares.refill();
        loaded.map(|()| runner)
    }

    /// Where tools are started.
    pub(super) fn room(&self) -> profile::Room<'_> {
        profile::Room { python: &self.python, harness: &self.harness, landlock: true }
    }

    pub(super) fn build(&self, task: &Task, candidate: Candidate) -> Attempt<Built> {
        problem(task)?;
        let parked = self.load(&candidate)?;
        let artifact = session::source_of(parked.runner.folder());
        self.park(candidate.id(), parked);
        Ok(Built { candidate, artifact })
    }

    /// The candidate's process, started anew where it is gone.
    pub(super) fn unpark(&self, candidate: &Candidate) -> Attempt<Parked> {
        let parked = self.built().remove(&candidate.id());
        match parked {
            Some(parked) => Ok(parked),
            None => self.load(candidate),
        }
    }

    pub(super) fn check(&self, task: &Task, built: Built) -> Attempt<Verified> {
        let mut parked = self.unpark(&built.candidate)?;
        let session = self.session(task)?;
        let mut session = lock(&session);
        let mut checked = self.examine(&mut session, task, &mut parked.runner);
        let mut of_build: Vec<String> = parked.runner.extensions.iter().map(headers::label).collect();
        if let Some(why) = headers::in_doubt(&parked.runner.extensions, checked.as_ref().err()) {
            parked = Parked::new(self.load_with(&built.candidate, Headers::Stock)?);
            checked = self.examine(&mut session, task, &mut parked.runner);
            of_build = vec![why];
        }
        let labels = checked?;
        if parked.runner.is_broken() {
            parked = Parked::new(self.load_with(&built.candidate, parked.runner.headers)?);
        }
        parked.labels = labels;
        parked.labels.append(&mut of_build);
        self.park(built.candidate.id(), parked);
        Ok(Verified { built })
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
        let mut parked = settled(self.unpark(verified.candidate()))?;
        let session = self.session(task)?;
        let mut session = lock(&session);
        let waiting = self.spares.waiting(parked.runner.folder());
        let quiet = self.spares.quiet();
        let bench = profile::Bench { room: self.room(), ladder: &self.ladder, timing: parked.timing.as_ref() };
        let profile = profile::profile(&bench, &mut session, &mut parked.runner, waiting, &mut self.rng());
        drop(quiet);
        self.spares.prepare_profile(None);
        self.park(verified.candidate().id(), parked);
        settled(profile)
    }

    pub(super) fn time(&self, task: &Task, verified: &Verified, plan: &TimingPlan) -> Attempt<Timed> {
        let mut parked = self.unpark(verified.candidate())?;
        let session = self.session(task)?;
        let mut session = lock(&session);
        let _quiet = self.spares.quiet();
        let floor = self.options.deadline_floor;
        let machine = &self.machine;
        let bench = time::Bench { tolerance: &task.tolerance, plan, machine, floor, most_calls: usize::MAX };
        let timed = session
            .introduce(&mut parked.runner)
            .and_then(|()| time::time(&mut session, &mut parked.runner, &bench, &mut self.rng()));
        session.forget()?;
        let (timed, clocks) = timed?;
        parked.clocks = Some(clocks);
        parked.timing = timed.cases.first().cloned().map(|case| (case, timed.statistic));
        self.park(verified.candidate().id(), parked);
        Ok(timed)
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
fn key(problem: &Problem) -> Hash {
    Hash::of(format!("{}\n{}", problem.precision.torch_name(), problem.source).as_bytes())
}
