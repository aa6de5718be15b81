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
    time,
};
use crate::{
    candidate::{Built, Candidate, CandidateId, Verified},
    evaluation::Timed,
    failure::{Failure, Fault},
    hash::Hash,
    native::trouble::{Attempt, Trouble},
    task::{Problem, Task},
    workshop::{Baseline, TimingPlan},
};
use metrics::Profile;
use rand::{SeedableRng, rngs::StdRng};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
};

impl Inner {
    pub(super) fn rng(&self) -> StdRng {
        self.options.seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)
    }

    pub(super) fn built(&self) -> MutexGuard<'_, HashMap<CandidateId, Parked>> {
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
        let opened = self.open(problem).and_then(|mut session| {
            session.audit(&task.tolerance, &mut self.rng())?;
            Ok(session)
        });
        let session = Arc::new(Mutex::new(settled(opened)?));
        sessions.insert(key, Arc::clone(&session));
        Ok(session)
    }

    /// A new session. A driver that does not start behind landlock is given a second try without it; the layers say so.
    pub(super) fn open(&self, problem: &Problem) -> Attempt<Session> {
        let open = || Session::open(&self.python, &self.harness, &self.facts, &self.options, problem);
        let first = open();
        let dead = matches!(&first, Err(Trouble::Failure(failure)) if matches!(**failure, Failure::Exit { .. }));
        if dead && self.options.device != "cpu" && !self.python.open_files.swap(true, Ordering::Relaxed) {
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
        let timing = settled(time::time_reference(&mut lock(&session), plan, &mut self.rng()))?;
        Ok(Baseline { timings: vec![(CASE.to_owned(), timing)], build: self.described() })
    }

    pub(super) fn load(&self, task: &Task, candidate: &Candidate) -> Attempt<Runner> {
        let arena = lock(&*self.session(task)?).arena()?;
        self.load_into(&arena, candidate, self.options.headers)
    }

    /// As `load`, for a session that nobody else has, and with these headers.
    pub(super) fn load_beside(&self, session: &Session, candidate: &Candidate, headers: Headers) -> Attempt<Runner> {
        self.load_into(&session.arena()?, candidate, headers)
    }

    fn load_into(&self, arena: &std::os::fd::OwnedFd, candidate: &Candidate, headers: Headers) -> Attempt<Runner> {
        let deadline = self.options.build_deadline;
        Session::load(&self.python, &self.harness, &self.facts, arena, candidate.source(), headers, deadline)
    }

    pub(super) fn build(&self, task: &Task, candidate: Candidate) -> Attempt<Built> {
        let runner = self.load(task, &candidate)?;
        let artifact = session::source_of(runner.folder());
        self.built().insert(candidate.id(), Parked::new(runner));
        Ok(Built { candidate, artifact })
    }

    /// The candidate's process, started anew where it is gone.
    pub(super) fn unpark(&self, task: &Task, candidate: &Candidate) -> Attempt<Parked> {
        let parked = self.built().remove(&candidate.id());
        match parked {
            Some(parked) => Ok(parked),
            None => Ok(Parked::new(self.load(task, candidate)?)),
        }
    }

    pub(super) fn check(&self, task: &Task, built: Built) -> Attempt<Verified> {
        let mut parked = self.unpark(task, &built.candidate)?;
        let session = self.session(task)?;
        let mut session = lock(&session);
        let Options { trials, deadline_floor, .. } = self.options;
        let checked = session.introduce(&mut parked.runner).and_then(|()| {
            check::check(&mut session, &mut parked.runner, &task.tolerance, trials, deadline_floor, &mut self.rng())
        });
        session.forget()?;
        parked.labels = checked?;
        parked.labels.extend(parked.runner.extensions.iter().map(headers::label));
        self.built().insert(built.candidate.id(), parked);
        Ok(Verified { built })
    }

    pub(super) fn profile(&self, task: &Task, verified: &Verified) -> Result<Profile, Fault> {
        let parked = settled(self.unpark(task, verified.candidate()))?;
        let session = self.session(task)?;
        let mut session = lock(&session);
        let (python, harness, facts) = (&self.python, &self.harness, &self.facts);
        let profile = profile::profile(python, harness, facts, &mut session, &parked.runner, &mut self.rng());
        self.built().insert(verified.candidate().id(), parked);
        settled(profile)
    }

    pub(super) fn time(&self, task: &Task, verified: &Verified, plan: &TimingPlan) -> Attempt<Timed> {
        let mut parked = self.unpark(task, verified.candidate())?;
        let session = self.session(task)?;
        let mut session = lock(&session);
        let floor = self.options.deadline_floor;
        let bench = time::Bench { tolerance: &task.tolerance, plan, machine: &self.machine, floor };
        let timed = session
            .introduce(&mut parked.runner)
            .and_then(|()| time::time(&mut session, &mut parked.runner, &bench, &mut self.rng()));
        session.forget()?;
        let (timed, clocks) = timed?;
        parked.clocks = Some(clocks);
        self.built().insert(verified.candidate().id(), parked);
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
