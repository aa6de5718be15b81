//! The engine: a candidate prepared, checked, timed, profiled and certified, written once for every backend.

pub(crate) mod backend;
mod baselines;
pub(crate) mod certify;
pub(crate) mod check;
pub(crate) mod contents;
mod glance;
pub(crate) mod notes;
mod profile;
pub(crate) mod ranked;
mod refused;
pub(crate) mod sessions;
pub(crate) mod time;

use crate::{
    lease::{Gate, Lease},
    measure::numbers::Effort,
    result::{
        candidate::{Built, Candidate, CandidateId, Verified},
        certificate::Certificate,
        error::{Attempt, EvalError, outcome, trusted},
        evaluation::{Evaluation, Timed},
        failure::{Failure, Fault, Outcome},
        label::{Kind, Label},
        survey::Survey,
    },
    stage::{self, Stage},
    task::{Case, Task, space::Bindings, suite::Suite},
    workshop::{Baseline, Fits, Rebuilt, Step, TimingPlan, Workshop, blocking},
};
use backend::{Backend, Both, Processes, Standard, Toolchain};
use check::Checking;
use metrics::{Machine, Profile};
use notes::Remarks;
use rand::{SeedableRng, rngs::StdRng};
use refused::{Refusals, Shortage, Whose};
use sessions::{Kept, Room, is_full, lock};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, TryLockError},
};
use time::What;

/// A workshop on one backend. Clones share what is open.
#[expect(private_bounds, reason = "backends are this crate's own: its users name `Native`, `Cuda` and `Torch`")]
pub struct Engine<B: Backend>(Arc<Inner<B>>);

impl<B: Backend> Clone for Engine<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A backend, and what is kept between steps.
pub(crate) struct Inner<B: Backend> {
    pub(crate) backend: B,
    kept: Kept<B>,
    refusals: Refusals,
    /// Who may use the device now.
    gate: Gate,
    /// Whose turn it is to profile, where that is one after the other.
    profiling: Mutex<()>,
}

/// What inputs are drawn for: the same seed draws other contents for another purpose.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Prepare,
    Check,
    Time,
    Profile,
    Certify,
    Sanitize,
}

#[expect(private_bounds, reason = "as above")]
impl<B: Backend> Engine<B> {
    /// A workshop on this backend. From here on this process's memory is closed to others of the same user, kernels among
    /// them.
    pub(crate) fn on(backend: B) -> Self {
        crate::sandbox::process::close_own_memory();
        let kept = Kept::new(&backend);
        let gate = Gate::new(backend.free_memory(), backend.beside()).letting_compile(backend.compiling());
        Self(Arc::new(Inner { backend, kept, refusals: Refusals::default(), gate, profiling: Mutex::default() }))
    }

    /// The backend.
    pub(crate) fn backend(&self) -> &B {
        &self.0.backend
    }

    /// What is to be known of a candidate beside its times: of its build, its check, and what disturbed its timing.
    #[must_use]
    pub fn labels(&self, candidate: &CandidateId) -> Vec<Label> {
        self.0.kept.note(candidate, |notes| notes.all_labels())
    }

    /// How a candidate's times came about, where it was timed.
    #[must_use]
    pub fn remarks(&self, candidate: &CandidateId) -> Option<Remarks> {
        self.0.kept.note(candidate, |notes| notes.remarks.clone())
    }

    /// What is known against a task: its own labels, and what its reference was measured to let pass.
    ///
    /// # Errors
    /// Where the task cannot be opened.
    pub fn audit(&self, task: &Task) -> Result<Vec<Label>, Fault> {
        self.in_open_task(task, |session| self.0.backend.labels(session))
    }

    /// Looks at a task's session, opened where it was not yet.
    pub(crate) fn in_open_task<T>(&self, task: &Task, look: impl FnOnce(&B::Session) -> T) -> Result<T, Fault> {
        let session = or_fault(self.0.session(task))?;
        let open = lock(&session);
        Ok(look(&open))
    }

    /// Releases a candidate's process, which is otherwise kept for the next step.
    pub fn release(&self, candidate: &CandidateId) {
        self.0.kept.release(candidate);
    }

    /// Closes a task: its processes end and give their memory back. It is opened again when it is next asked about.
    pub fn close(&self, task: &Task) {
        self.0.kept.close(&self.0.backend.key(task));
    }

    /// Has an open task give back what it holds of the device's memory; its processes stay.
    ///
    /// # Errors
    /// Where it cannot be opened, or its processes do not answer.
    pub fn offload(&self, task: &Task) -> Result<(), Fault> {
        let session = or_fault(self.0.session(task))?;
        or_fault(self.0.backend.offload(&mut lock(&session)).map(|_| ()))
    }

    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner<B>) -> Result<T, Fault> + Send + 'static,
    ) -> Step<'_, Result<T, Fault>> {
        let inner = Arc::clone(&self.0);
        blocking(move || work(&inner))
    }
}

fn hangs<T>(attempt: &Attempt<T>) -> bool {
    matches!(attempt, Err(EvalError::Candidate(failure)) if matches!(**failure, Failure::Hang { .. }))
}

fn differs(failure: &Failure) -> bool {
    matches!(failure, Failure::Mismatch { .. })
}

/// What a trusted step came to: a failure there is the reference's.
fn or_fault<T>(attempt: Attempt<T>) -> Result<T, Fault> {
    match trusted(attempt) {
        Ok(value) => Ok(value),
        Err(EvalError::Infra(fault)) => Err(fault),
        Err(EvalError::Candidate(failure)) => Err(Fault::of_reference(&failure)),
    }
}

impl<B: Backend> Inner<B> {
    /// A generator for one purpose.
    fn rng(&self, purpose: Purpose) -> StdRng {
        let seeded = |seed: u64| StdRng::seed_from_u64(seed.wrapping_mul(8).wrapping_add(purpose as u64));
        self.backend.seed().map_or_else(StdRng::from_os_rng, seeded)
    }

    fn checking<'a>(&'a self, task: &'a Task) -> Checking<'a> {
        let numbers = self.backend.numbers();
        let (tolerance, slack, first_slack) = (&task.tolerance, self.backend.slack(), self.backend.first_slack());
        let beyond = task.problem().map(|problem| problem.beyond).unwrap_or_default();
        let (draws, signed) = (numbers.draws, numbers.signed);
        Checking { tolerance, draws, signed, beyond, oracle: true, slack, first_slack }
    }

    /// The task's session, opened where it was not yet.
    fn session(&self, task: &Task) -> Attempt<sessions::Shared<B>> {
        let open = |on_device: &mut dyn FnMut(Option<u64>)| self.backend.open(task, Toolchain::Quick, on_device);
        let key = self.backend.key(task);
        let lease = |room| self.gate.share_for(room, &key);
        self.kept.task(&self.backend, &key, lease, open)
    }

    /// Has a task that was offloaded take its part of the memory again; one that cannot for another reason than that there is
    /// none is opened anew the next time.
    fn reloaded(&self, key: &crate::Hash, session: &mut B::Session) -> Attempt<()> {
        if !self.backend.is_offloaded(session) {
            return Ok(());
        }
        let reloaded = stage::during(Stage::Open, || trusted(self.backend.reload(session)));
        if reloaded.is_err() && !is_full(&reloaded) {
            self.kept.close(key);
        }
        reloaded
    }

    /// Does a step that works with a task's session, with room for it, beside others' steps: a candidate's, or the reference's
    /// beside itself. What was only ranked before is gone by then.
    fn in_session<T>(
        &self,
        of: (&Task, Option<&CandidateId>),
        short: impl Fn(&Attempt<T>) -> bool,
        mut step: impl FnMut(&mut B::Session, &mut Lease<'_>) -> Attempt<T>,
    ) -> Attempt<T> {
        self.in_session_with(of, B::wanted_memory, short, |session, lease| {
            self.kept.ranked.forget();
            step(session, lease)
        })
    }

    /// The same, where it is said what room it needs.
    fn in_session_with<T>(
        &self,
        (task, candidate): (&Task, Option<&CandidateId>),
        room: impl Fn(&B, &B::Session) -> u64,
        short: impl Fn(&Attempt<T>) -> bool,
        mut step: impl FnMut(&mut B::Session, &mut Lease<'_>) -> Attempt<T>,
    ) -> Attempt<T> {
        let key = self.backend.key(task);
        loop {
            let (wanted, room, held) = trusted(self.session(task)).map(|session| {
                let session = lock(&session);
                let backend = &self.backend;
                (backend.wanted_memory(&session), room(backend, &session), backend.held_memory(&session))
            })?;
            let room = self.kept.enough(&key, room);
            tracing::debug!(
                task = task.name,
                wanted_mib = wanted >> 20,
                room_mib = room >> 20,
                held_mib = held >> 20,
                "a step's memory"
            );
            // Whoever waits here keeps no task open that others need the memory of.
            let lease = self.gate.share_for(room.saturating_add(held), &key);
            let Some(session) = self.kept.open_task(&key) else { continue };
            let mut session = match session.try_lock() {
                Ok(session) => session,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    // Another step of this task waits for the device: it goes first.
                    drop(lease);
                    drop(lock(&session));
                    continue;
                }
            };
            let missing = if self.backend.is_offloaded(&session) { held } else { 0 };
            let step = |lease: &mut Lease<'_>| {
                let visited = self.backend.is_visited();
                let done = self.reloaded(&key, &mut session).and_then(|()| step(&mut session, lease));
                self.kept.note_size(&self.backend, &key, &session);
                let refused = self.backend.was_refused_memory(&mut session);
                let of = if candidate.is_some() { Whose::Candidates } else { Whose::References };
                let has_room = || {
                    if let Some(id) = candidate {
                        self.kept.release(id);
                    }
                    sessions::has_room(&self.backend, wanted + missing)
                };
                let visited = visited || self.backend.is_visited();
                let shortage = Shortage { refused, has_all: lease.has_all(), visited };
                self.refusals.judge((&key, of), shortage, has_room, done)
            };
            let room = Room { key: Some(&key), wanted: room, held, missing };
            return self.kept.with_room(&self.backend, lease, room, short, step);
        }
    }

    /// The candidate's process, started again where it is gone.
    fn unpark(&self, task: &Task, candidate: &Candidate) -> Attempt<B::Loaded> {
        if let Some(parked) = self.kept.unpark(&candidate.id()) {
            return Ok(parked);
        }
        let _stage = stage::begin(Stage::Build);
        if let Some(mut asleep) = self.kept.asleep(&candidate.id()) {
            self.backend.wake(&mut asleep)?;
            return Ok(asleep);
        }
        let needs_stock = self.kept.note(&candidate.id(), |notes| notes.needs_stock);
        self.backend.load(task, candidate, if needs_stock { Toolchain::Stock } else { Toolchain::Quick })
    }

    /// The reference stands in for a candidate: it must agree with itself in another process.
    fn prepare(&self, task: &Task, suite: &Suite, plan: &TimingPlan) -> Result<Baseline, Fault> {
        self.backend.get_ready();
        let rng = &mut self.rng(Purpose::Prepare);
        let candidate = Candidate::new(task.reference_as_candidate());
        let load = || stage::during(Stage::Build, || self.backend.load(task, &candidate, Toolchain::Quick));
        let mut first = Some(or_fault(load())?);
        let prepared = self.in_session((task, None), is_full, |session, lease| {
            let mut loaded = first.take().map_or_else(load, Ok)?;
            let how = Checking { draws: 1, signed: false, oracle: false, ..self.checking(task) };
            let which = (Standard::Reference, Processes::AtHand);
            let cases = baselines::small(task, &suite.cases);
            let pair = stage::during(Stage::Load, || self.backend.pair(task, session, &mut loaded, which));
            let checked = pair.and_then(|mut pair| check::check(&mut pair, &cases, (&how, lease), rng));
            let differs = match checked {
                Err(EvalError::Candidate(failure)) if self.backend.reference_may_differ() && differs(&failure) => {
                    let text = format!("the reference differs from itself in another process: {failure}");
                    Some(Label::new(Kind::Task, text))
                }
                checked => checked.map(|_| None)?,
            };
            let all: Vec<Case> = suite.cases.iter().chain(&task.final_cases).cloned().collect();
            self.check_baselines(task, (session, lease), (&all, Toolchain::Quick), rng)?;
            let mut loaded = self.load_against(task)?.unwrap_or(loaded);
            let what = What { task, suite, plan, effort: Effort::Loop, trusted: true, self_difference: 0.0 };
            let both = Both { session, loaded: &mut loaded, lease };
            let (timed, _) = time::time(&self.backend, both, &what, rng)?;
            lease.let_others_in();
            drop(loaded);
            self.backend.tidy(session)?;
            let mut variants = self.backend.variants(task, session, plan, lease)?;
            variants.extend(self.time_baselines((task, suite, plan), session, lease, rng)?);
            let labels = self.backend.labels(session);
            let signature = self.backend.signature(session);
            Ok((timed, variants, labels.into_iter().chain(differs).collect(), signature))
        });
        let (timed, variants, labels, signature) = or_fault(prepared)?;
        self.backend.get_ready();
        let timings = timed.cases.into_iter().map(|case| (case.case, case.reference)).collect();
        let build = self.backend.describe_build(task)?;
        let (over_itself, against) = (Some(timed.speedup), task.against());
        Ok(Baseline { over_itself, against, variants, labels, signature, ..Baseline::new(timings, build) })
    }

    fn build(&self, task: &Task, candidate: &Candidate) -> Attempt<Built> {
        let _stage = stage::begin(Stage::Build);
        if let Some(artifact) = self.built_before(candidate)? {
            return Ok(Built { candidate: candidate.clone(), artifact });
        }
        let load = || self.backend.load(task, candidate, Toolchain::Quick);
        let loaded = self.kept.off_the_device(&self.backend, load)?;
        let artifact = self.backend.artifact(&loaded);
        self.kept.park(&self.backend, &candidate.id(), loaded)?;
        Ok(Built { candidate: candidate.clone(), artifact })
    }

    /// Where a candidate's build lies that is there still, in a process that can go on or in none. What was compiled for its
    /// check serves its timing and its profile.
    fn built_before(&self, candidate: &Candidate) -> Attempt<Option<PathBuf>> {
        let id = candidate.id();
        if let Some(loaded) = self.kept.unpark(&id) {
            // One that cannot rest is not kept.
            self.kept.park(&self.backend, &id, loaded)?;
        }
        Ok(self.kept.build_of(&self.backend, &id))
    }

    fn check(&self, task: &Task, built: Built, suite: &Suite) -> Attempt<Verified> {
        let candidate = &built.candidate;
        let mut parked = Some(self.unpark(task, candidate)?);
        let short = |checked: &Attempt<Vec<Label>>| match checked {
            Ok(labels) => labels.iter().any(Label::is_of_memory),
            failed => is_full(failed),
        };
        let checked = self.in_session((task, Some(&candidate.id())), short, |session, lease| {
            let mut loaded = || parked.take().map_or_else(|| self.unpark(task, candidate), Ok);
            let checked = self.check_once((session, lease), task, candidate, loaded()?, suite);
            if lease.is_alone() || !hangs(&checked) {
                return checked;
            }
            // Others may have held it up, with compilers or calls of their own.
            lease.be_alone();
            self.check_once((session, lease), task, candidate, loaded()?, suite)
        });
        if checked.is_err() {
            self.backend.get_ready();
        }
        let labels = checked?;
        self.kept.note(&candidate.id(), |notes| notes.labels = labels);
        Ok(Verified { built })
    }

    /// Checks a candidate and parks it; what is worth a label.
    fn check_once(
        &self,
        (session, lease): (&mut B::Session, &mut Lease<'_>),
        task: &Task,
        candidate: &Candidate,
        mut loaded: B::Loaded,
        suite: &Suite,
    ) -> Attempt<Vec<Label>> {
        let mut checked = self.examine(task, Both { session, loaded: &mut loaded, lease }, &suite.cases);
        let mut of_build = self.backend.build_labels(&loaded);
        let in_doubt = checked.as_ref().err().and_then(|error| self.backend.in_doubt(&loaded, error));
        if let Some(label) = in_doubt {
            loaded = stage::during(Stage::Build, || self.backend.load(task, candidate, Toolchain::Stock))?;
            checked = self.examine(task, Both { session, loaded: &mut loaded, lease }, &suite.cases);
            of_build = vec![label];
            self.kept.note(&candidate.id(), |notes| notes.needs_stock = checked.is_ok());
        }
        let mut labels = checked?;
        labels.append(&mut of_build);
        self.kept.park(&self.backend, &candidate.id(), loaded)?;
        Ok(labels)
    }

    fn examine(
        &self,
        task: &Task,
        Both { session, loaded, lease }: Both<'_, '_, B>,
        cases: &[Case],
    ) -> Attempt<Vec<Label>> {
        let (rng, which) = (&mut self.rng(Purpose::Check), (Standard::Outputs, Processes::AtHand));
        let pair = stage::during(Stage::Load, || self.backend.pair(task, session, loaded, which));
        let checked = pair.and_then(|mut pair| check::check(&mut pair, cases, (&self.checking(task), lease), rng));
        let tidied = self.backend.tidy(session);
        checked.and_then(|labels| tidied.map(|()| labels))
    }

    /// Runs a candidate under a sanitizer, as a certificate does, but on a small shape alone: a sanitizer is slow.
    fn sanitize(&self, task: &Task, candidate: &Candidate) -> Attempt<()> {
        let bytes = |case: &&Case| self.backend.fits(task, case).unwrap_or(u64::MAX);
        let smallest = task.cases.iter().chain(&task.final_cases).min_by_key(bytes);
        let small = Task { cases: smallest.cloned().into_iter().collect(), final_cases: vec![], ..task.clone() };
        let (rng, mut parked) = (&mut self.rng(Purpose::Sanitize), Some(self.unpark(task, candidate)?));
        let sanitized = self.in_session((task, Some(&candidate.id())), is_full, |session, lease| {
            let mut loaded = parked.take().map_or_else(|| self.unpark(task, candidate), Ok)?;
            let both = Both { session: &mut *session, loaded: &mut loaded, lease };
            let found = stage::during(Stage::Sanitize, || self.backend.sanitize(&small, both, candidate, rng));
            let tidied = self.backend.tidy(session);
            found?;
            tidied?;
            self.kept.park(&self.backend, &candidate.id(), loaded)
        });
        if sanitized.is_err() {
            self.backend.get_ready();
        }
        sanitized
    }

    fn time(
        &self,
        task: &Task,
        candidate: &Candidate,
        suite: &Suite,
        plan: &TimingPlan,
        self_difference: f64,
    ) -> Attempt<Timed> {
        let loaded = self.unpark(task, candidate)?;
        // Reading machine code takes a while and no device.
        let of_code = self.backend.code_labels(candidate, &loaded);
        self.kept.note(&candidate.id(), |notes| notes.of_code = of_code);
        let mut parked = Some(loaded);
        let timed = self.in_session((task, Some(&candidate.id())), is_full, |session, lease| {
            let mut loaded = parked.take().map_or_else(|| self.unpark(task, candidate), Ok)?;
            let what = What { task, suite, plan, effort: Effort::Loop, trusted: false, self_difference };
            let both = Both { session, loaded: &mut loaded, lease };
            let timed = time::time(&self.backend, both, &what, &mut self.rng(Purpose::Time));
            lease.let_others_in();
            let tidied = self.backend.tidy(session);
            let timed = timed?;
            tidied?;
            self.kept.park(&self.backend, &candidate.id(), loaded)?;
            Ok(timed)
        });
        self.backend.get_ready();
        let (mut timed, remarks) = timed?;
        timed.labels = self.kept.note(&candidate.id(), |notes| {
            notes.remarks = Some(remarks);
            notes.timings = timed.cases.iter().map(|case| (case.clone(), timed.statistic)).collect();
            notes.all_labels()
        });
        Ok(timed)
    }
}

impl<B: Backend> Workshop for Engine<B> {
    fn machine(&self) -> &Machine {
        self.0.backend.machine()
    }

    fn fits<'a>(&'a self, task: &'a Task, cases: &'a [Case]) -> Step<'a, Result<Fits, Fault>> {
        let fits = cases.iter().map(|case| self.0.backend.fits(task, case)).collect();
        Box::pin(std::future::ready(Ok(fits)))
    }

    fn open_ahead(&self, task: &Task) {
        let (inner, task) = (Arc::clone(&self.0), task.clone());
        std::thread::spawn(move || inner.session(&task).map(drop));
    }

    fn prepare<'a>(
        &'a self,
        task: &'a Task,
        suite: &'a Suite,
        plan: &'a TimingPlan,
    ) -> Step<'a, Result<Baseline, Fault>> {
        let (task, suite, plan) = (task.clone(), suite.clone(), *plan);
        self.blocking(move |inner| inner.prepare(&task, &suite, &plan))
    }

    fn build<'a>(&'a self, task: &'a Task, candidate: &'a Candidate) -> Step<'a, Outcome<Built>> {
        let (task, candidate) = (task.clone(), candidate.clone());
        self.blocking(move |inner| outcome(inner.build(&task, &candidate)))
    }

    fn check<'a>(&'a self, task: &'a Task, built: Built, suite: &'a Suite) -> Step<'a, Outcome<Verified>> {
        let (task, suite) = (task.clone(), suite.clone());
        self.blocking(move |inner| outcome(inner.check(&task, built, &suite)))
    }

    fn sanitize<'a>(&'a self, task: &'a Task, verified: &'a Verified) -> Step<'a, Outcome<()>> {
        let (task, candidate) = (task.clone(), verified.candidate().clone());
        self.blocking(move |inner| outcome(inner.sanitize(&task, &candidate)))
    }

    fn time<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
        plan: &'a TimingPlan,
        self_difference: f64,
    ) -> Step<'a, Outcome<Timed>> {
        let (task, candidate, suite, plan) = (task.clone(), verified.candidate().clone(), suite.clone(), *plan);
        self.blocking(move |inner| outcome(inner.time(&task, &candidate, &suite, &plan, self_difference)))
    }

    fn glance<'a>(
        &'a self,
        task: &'a Task,
        built: Built,
        suite: &'a Suite,
        plan: &'a TimingPlan,
        self_difference: f64,
    ) -> Step<'a, Result<Evaluation, Fault>> {
        let (task, suite, plan) = (task.clone(), suite.clone(), *plan);
        self.blocking(move |inner| {
            let glanced = outcome(inner.glance(&task, built, &suite, &plan, self_difference))?;
            Ok(glanced.map_or_else(Evaluation::Failed, Evaluation::Passed))
        })
    }

    fn profile<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
    ) -> Step<'a, Result<Profile, Fault>> {
        let (task, candidate, suite) = (task.clone(), verified.candidate().clone(), suite.clone());
        self.blocking(move |inner| inner.profile(&task, &candidate, &suite))
    }

    fn survey<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
    ) -> Step<'a, Result<Result<Survey, String>, Fault>> {
        let (task, candidate, suite) = (task.clone(), verified.candidate().clone(), suite.clone());
        self.blocking(move |inner| inner.survey(&task, &candidate, &suite))
    }

    fn print<'a>(&'a self, script: &'a str, bindings: &'a Bindings) -> Step<'a, Outcome<String>> {
        let (script, bindings) = (script.to_owned(), bindings.clone());
        self.blocking(move |inner| outcome(inner.backend.print(&script, &bindings)))
    }

    fn rebuild<'a>(&'a self, task: &'a Task, candidate: &'a Candidate) -> Step<'a, Result<Rebuilt, Fault>> {
        let (task, candidate) = (task.clone(), candidate.clone());
        self.blocking(move |inner| inner.rebuild(&task, candidate))
    }

    fn certify<'a>(
        &'a self,
        task: &'a Task,
        rebuilt: Rebuilt,
        plan: &'a TimingPlan,
    ) -> Step<'a, Result<Certificate, Fault>> {
        let (task, plan) = (task.clone(), *plan);
        self.blocking(move |inner| inner.certify(&task, &rebuilt, &plan))
    }
}
