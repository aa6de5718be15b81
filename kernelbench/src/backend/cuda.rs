//! Where candidates in CUDA are built and run on an NVIDIA GPU, with no Python at all.
//!
//! A candidate is a host function that launches kernels. It is a stranger here: it is built from its text alone and runs in
//! a confined process of its own, as the reference does in another. Both compute in memory of ours; inputs are drawn there,
//! and outputs are looked at there, by kernels of ours. This program's clock
//! bounds the one in the process, which counts (`clock`).

pub(crate) mod certify;
pub(crate) mod check;
pub(crate) mod child;
pub(crate) mod driver;
pub(crate) mod machine;
pub(crate) mod runner;
pub(crate) mod spare;
pub(crate) mod steps;
pub(crate) mod time;
pub(crate) mod verifier;

pub use crate::build::nvcc::{find as find_nvcc, version as nvcc_version};

pub(crate) use child::run_if_asked;

use crate::build::nvcc;
use crate::{
    backend::native::worker::Launch,
    machine::{cores::Cores, gpu::Gpu},
    profile::cuda::Waiting,
    result::{
        candidate::{Built, Candidate, CandidateId, Verified},
        certificate::Certificate,
        error::outcome,
        evaluation::Timed,
        failure::{Fault, Outcome},
        survey::Survey,
    },
    sandbox::{process, spawn::Nursery},
    task::{Case, KernelContext, Source, Task, suite::Suite},
    workshop::{Baseline, TimingPlan, Workshop},
};
use driver::Device;
use metrics::{Machine, MetricSet, Profile};
use rand::{SeedableRng, rngs::StdRng};
use runner::{Launcher, Runner};
use spare::Spare;
use std::{
    collections::HashMap,
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use verifier::{Judge, Side, broken};

/// How a workshop for CUDA is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that calls `native::child_main`: as a rule, this very one.
    pub program: PathBuf,
    /// The arguments that lead it there: as a rule, the hidden sub-command.
    pub program_args: Vec<OsString>,
    /// The folder of builds.
    pub cache: PathBuf,
    /// Which GPU, as CUDA counts.
    pub ordinal: u32,
    /// What inputs are drawn from; secret, from the system's randomness, where it is `None`.
    pub seed: Option<u64>,
    /// What the arguments of one side's calls may take together, in MiB.
    pub arena_mib: u64,
    /// Memory of the GPU that a kernel may take beyond its arguments, in MiB.
    pub memory_mib: u64,
    /// What every deadline has beside twenty times the reference's time.
    pub deadline_floor: Duration,
    /// What Nsight Compute is asked for; `None` asks it for nothing.
    pub metrics: Option<MetricSet>,
}

impl Options {
    /// The usual limits, for a program and the arguments that lead it to `native::child_main`.
    #[must_use]
    pub fn new(program: PathBuf, program_args: Vec<OsString>, cache: PathBuf) -> Self {
        Self {
            program,
            program_args,
            cache,
            ordinal: 0,
            seed: None,
            arena_mib: 1536,
            memory_mib: 4096,
            deadline_floor: Duration::from_secs(5),
            metrics: Some(MetricSet::cudaforge24()),
        }
    }
}

/// An NVIDIA GPU as a workshop for kernels in CUDA. Clones share what is open.
#[derive(Clone)]
pub struct Cuda(Arc<Inner>);

struct Inner {
    options: Options,
    nvcc: nvcc::Nvcc,
    launcher: Arc<Launcher>,
    machine: Machine,
    gpu: Option<Gpu>,
    bench: Mutex<Bench>,
    spare: Spare,
    profiler: Mutex<Option<Waiting>>,
    notes: Mutex<HashMap<CandidateId, Vec<String>>>,
}

/// What works on the GPU: one step at a time.
struct Bench {
    judge: Judge,
    /// The reference's process, by its shared object.
    reference: Option<(PathBuf, Runner)>,
    /// The candidate's, between two steps.
    candidate: Option<(PathBuf, Runner)>,
}

impl Cuda {
    /// A workshop on the GPU that the options name. Builds its own kernels where that was not done before, and measures
    /// bandwidths.
    ///
    /// # Errors
    /// Where there is no GPU, no driver or no nvcc, or the driver refuses memory.
    pub fn new(options: Options) -> Result<Self, Fault> {
        process::close_own_memory();
        let device = Device::open(options.ordinal).map_err(|why| Fault(format!("no GPU can be used: {why}")))?;
        let capability = device.capability().map_err(broken)?;
        let tool = Launch {
            program: options.program.clone(),
            arguments: options.program_args.clone(),
            memory_mib: 0,
            cores: Cores::here(),
        };
        let nvcc = nvcc::Nvcc::new(tool, options.cache.clone(), &capability)?;
        let image = outcome(nvcc.image(verifier::SOURCE))?.map_err(|failure| Fault(failure.to_string()))?;
        let [free, _] = device.memory().map_err(broken)?;
        let arena = (options.arena_mib << 20).min(free / 8).next_multiple_of(2 << 20);
        let judge = Judge::new(device, &image, arena as usize).map_err(broken)?;
        let gpu = Gpu::at(options.ordinal).ok();
        let machine = machine::machine(&judge, gpu.as_ref(), nvcc.version()).map_err(broken)?;
        let launcher = Arc::new(Launcher {
            program: options.program.clone(),
            program_args: options.program_args.clone(),
            nursery: Nursery::new(),
            ordinal: options.ordinal,
            memory_mib: options.memory_mib,
            open_files: false.into(),
        });
        let spare = Spare::new(Arc::clone(&launcher), judge.handle(Side::Candidate).map_err(broken)?);
        let bench = Mutex::new(Bench { judge, reference: None, candidate: None });
        let (profiler, notes) = (Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Inner { options, nvcc, launcher, machine, gpu, bench, spare, profiler, notes })))
    }

    /// What is to be known of a candidate's times beside the numbers: what disturbed them.
    #[must_use]
    pub fn labels(&self, candidate: &CandidateId) -> Vec<String> {
        lock(&self.0.notes).get(candidate).cloned().unwrap_or_default()
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

/// Builds a task's reference for a GPU of this compute capability, which need not be here.
///
/// # Errors
/// Where there is no nvcc, or it cannot be run.
pub fn build_reference(options: &Options, capability: &str, task: &Task) -> Outcome<PathBuf> {
    let tool = Launch {
        program: options.program.clone(),
        arguments: options.program_args.clone(),
        memory_mib: 0,
        cores: Cores::here(),
    };
    let nvcc = nvcc::Nvcc::new(tool, options.cache.clone(), capability)?;
    outcome(nvcc.build(context(task), task.reference()))
}

impl Inner {
    fn rng(&self) -> StdRng {
        self.options.seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)
    }

    fn bench(&self) -> MutexGuard<'_, Bench> {
        lock(&self.bench)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn context(task: &Task) -> &KernelContext {
    let Source::Context(context) = &task.source else {
        unreachable!("the program chooses the workshop by the task's language: problems go to another");
    };
    context
}

impl Workshop for Cuda {
    type Rebuilt = certify::Rebuilt;

    fn machine(&self) -> &Machine {
        &self.0.machine
    }

    fn fits(&self, task: &Task, cases: &[Case]) -> Vec<Result<u64, String>> {
        cases.iter().map(|case| self.0.fits(task, case)).collect()
    }

    async fn prepare(&self, task: &Task, suite: &Suite, plan: &TimingPlan) -> Result<Baseline, Fault> {
        let (task, suite, plan) = (task.clone(), suite.clone(), *plan);
        self.off_the_runtime(move |inner| inner.prepare(&task, &suite, &plan)).await?
    }

    async fn build(&self, task: &Task, candidate: &Candidate) -> Outcome<Built> {
        let (task, candidate) = (task.clone(), candidate.clone());
        self.off_the_runtime(move |inner| outcome(inner.build(&task, candidate))).await?
    }

    async fn check(&self, task: &Task, built: Built, suite: &Suite) -> Outcome<Verified> {
        let (task, suite) = (task.clone(), suite.clone());
        self.off_the_runtime(move |inner| outcome(inner.check(&task, built, &suite))).await?
    }

    async fn time(&self, task: &Task, verified: &Verified, suite: &Suite, plan: &TimingPlan) -> Outcome<Timed> {
        let (task, verified, suite, plan) = (task.clone(), verified.clone(), suite.clone(), *plan);
        self.off_the_runtime(move |inner| outcome(inner.time(&task, &verified, &suite, &plan))).await?
    }

    async fn profile(&self, task: &Task, verified: &Verified, suite: &Suite) -> Result<Profile, Fault> {
        let (task, verified, suite) = (task.clone(), verified.clone(), suite.clone());
        self.off_the_runtime(move |inner| inner.profile(&task, &verified, &suite)).await?
    }

    async fn survey(&self, task: &Task, verified: &Verified, suite: &Suite) -> Result<Result<Survey, String>, Fault> {
        let (task, verified, suite) = (task.clone(), verified.clone(), suite.clone());
        self.off_the_runtime(move |inner| inner.survey(&task, &verified, &suite)).await?
    }

    async fn rebuild(&self, task: &Task, candidate: &Candidate) -> Result<certify::Rebuilt, Fault> {
        let (task, candidate) = (task.clone(), candidate.clone());
        self.off_the_runtime(move |inner| certify::rebuild(inner, &task, &candidate)).await?
    }

    async fn certify(&self, task: &Task, rebuilt: certify::Rebuilt, plan: &TimingPlan) -> Result<Certificate, Fault> {
        let (task, plan) = (task.clone(), *plan);
        self.off_the_runtime(move |inner| certify::certify(inner, &task, rebuilt, &plan)).await?
    }
}
