//! Where KernelBench's problems are evaluated, on the processor or on an NVIDIA GPU, so that they cannot be cheated.
//!
//! Three Python processes work on a problem. The judge draws inputs from secret seeds, and compares; it never loads a
//! stranger's code. The reference and the candidate run in processes alike, confined, that hold one module each and stand
//! still unless they are asked. The clock that counts is this program's.

mod certify;
mod check;
mod company;
mod harness;
mod launch;
pub mod ncu;
mod nursery;
mod peer;
mod profile;
mod python;
mod runner;
mod session;
mod time;

pub use python::Facts;

use crate::{
    candidate::{Built, Candidate, CandidateId, Verified},
    certificate::Certificate,
    evaluation::Timed,
    failure::{Failure, Fault, Outcome},
    hash::Hash,
    native::{
        Layer,
        trouble::{Attempt, Trouble, outcome},
    },
    suite::Suite,
    task::{Case, Problem, Task},
    workshop::{Baseline, TimingPlan, Workshop},
};
use metrics::{Bandwidth, Fact, Machine, MachineKind, Profile};
use python::Python;
use rand::{SeedableRng, rngs::StdRng};
use runner::Runner;
use session::Session;
use std::{
    collections::HashMap,
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

/// The only case of a problem's suite.
pub const CASE: &str = crate::suite::DEFAULT;
/// The contract's seed, for constructors.
const SEED: u64 = 42;
/// What a candidate defines.
const ENTRY: &str = "ModelNew";

/// How a workshop for problems is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The Python that has torch.
    pub python: PathBuf,
    /// The device: `cpu` or `cuda:0`.
    pub device: String,
    /// The program that calls `native::child_main`: as a rule, this very one.
    pub program: PathBuf,
    /// The arguments that lead it there: as a rule, the hidden sub-command.
    pub program_args: Vec<OsString>,
    /// Trials of a check (KernelBench's scripts: 5).
    pub trials: u32,
    /// Whether candidates' matrix products may round to TF32. The judge's never do.
    pub tf32: bool,
    /// Threads of each process on the processor.
    pub threads: u32,
    /// What all inputs of one side may take, in MiB.
    pub arena_mib: u64,
    /// Memory that a candidate may have on the processor beside torch's own, in MiB.
    pub memory_mib: u64,
    /// Whether each candidate runs as a user of its own, where the program is root.
    pub own_user: bool,
    /// What a build may take.
    pub build_deadline: Duration,
    /// What every deadline has beside twenty times the reference's time.
    pub deadline_floor: Duration,
    /// What inputs are drawn from; secret, from the system's randomness, where it is `None`.
    pub seed: Option<u64>,
    /// The machine's specification, for the processor; a GPU is asked.
    pub machine: Option<Machine>,
}

impl Options {
    /// The usual limits, for a Python, a device, and a program with the arguments that lead it to `native::child_main`.
    #[must_use]
    pub fn new(python: PathBuf, device: &str, program: PathBuf, program_args: Vec<OsString>) -> Self {
        let on_cpu = device == "cpu";
        Self {
            python,
            device: device.to_owned(),
            program,
            program_args,
            trials: 5,
            tf32: false,
            threads: 1,
            arena_mib: if on_cpu { 64 } else { 4096 },
            memory_mib: 8192,
            own_user: true,
            build_deadline: Duration::from_secs(300),
            deadline_floor: Duration::from_secs(5),
            seed: None,
            machine: None,
        }
    }
}

/// A workshop for problems. Clones share what is open.
#[derive(Clone)]
pub struct Torch(Arc<Inner>);

struct Inner {
    options: Options,
    python: Python,
    facts: Facts,
    machine: Machine,
    harness: harness::Harness,
    sessions: Mutex<HashMap<Hash, Arc<Mutex<Session>>>>,
    built: Mutex<HashMap<CandidateId, Parked>>,
    _folder: tempfile::TempDir,
}

/// A candidate's process between two steps.
struct Parked {
    runner: Runner,
    labels: Vec<String>,
}

impl Torch {
    /// A workshop. Asks Python what there is, which takes as long as importing torch.
    ///
    /// # Errors
    /// Where that Python has no torch, or torch no such device.
    pub fn new(options: Options) -> Result<Self, Fault> {
        crate::native::process::close_own_memory();
        let python = Python {
            executable: options.python.clone(),
            program: options.program.clone(),
            program_args: options.program_args.clone(),
            device: options.device.clone(),
            threads: options.threads,
            tf32: options.tf32,
            memory_mib: options.memory_mib,
            own_user: options.own_user,
            open_files: false.into(),
            nursery: nursery::Nursery::new(),
        };
        let facts = python.facts()?;
        let folder = tempfile::tempdir().map_err(|e| Fault(format!("cannot make a folder: {e}")))?;
        open_to_all(folder.path())?;
        let harness = harness::Harness::write(folder.path())?;
        let machine = machine(&options, &facts);
        let (sessions, built) = (Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Inner { options, python, facts, machine, harness, sessions, built, _folder: folder })))
    }

    /// What Python found.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// The Python in use.
    #[must_use]
    pub fn python(&self) -> &std::path::Path {
        &self.0.options.python
    }

    /// What names the harness's text.
    #[must_use]
    pub fn harness(&self) -> &Hash {
        self.0.harness.hash()
    }

    /// What is noted of a candidate that was checked: a lower precision, a check that was not possible.
    #[must_use]
    pub fn labels(&self, candidate: &CandidateId) -> Vec<String> {
        self.0.built().get(candidate).map(|parked| parked.labels.clone()).unwrap_or_default()
    }

    /// What is known against a problem: its task's labels, and what its reference was measured to let pass.
    ///
    /// # Errors
    /// Where the problem cannot be opened.
    pub fn audit(&self, task: &Task) -> Result<Vec<String>, Fault> {
        let session = self.0.session(task)?;
        Ok(lock(&session).labels.clone())
    }

    /// What confines candidates on this machine, layer by layer.
    ///
    /// # Errors
    /// Where the problem cannot be opened.
    pub fn confinement(&self, task: &Task) -> Result<Vec<Layer>, Fault> {
        let session = self.0.session(task)?;
        Ok(lock(&session).reference.peer.layers.clone())
    }

    async fn off_the_runtime<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let inner = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.map_err(|e| Fault(format!("the workshop's thread broke: {e}")))
    }
}

impl Inner {
    fn rng(&self) -> StdRng {
        self.options.seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)
    }

    fn built(&self) -> MutexGuard<'_, HashMap<CandidateId, Parked>> {
        lock(&self.built)
    }

    /// The problem's session, opened and audited where it was not yet.
    fn session(&self, task: &Task) -> Result<Arc<Mutex<Session>>, Fault> {
        let problem = problem(task)?;
        let key = Hash::of(format!("{}\n{}", problem.precision.torch_name(), problem.source).as_bytes());
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
    fn open(&self, problem: &Problem) -> Attempt<Session> {
        let open = || Session::open(&self.python, &self.harness, &self.facts, &self.options, problem);
        let first = open();
        let dead = matches!(&first, Err(Trouble::Failure(failure)) if matches!(**failure, Failure::Exit { .. }));
        if dead && self.options.device != "cpu" && !self.python.open_files.swap(true, Ordering::Relaxed) {
            return open();
        }
        first
    }

    /// What torch is, and where it runs.
    fn described(&self) -> String {
        let Facts { torch, cuda, .. } = &self.facts;
        let cuda = cuda.as_ref().map(|cuda| format!(", CUDA {cuda}")).unwrap_or_default();
        format!("torch {torch}{cuda}, eager, on {}", self.options.device)
    }

    fn prepare(&self, task: &Task, plan: &TimingPlan) -> Result<Baseline, Fault> {
        let session = self.session(task)?;
        let timing = settled(time::time_reference(&mut lock(&session), plan, &mut self.rng()))?;
        Ok(Baseline { timings: vec![(CASE.to_owned(), timing)], build: self.described() })
    }

    fn load(&self, task: &Task, candidate: &Candidate) -> Attempt<Runner> {
        let arena = lock(&*self.session(task)?).arena()?;
        self.load_into(&arena, candidate)
    }

    fn load_beside(&self, session: &Session, candidate: &Candidate) -> Attempt<Runner> {
        self.load_into(&session.arena()?, candidate)
    }

    fn load_into(&self, arena: &std::os::fd::OwnedFd, candidate: &Candidate) -> Attempt<Runner> {
        let deadline = self.options.build_deadline;
        Session::load(&self.python, &self.harness, &self.facts, arena, candidate.source(), deadline)
    }

    fn build(&self, task: &Task, candidate: Candidate) -> Attempt<Built> {
        let runner = self.load(task, &candidate)?;
        let artifact = session::source_of(runner.folder());
        self.built().insert(candidate.id(), Parked { runner, labels: vec![] });
        Ok(Built { candidate, artifact })
    }

    /// The candidate's process, started anew where it is gone.
    fn unpark(&self, task: &Task, candidate: &Candidate) -> Attempt<Parked> {
        let parked = self.built().remove(&candidate.id());
        match parked {
            Some(parked) => Ok(parked),
            None => Ok(Parked { runner: self.load(task, candidate)?, labels: vec![] }),
        }
    }

    fn check(&self, task: &Task, built: Built) -> Attempt<Verified> {
        let mut parked = self.unpark(task, &built.candidate)?;
        let session = self.session(task)?;
        let mut session = lock(&session);
        let Options { trials, deadline_floor, .. } = self.options;
        let checked = session.introduce(&mut parked.runner).and_then(|()| {
            check::check(&mut session, &mut parked.runner, &task.tolerance, trials, deadline_floor, &mut self.rng())
        });
        session.forget()?;
        parked.labels = checked?;
        self.built().insert(built.candidate.id(), parked);
        Ok(Verified { built })
    }

    fn profile(&self, task: &Task, verified: &Verified) -> Result<Profile, Fault> {
        let parked = settled(self.unpark(task, verified.candidate()))?;
        let session = self.session(task)?;
        let mut session = lock(&session);
        let (python, harness, facts) = (&self.python, &self.harness, &self.facts);
        let profile = profile::profile(python, harness, facts, &mut session, &parked.runner, &mut self.rng());
        self.built().insert(verified.candidate().id(), parked);
        settled(profile)
    }

    fn time(&self, task: &Task, verified: &Verified, plan: &TimingPlan) -> Attempt<Timed> {
        let mut parked = self.unpark(task, verified.candidate())?;
        let session = self.session(task)?;
        let mut session = lock(&session);
        let floor = self.options.deadline_floor;
        let bench = time::Bench { tolerance: &task.tolerance, plan, machine: &self.machine, floor };
        let timed = session
            .introduce(&mut parked.runner)
            .and_then(|()| time::time(&mut session, &mut parked.runner, &bench, &mut self.rng()));
        session.forget()?;
        let timed = timed?;
        self.built().insert(verified.candidate().id(), parked);
        Ok(timed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a trusted step came to: a failure there is a fault.
fn settled<T>(attempt: Attempt<T>) -> Result<T, Fault> {
    runner::trusted(attempt).map_err(|trouble| match trouble {
        Trouble::Failure(failure) => Fault(format!("the problem's reference failed: {failure}")),
        Trouble::Fault(fault) => fault,
    })
}

fn problem(task: &Task) -> Result<&Problem, Fault> {
    task.problem().ok_or_else(|| Fault(format!("task `{}` is no problem in KernelBench's format", task.name)))
}

fn open_to_all(folder: &std::path::Path) -> Result<(), Fault> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, permissions).map_err(|e| Fault(format!("cannot open {}: {e}", folder.display())))
}

fn machine(options: &Options, facts: &Facts) -> Machine {
    if let Some(machine) = &options.machine {
        return machine.clone();
    }
    let on_gpu = facts.capability.is_some();
    let mut lines = vec![];
    let mut say = |name: &str, value: Option<String>| {
        lines.extend(value.map(|value| Fact { name: name.to_owned(), value }));
    };
    say("compute capability", facts.capability.clone());
    say("memory", on_gpu.then(|| format!("{} GiB", facts.memory_bytes >> 30)));
    say("multiprocessors", facts.multiprocessors.map(|count| count.to_string()));
    say("L2 cache", facts.l2_bytes.map(|bytes| format!("{} MiB", bytes >> 20)));
    say("torch", Some(facts.torch.clone()));
    say("CUDA", facts.cuda.clone().filter(|_| on_gpu));
    say("Python", Some(facts.python.clone()));
    let bandwidth = |bytes_per_second| Bandwidth { working_set_bytes: 2 << 30, bytes_per_second };
    Machine {
        kind: if on_gpu { MachineKind::Gpu } else { MachineKind::Cpu },
        name: facts.device.clone(),
        arch: facts
            .capability
            .as_ref()
            .map_or(std::env::consts::ARCH.to_owned(), |c| format!("sm_{}", c.replace('.', ""))),
        facts: lines,
        bandwidths: facts.copy_bytes_per_second.map(bandwidth).into_iter().collect(),
        peak_flops: None,
    }
}

/// What the hidden sub-command was asked to start as a confined Python process, if it was.
pub(crate) fn launch_asked_for() -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != launch::ARGUMENT).skip(1);
    arguments.next()
}

/// Starts it. Never returns.
pub(crate) fn launch(json: &str) -> ! {
    launch::main(json)
}

impl Workshop for Torch {
    fn machine(&self) -> &Machine {
        &self.0.machine
    }

    fn fits(&self, _: &Task, cases: &[Case]) -> Vec<Result<u64, String>> {
        let fits = |case: &Case| match case.name.as_str() {
            CASE => Ok(0),
            _ => Err("a problem has one shape, its own".to_owned()),
        };
        cases.iter().map(fits).collect()
    }

    async fn prepare(&self, task: &Task, _: &Suite, plan: &TimingPlan) -> Result<Baseline, Fault> {
        let (task, plan) = (task.clone(), *plan);
        self.off_the_runtime(move |inner| inner.prepare(&task, &plan)).await?
    }

    async fn build(&self, task: &Task, candidate: &Candidate) -> Outcome<Built> {
        let (task, candidate) = (task.clone(), candidate.clone());
        self.off_the_runtime(move |inner| outcome(inner.build(&task, candidate))).await?
    }

    async fn check(&self, task: &Task, built: Built, _: &Suite) -> Outcome<Verified> {
        let task = task.clone();
        self.off_the_runtime(move |inner| outcome(inner.check(&task, built))).await?
    }

    async fn time(&self, task: &Task, verified: &Verified, _: &Suite, plan: &TimingPlan) -> Outcome<Timed> {
        let (task, verified, plan) = (task.clone(), verified.clone(), *plan);
        self.off_the_runtime(move |inner| outcome(inner.time(&task, &verified, &plan))).await?
    }

    async fn profile(&self, task: &Task, verified: &Verified, _: &Suite) -> Result<Profile, Fault> {
        let (task, verified) = (task.clone(), verified.clone());
        self.off_the_runtime(move |inner| inner.profile(&task, &verified)).await?
    }

    async fn certify(&self, task: &Task, candidate: &Candidate, plan: &TimingPlan) -> Result<Certificate, Fault> {
        let (task, candidate, plan) = (task.clone(), candidate.clone(), *plan);
        self.off_the_runtime(move |inner| certify::certify(inner, &task, &candidate, &plan)).await?
    }
}
