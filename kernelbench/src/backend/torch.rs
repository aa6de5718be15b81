//! Where KernelBench's problems are evaluated, on the processor or on an NVIDIA GPU, so that they cannot be cheated.
//!
//! Three Python processes work on a problem. The judge draws inputs from secret seeds, and compares; it never loads a
//! stranger's code. The reference and the candidate run in processes alike, confined, that hold one module each and stand
//! still unless they are asked. The clock of this program bounds the one in a process, which counts (`clock`).

pub(crate) mod baseline;
pub(crate) mod certify;
pub(crate) mod check;
pub(crate) mod crowd;
pub(crate) mod harness;
pub(crate) mod headers;
pub(crate) mod machine;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod places;
pub(crate) mod python;
pub(crate) mod runner;
pub(crate) mod sample;
pub(crate) mod session;
pub(crate) mod shelf;
pub(crate) mod slim;
pub(crate) mod spares;
pub(crate) mod steps;
pub(crate) mod time;
pub(crate) mod verifier;
pub(crate) mod verify;

pub use crate::profile::torch::Profiler;
pub use baseline::Mode;
pub use headers::Headers;
pub use open::{OPEN, Open};
pub use options::Options;
pub use python::Facts;
pub use time::Clocks;

use crate::profile;
use crate::sandbox::spawn;
use crate::{
    backend::native::Layer,
    hash::Hash,
    machine::gpu::{self, Gpu},
    result::{
        candidate::{Built, Candidate, CandidateId, Verified},
        certificate::Certificate,
        error::outcome,
        evaluation::{CaseTiming, Timed},
        failure::{Fault, Outcome},
    },
    task::{Case, Task, suite::Suite},
    workshop::{Baseline, TimingPlan, Workshop},
};
use metrics::{Machine, Profile, Statistic};
use python::Python;
use runner::Runner;
use session::Session;
use shelf::Shelf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The only case of a problem's suite.
pub const CASE: &str = crate::task::suite::DEFAULT;
/// The contract's seed, for constructors.
const SEED: u64 = 42;
/// What a candidate defines.
const ENTRY: &str = "ModelNew";

/// Problems that are kept open at once.
const OPEN_PROBLEMS: usize = 12;
/// Candidates that are kept between two steps at once.
const PARKED: usize = 24;
/// Candidates of which it is remembered what was learned.
const NOTED: usize = 1000;

/// A workshop for problems. Clones share what is open.
#[derive(Clone)]
pub struct Torch(Arc<Inner>);

struct Inner {
    options: Options,
    python: Arc<Python>,
    facts: Facts,
    machine: Machine,
    harness: Arc<harness::Harness>,
    spares: spares::Spares,
    ladder: Arc<profile::torch::Ladder>,
    sessions: Mutex<crowd::Sessions>,
    /// The candidates' processes between two steps.
    built: Mutex<Shelf<CandidateId, Runner>>,
    /// What was learned of candidates, whether or not their processes are there.
    notes: Mutex<Shelf<CandidateId, Notes>>,
    /// Bytes of the GPU that were free when this workshop began.
    free_at_first: Option<u64>,
    _folder: tempfile::TempDir,
}

/// What was learned of a candidate.
#[derive(Default)]
struct Notes {
    labels: Vec<String>,
    clocks: Option<Clocks>,
    /// How it was timed last.
    timing: Option<(CaseTiming, Statistic)>,
}

impl Notes {
    fn told(&self) -> Vec<String> {
        let of_clocks = self.clocks.iter().flat_map(|clocks| clocks.disturbed.iter().chain(&clocks.anew));
        self.labels.iter().chain(of_clocks).cloned().collect()
    }
}

impl Torch {
    /// A workshop. Asks Python what there is, which takes as long as importing torch; meanwhile the first processes start.
    ///
    /// # Errors
    /// Where that Python has no torch, or torch no such device.
    pub fn new(options: Options) -> Result<Self, Fault> {
        crate::sandbox::process::close_own_memory();
        let free_at_first = gpu::ordinal(&options.device).and_then(|ordinal| Gpu::at(ordinal).ok()?.memory_free());
        let folders = Python::folders(&options.python)?;
        let python = Arc::new(Python {
            executable: options.python.clone(),
            program: options.program.clone(),
            program_args: options.program_args.clone(),
            device: options.device.clone(),
            threads: options.threads,
            tf32: options.tf32,
            memory_mib: options.memory_mib,
            own_user: options.own_user,
            ncu: options.ncu.clone(),
            open_files: false.into(),
            nursery: spawn::Nursery::new(),
            folders,
        });
        let folder = tempfile::tempdir().map_err(|e| Fault(format!("cannot make a folder: {e}")))?;
        open_to_all(folder.path())?;
        let harness = Arc::new(harness::Harness::write(folder.path())?);
        let ladder = Arc::new(profile::torch::Ladder::new(&options));
        let shared = (Arc::clone(&python), Arc::clone(&harness), Arc::clone(&ladder));
        let spares = spares::Spares::new(shared, options.spares, folder_of_candidates(folder.path())?);
        let facts = match spares.judge() {
            Ok(mut judge) => {
                let facts = python.facts(Ok(&mut judge))?;
                spares.give_back(judge);
                facts
            }
            Err(trouble) => python.facts(Err(trouble))?,
        };
        let machine = machine::machine(&options, &facts);
        Ok(Self(Arc::new(Inner {
            options,
            python,
            facts,
            machine,
            harness,
            spares,
            ladder,
            sessions: Mutex::new(Shelf::new(OPEN_PROBLEMS)),
            built: Mutex::new(Shelf::new(PARKED)),
            notes: Mutex::new(Shelf::new(NOTED)),
            free_at_first,
            _folder: folder,
        })))
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

    /// What is noted of a candidate that was checked: a lower precision, a check that was not possible, what disturbed its
    /// timing.
    #[must_use]
    pub fn labels(&self, candidate: &CandidateId) -> Vec<String> {
        lock(&self.0.notes).get(candidate).map(Notes::told).unwrap_or_default()
    }

    /// How a candidate's time came about, where it was timed.
    #[must_use]
    pub fn clocks(&self, candidate: &CandidateId) -> Option<Clocks> {
        lock(&self.0.notes).get(candidate)?.clocks.clone()
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

    /// The numbers of the processes that it has started and that are there.
    #[must_use]
    pub fn processes(&self) -> Vec<i32> {
        self.0.python.nursery.running()
    }

    /// Ends a candidate's process, which is otherwise kept for the next step.
    pub fn let_go(&self, candidate: &CandidateId) {
        drop(self.0.built().remove(candidate));
    }

    /// Closes a problem: its processes end and give their memory back. It is opened again when it is next asked about.
    ///
    /// # Errors
    /// Where the task is no problem.
    pub fn close(&self, task: &Task) -> Result<(), Fault> {
        self.0.close(task)
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_to_all(folder: &std::path::Path) -> Result<(), Fault> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, permissions).map_err(|e| Fault(format!("cannot open {}: {e}", folder.display())))
}

/// The folder that the folders of candidates lie in. Others may pass through it and not look.
fn folder_of_candidates(folder: &std::path::Path) -> Result<std::path::PathBuf, Fault> {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("candidates");
    let made = std::fs::create_dir(&path)
        .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o711)));
    made.map(|()| path.clone()).map_err(|e| Fault(format!("cannot make {}: {e}", path.display())))
}

/// What the hidden sub-command was asked to start as a confined Python process, if it was.
pub(crate) fn launch_asked_for() -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != crate::sandbox::launch::ARGUMENT).skip(1);
    arguments.next()
}

/// Starts it. Never returns.
pub(crate) fn launch(json: &str) -> ! {
    crate::sandbox::launch::main(json)
}

impl Workshop for Torch {
    type Rebuilt = certify::Rebuilt;

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

    async fn rebuild(&self, _: &Task, candidate: &Candidate) -> Result<certify::Rebuilt, Fault> {
        let candidate = candidate.clone();
        self.off_the_runtime(move |inner| certify::rebuild(inner, &candidate)).await?
    }

    async fn certify(&self, task: &Task, rebuilt: certify::Rebuilt, plan: &TimingPlan) -> Result<Certificate, Fault> {
        let (task, plan) = (task.clone(), *plan);
        self.off_the_runtime(move |inner| certify::certify(inner, &task, rebuilt, &plan)).await?
    }
}
