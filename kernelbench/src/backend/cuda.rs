//! The CUDA backend: kernels in CUDA on an NVIDIA GPU, with no Python at all.
//!
//! A candidate is a host function that launches kernels. It is built from its text alone and runs in a confined process of
//! its own, as the reference does in another. Both compute in memory of ours; inputs are drawn there, and outputs are looked
//! at there, by kernels of ours.

pub(crate) mod child;
mod machine;
mod pair;
mod profile;
mod verifier;

pub use crate::build::nvcc::{find as find_nvcc, version as nvcc_version};

use crate::{
    build::unit,
    build::{cc, nvcc::Nvcc},
    engine::{
        Engine,
        backend::{Backend, Both, Processes, Side, Standard, Toolchain},
        contents::{context, layout},
        notes::LastTiming,
        sessions::lock,
    },
    machine::{driver::CudaDevice, gpu::Gpu},
    measure::{
        gpu_clock::{GpuClock, broken},
        numbers::{Clock, Numbers},
    },
    profile::{cuobjdump, tool::Tools},
    result::{
        candidate::Candidate,
        certificate::Check,
        error::{Attempt, outcome, trusted},
        failure::{Fault, Outcome},
        survey::Survey,
    },
    sandbox::{
        kernel_process::KernelProcess,
        pool::{Quiet, Starting, WarmPool},
        start::{Sandbox, is_root},
    },
    stage::{self, Stage},
    task::{Case, Task, layout::Layout},
};
use metrics::{Arch, Machine, MetricSet, Profile};
use pair::{CudaPair, Starter, Trusted};
use profile::Profiler;
use rand::rngs::StdRng;
use std::{
    collections::HashMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    sync::Mutex,
    time::Duration,
};
use tempfile::TempDir;
use verifier::Verifier;

/// A request of the reference's calls lasts 1.2 ms, which with the stamp after it is as long as our clock needs; in a
/// certificate four times that.
const NUMBERS: Numbers = Numbers {
    draws: 2,
    signed: false,
    clock: Clock::Inside,
    request_ns: 1_200_000.0,
    certificate_request_ns: 4_800_000.0,
    longest_request_ns: 20_000_000.0,
    most_calls: 1024,
    calibration: (32, 3),
    empty_requests: 0,
    processes: (1, 3),
    spread: false,
    fewest: 12,
    budget: Some(Duration::from_millis(400)),
    disagreement: (60_000.0, 0.1),
    floor_margin: 1.15,
    open_tasks: 4,
    kept_candidates: 4,
};

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
    /// How long nvcc may take each time; four minutes where it is `None`.
    pub build_deadline: Option<Duration>,
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
            build_deadline: None,
            metrics: Some(MetricSet::cudaforge24()),
        }
    }
}

/// An NVIDIA GPU as a workshop for kernels in CUDA.
pub type Cuda = Engine<CudaDriver>;

/// An NVIDIA GPU, by its driver.
pub struct CudaDriver {
    options: Options,
    nvcc: Nvcc,
    machine: Machine,
    gpu: Option<Gpu>,
    trusted: Mutex<Trusted>,
    arena_bytes: usize,
    starter: Arc<Starter>,
    /// Processes for candidates that have a context on the GPU, and nothing loaded.
    pool: WarmPool<KernelProcess>,
    starting: Arc<Starting>,
    profiler: Profiler,
}

/// A candidate's shared object, and its process once it is needed.
pub struct Kernel {
    object: PathBuf,
    process: Option<KernelProcess>,
    _folder: Option<TempDir>,
}

/// A task's reference.
pub struct Reference {
    object: PathBuf,
    process: Option<KernelProcess>,
    /// What a call takes, in nanoseconds, by case.
    call_ns: HashMap<String, f64>,
    _folder: Option<TempDir>,
}

impl Cuda {
    /// A workshop on the GPU that the options name. Builds its own kernels where that was not done before, and measures
    /// bandwidths.
    ///
    /// # Errors
    /// Where there is no GPU, no driver or no nvcc, or the driver refuses memory.
    pub fn new(options: Options) -> Result<Self, Fault> {
        CudaDriver::new(options).map(Self::on)
    }
}

/// Builds a task's reference for a GPU of this architecture, which need not be here.
///
/// # Errors
/// Where there is no nvcc, or it cannot be run.
pub fn build_reference(options: &Options, arch: Arch, task: &Task) -> Outcome<PathBuf> {
    let sandbox = Arc::new(Sandbox::new(options.program.clone(), options.program_args.clone()));
    let nvcc = Nvcc::new(sandbox, options.cache.clone(), arch, options.build_deadline)?;
    outcome(nvcc.build(context(task)?, task.reference()))
}

/// The machine code of an object that was built, as `cuobjdump` prints it; in words why there is none to be had.
///
/// # Errors
/// Where no process can be started here.
pub fn disassembly(options: &Options, object: &Path) -> Result<Result<String, String>, Fault> {
    let sandbox = Arc::new(Sandbox::new(options.program.clone(), options.program_args.clone()));
    let mut tools = tools(sandbox);
    let path = std::env::var_os("PATH").unwrap_or_default();
    tools.readable.extend(std::env::split_paths(&path).filter(|folder| folder.join("cuobjdump").is_file()));
    cuobjdump::printed(&tools, object, "-sass")
}

/// What tools are started with around what was built.
fn tools(sandbox: Arc<Sandbox>) -> Tools {
    let environment = Arc::new(pair::environment);
    Tools { sandbox, readable: pair::readable(), environment, own_users: is_root(), ncu: None }
}

impl CudaDriver {
    fn new(options: Options) -> Result<Self, Fault> {
        let device = CudaDevice::open(options.ordinal);
        let device = Arc::new(device.map_err(|why| Fault::Absent(format!("no GPU can be used: {why}")))?);
        let arch = machine::arch(&device)?;
        let sandbox = Arc::new(Sandbox::new(options.program.clone(), options.program_args.clone()));
        let nvcc = Nvcc::new(Arc::clone(&sandbox), options.cache.clone(), arch.clone(), options.build_deadline)?;
        let image = outcome(nvcc.image(&verifier::SOURCES))?.map_err(|failure| Fault::Machine(failure.to_string()))?;
        let [free, _] = device.memory().map_err(broken)?;
        let arena = (options.arena_mib << 20).min(free / 8).next_multiple_of(2 << 20);
        let clock = GpuClock::new(Arc::clone(&device)).map_err(broken)?;
        let verifier = Verifier::new(device, &image, arena as usize).map_err(broken)?;
        let gpu = Gpu::at(options.ordinal).ok();
        let machine = machine::machine(&verifier, arch, gpu.as_ref(), nvcc.version()).map_err(broken)?;
        let (ordinal, memory_mib) = (options.ordinal, options.memory_mib);
        let starter = Arc::new(Starter { sandbox: Arc::clone(&sandbox), ordinal, memory_mib });
        let starting = Arc::new(Starting::default());
        let handle = verifier.handle(Side::Candidate).map_err(broken)?;
        let pool = {
            let starter = Arc::clone(&starter);
            WarmPool::new(Arc::clone(&starting), 1, move |starting| Ok(starter.start(handle, starting)?))
        };
        let tools = tools(sandbox);
        let profiler = Profiler::new(tools, ordinal, options.metrics.clone());
        let arena_bytes = verifier.arena_bytes();
        let trusted = Mutex::new(Trusted { verifier, clock });
        Ok(Self { options, nvcc, machine, gpu, trusted, arena_bytes, starter, pool, starting, profiler })
    }

    fn built(&self, task: &Task, source: &str, toolchain: Toolchain) -> Attempt<(PathBuf, Option<TempDir>)> {
        let context = context(task)?;
        match toolchain {
            Toolchain::Quick => Ok((self.nvcc.build(context, source)?, None)),
            Toolchain::Stock => {
                let folder = cc::private_folder(&std::env::temp_dir())?;
                Ok((self.nvcc.build_anew(context, source, folder.path())?, Some(folder)))
            }
        }
    }

    /// The content of one slot of a case, newly drawn.
    fn slot(&self, layout: &Layout, rng: &mut StdRng) -> Result<Vec<u8>, Fault> {
        lock(&self.trusted).verifier.drawn(layout, rng).map_err(broken)
    }
}

impl Backend for CudaDriver {
    type Session = Reference;
    type Loaded = Kernel;
    type Tool = ();
    type Pair<'a> = CudaPair<'a>;

    fn numbers(&self) -> &Numbers {
        &NUMBERS
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn slack(&self) -> Duration {
        self.options.deadline_floor
    }

    fn seed(&self) -> Option<u64> {
        self.options.seed
    }

    fn nvml(&self) -> Option<&Gpu> {
        self.gpu.as_ref()
    }

    fn fits(&self, task: &Task, case: &Case) -> Result<u64, String> {
        let layout = Layout::of(context(task).map_err(|fault| fault.to_string())?, case)?;
        pair::slots(self.arena_bytes, &layout)?;
        match layout.array_bytes() {
            0 => Err(format!("case `{}` has no data", case.name)),
            bytes => Ok(bytes),
        }
    }

    fn describe_build(&self, task: &Task) -> Result<String, Fault> {
        self.nvcc.command_line(context(task)?)
    }

    fn open(&self, task: &Task, toolchain: Toolchain, _: &mut dyn FnMut()) -> Attempt<Reference> {
        let (object, folder) = trusted(self.built(task, task.reference(), toolchain))?;
        Ok(Reference { object, process: None, call_ns: HashMap::new(), _folder: folder })
    }

    fn load(&self, task: &Task, candidate: &Candidate, toolchain: Toolchain) -> Attempt<Kernel> {
        let (object, folder) = self.built(task, &unit::text(context(task)?, candidate)?, toolchain)?;
        Ok(Kernel { object, process: None, _folder: folder })
    }

    fn artifact(&self, loaded: &Kernel) -> PathBuf {
        loaded.object.clone()
    }

    fn pair<'a>(
        &'a self,
        task: &'a Task,
        session: &'a mut Reference,
        loaded: &'a mut Kernel,
        (_, processes): (Standard, Processes),
    ) -> Attempt<CudaPair<'a>> {
        let working = lock(&self.trusted);
        if processes == Processes::New {
            (session.process, loaded.process) = (None, None);
        }
        if session.process.is_none() {
            let arena = working.verifier.handle(Side::Reference).map_err(broken)?;
            let mut process = self.starter.start(arena, None)?;
            trusted(process.load_copy(&session.object))?;
            session.process = Some(process);
        }
        if loaded.process.is_none() {
            let alive = |process: &mut KernelProcess| process.peer.is_alive();
            let mut process = match processes {
                Processes::AtHand => self.pool.take(alive)?,
                Processes::New => self.pool.take_now(alive)?,
            };
            process.load_copy(&loaded.object)?;
            loaded.process = Some(process);
        }
        CudaPair::new(self, task, working, (session, loaded))
    }

    /// A candidate that failed is no use any more, whatever it was asked.
    fn rest(&self, loaded: &mut Kernel) -> Attempt<bool> {
        Ok(loaded.process.as_mut().is_none_or(|process| process.peer.is_alive()))
    }

    fn get_ready(&self) {
        self.pool.refill();
        self.profiler.get_ready();
    }

    fn quiet(&self) -> Option<Quiet> {
        self.profiler.settle();
        Some(self.starting.quiet())
    }

    fn tool(&self, _: &Kernel) {}

    fn profile(
        &self,
        task: &Task,
        (Both { loaded, .. }, ()): (Both<'_, '_, Self>, ()),
        case: &Case,
        _: Option<&LastTiming>,
        rng: &mut StdRng,
    ) -> Attempt<Profile> {
        let _stage = stage::begin(Stage::Replay);
        let layout = layout(task, case)?;
        let slot = self.slot(&layout, rng)?;
        Ok(self.profiler.profile(&layout, &loaded.object, &slot)?)
    }

    fn survey(
        &self,
        task: &Task,
        _: &mut Reference,
        loaded: &mut Kernel,
        case: &Case,
        rng: &mut StdRng,
    ) -> Attempt<Result<Survey, String>> {
        let layout = layout(task, case)?;
        let slot = self.slot(&layout, rng)?;
        Ok(self.profiler.survey(&layout, &loaded.object, &slot)?)
    }

    /// One call on each of the shapes that are new to the candidate, or where there are none, on the smallest.
    fn sanitize(
        &self,
        task: &Task,
        _: &mut Reference,
        loaded: &mut Kernel,
        _: &Candidate,
        rng: &mut StdRng,
    ) -> Attempt<Vec<Check>> {
        let bytes = |case: &&Case| self.fits(task, case).unwrap_or(u64::MAX);
        let smallest = || task.cases.iter().min_by_key(bytes).into_iter().collect();
        let cases: Vec<&Case> =
            if task.final_cases.is_empty() { smallest() } else { task.final_cases.iter().collect() };
        let mut outcome = Ok(format!("one call on each of {} shapes, each array in memory of its own", cases.len()));
        for case in &cases {
            let layout = layout(task, case)?;
            let slot = self.slot(&layout, rng)?;
            if let Err(why) = self.profiler.memcheck(&layout, &loaded.object, &slot)? {
                outcome = Err(why);
                break;
            }
        }
        Ok(vec![Check::Sanitizer { tool: "compute-sanitizer's memcheck".to_owned(), outcome }])
    }

    fn not_excluded(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("races on the GPU", "racecheck is not run; a race that shows is a wrong output"),
            ("work of several calls done in one", "a timed request holds many calls, each on arguments of its own"),
            (
                "work on the CPU, and copies from and to it, before the clock starts",
                "a process is resumed 0.6 ms before that, while the GPU is kept busy, for its launches; here a request lasts \
                 4.8 ms or more",
            ),
            (
                "a candidate that tells tests from use",
                "it was seen on random contents of the task's shapes, and on nothing else",
            ),
            ("another machine's times", "processes on this GPU were measured, with the data out of the cache"),
        ]
    }
}
