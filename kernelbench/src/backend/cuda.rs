//! The CUDA backend: kernels in CUDA on an NVIDIA GPU, with no Python at all.
//!
//! A candidate is a host function that launches kernels. It is built from its text alone and runs in a confined process of
//! its own, as the reference does in another. Both compute in memory of ours; inputs are drawn there, and outputs are looked
//! at there, by kernels of ours.

pub(crate) mod child;
mod machine;
mod objects;
mod pair;
mod profile;
mod verifier;

pub use crate::build::nvcc::{find as find_nvcc, is_here as has_library, version as nvcc_version};

use crate::{
    build::nvcc::Nvcc,
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
    profile::{
        compute_sanitizer::{NOT_ENDED, Tool},
        cuobjdump,
        tool::Tools,
    },
    result::{
        candidate::Candidate,
        certificate::Check,
        error::{Attempt, outcome, trusted},
        failure::{Fault, Outcome},
        label::Label,
        survey::Survey,
    },
    sandbox::{
        kernel_process::KernelProcess,
        pool::{Quiet, Starting, WarmPool},
        start::{Sandbox, is_root},
    },
    stage::{self, Stage},
    task::{Case, Task, baseline::BaselineKernel, layout::Layout},
};
use metrics::{Arch, Machine, MetricSet, Profile};
use pair::{CudaPair, Starter, Trusted};
use profile::Profiler;
use rand::{SeedableRng, rngs::StdRng};
use std::{
    collections::{BTreeMap, HashMap},
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
    endurance: Duration::from_secs(5),
    fewest: 12,
    budget: Some(Duration::from_millis(400)),
    disagreement: (60_000.0, 0.1),
    floor_margin: 1.15,
    glance: (1, Duration::from_millis(15)),
    long_ns: 10_000_000.0,
    ranked_in_one: 64,
    between_processes: 0.0005,
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

/// A kernel's shared object, and its process once it is needed.
pub struct Kernel {
    object: PathBuf,
    process: Option<KernelProcess>,
    /// Bytes of the GPU's memory that were free when its process had loaded nothing yet.
    free_at_first: u64,
    /// Of a baseline: the variables of its process.
    of_baseline: Option<BTreeMap<String, String>>,
    _folder: Option<TempDir>,
}

/// A task's reference, and the baselines that may stand in its place.
pub struct Reference {
    /// The reference, then what speedups are over, and the oracle, each with its name.
    kernels: Vec<(String, Kernel)>,
    /// What a call takes, in nanoseconds, by what is called and case.
    call_ns: HashMap<(PathBuf, String), f64>,
}

impl Reference {
    /// The place of a baseline among them, or else of the reference.
    fn place_of(&self, kernel: Option<&BaselineKernel>) -> usize {
        let place = |kernel: &BaselineKernel| self.kernels.iter().skip(1).position(|(name, _)| *name == kernel.name);
        kernel.and_then(place).map_or(0, |at| at + 1)
    }
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
    let built = objects::of_reference(&nvcc(options, arch)?, task, Toolchain::Quick);
    outcome(built.map(|kernel| kernel.object))
}

/// Builds a candidate for a GPU of this architecture, which need not be here: a library that the task forbids is told.
///
/// # Errors
/// Where there is no nvcc, or it cannot be run.
pub fn build_candidate(options: &Options, arch: Arch, task: &Task, candidate: &Candidate) -> Outcome<PathBuf> {
    let built = objects::of_candidate(&nvcc(options, arch)?, task, candidate, Toolchain::Quick);
    outcome(built.map(|kernel| kernel.object))
}

/// Builds a baseline of a task for a GPU of this architecture, which need not be here.
///
/// # Errors
/// Where there is no nvcc, or it cannot be run; where the library is not here that the baseline calls, or it does not build.
pub fn build_baseline(options: &Options, arch: Arch, task: &Task, kernel: &BaselineKernel) -> Outcome<PathBuf> {
    let built = objects::of_baseline(&nvcc(options, arch)?, task, kernel, Toolchain::Quick);
    outcome(built.map(|kernel| kernel.object))
}

fn nvcc(options: &Options, arch: Arch) -> Result<Nvcc, Fault> {
    let sandbox = Arc::new(Sandbox::new(options.program.clone(), options.program_args.clone()));
    Nvcc::new(sandbox, options.cache.clone(), arch, options.build_deadline)
}

/// The machine code of an object that was built, as `cuobjdump` prints it; in words why there is none to be had.
///
/// # Errors
/// Where no process can be started here.
pub fn disassembly(options: &Options, object: &Path) -> Result<Result<String, String>, Fault> {
    cuobjdump::printed(&reading(options), object, "-sass")
}

/// What `cuobjdump` is started with, wherever it is.
fn reading(options: &Options) -> Tools {
    let sandbox = Arc::new(Sandbox::new(options.program.clone(), options.program_args.clone()));
    let mut tools = tools(sandbox, options.ordinal);
    let path = std::env::var_os("PATH").unwrap_or_default();
    tools.readable.extend(std::env::split_paths(&path).filter(|folder| folder.join("cuobjdump").is_file()));
    tools
}

/// What tools are started with around what was built.
fn tools(sandbox: Arc<Sandbox>, ordinal: u32) -> Tools {
    let environment = Arc::new(move |folder: &Path| pair::environment(folder, ordinal));
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
        let machine = machine::machine(&verifier, arch, gpu.as_ref(), &nvcc).map_err(broken)?;
        let (ordinal, memory_mib) = (options.ordinal, options.memory_mib);
        let libraries = nvcc.library_folders();
        let starter = Arc::new(Starter { sandbox: Arc::clone(&sandbox), ordinal, memory_mib, libraries });
        let starting = Arc::new(Starting::default());
        let handle = verifier.handle(Side::Candidate).map_err(broken)?;
        let pool = {
            let starter = Arc::clone(&starter);
            WarmPool::new(Arc::clone(&starting), 1, move |starting| Ok(starter.start(handle, None, starting)?))
        };
        let tools = tools(sandbox, ordinal);
        let profiler = Profiler::new(tools, ordinal, options.metrics.clone());
        let arena_bytes = verifier.arena_bytes();
        let trusted = Mutex::new(Trusted { verifier, clock });
        Ok(Self { options, nvcc, machine, gpu, trusted, arena_bytes, starter, pool, starting, profiler })
    }

    /// The content of one slot of a case, newly drawn.
    fn slot(&self, layout: &Layout, rng: &mut StdRng) -> Result<Vec<u8>, Fault> {
        lock(&self.trusted).verifier.drawn(layout, rng).map_err(broken)
    }
}

impl CudaDriver {
    /// One call on each of these shapes under a tool of compute-sanitizer's, and the row that says so.
    fn sanitize_by(
        &self,
        tool: Tool,
        task: &Task,
        (cases, what): (&[&Case], String),
        object: &Path,
        rng: &mut StdRng,
    ) -> Attempt<Check> {
        let mut outcome = Ok(what);
        for case in cases {
            let layout = layout(task, case)?;
            let slot = self.slot(&layout, rng)?;
            if let Err(why) = self.profiler.sanitize(tool, &layout, object, &slot)? {
                outcome = Err(why);
                break;
            }
        }
        Ok(Check::Sanitizer { tool: format!("compute-sanitizer's {}", tool.name()), outcome })
    }

    /// Has a tool look at one call on the smallest shape for sanitizers; where the candidate does not come to its end there, for
    /// it may refuse so small a shape, on the smallest of the others.
    fn sanitize_small(&self, tool: Tool, task: &Task, object: &Path, rng: &mut StdRng) -> Attempt<Check> {
        let bytes = |case: &&Case| self.fits(task, case).unwrap_or(u64::MAX);
        let others = task.cases.iter().chain(&task.final_cases).min_by_key(bytes);
        let named = task.sanitizer_cases.iter().min_by_key(bytes);
        let tried: Vec<&Case> = named.into_iter().chain(others).collect();
        let mut row = None;
        for case in tried {
            let what = format!("one call on case {}, each array in memory of its own", case.name);
            let found = self.sanitize_by(tool, task, (&[case], what), object, rng)?;
            let ended = !matches!(&found, Check::Sanitizer { outcome: Err(why), .. } if why.starts_with(NOT_ENDED));
            row = Some(found);
            if ended {
                break;
            }
        }
        row.ok_or_else(|| Fault::Machine(format!("{} has no case", task.name)).into())
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

    fn open(&self, task: &Task, toolchain: Toolchain, _: &mut dyn FnMut(Option<u64>)) -> Attempt<Reference> {
        let reference = trusted(objects::of_reference(&self.nvcc, task, toolchain))?;
        let mut session = Reference { kernels: vec![(String::new(), reference)], call_ns: HashMap::new() };
        for kernel in task.baselines().against().into_iter().chain(task.baselines().oracle()) {
            if session.place_of(Some(kernel)) == 0 {
                session.kernels.push((kernel.name.clone(), self.load_baseline(task, kernel, toolchain)?));
            }
        }
        Ok(session)
    }

    fn load(&self, task: &Task, candidate: &Candidate, toolchain: Toolchain) -> Attempt<Kernel> {
        objects::of_candidate(&self.nvcc, task, candidate, toolchain)
    }

    fn load_baseline(&self, task: &Task, kernel: &BaselineKernel, toolchain: Toolchain) -> Attempt<Kernel> {
        objects::of_baseline(&self.nvcc, task, kernel, toolchain)
    }

    fn artifact(&self, loaded: &Kernel) -> PathBuf {
        loaded.object.clone()
    }

    fn pair<'a>(
        &'a self,
        task: &'a Task,
        session: &'a mut Reference,
        loaded: &'a mut Kernel,
        (standard, processes): (Standard, Processes),
    ) -> Attempt<CudaPair<'a>> {
        let working = lock(&self.trusted);
        let standing = pair::standing(task, session, standard);
        if processes == Processes::New {
            session.kernels.iter_mut().for_each(|(_, kernel)| kernel.process = None);
            loaded.process = None;
        }
        for at in standing {
            let kernel = &mut session.kernels[at].1;
            if kernel.process.is_none() {
                let arena = working.verifier.handle(Side::Reference).map_err(broken)?;
                let mut process = self.starter.start(arena, kernel.of_baseline.as_ref(), None)?;
                trusted(process.load_copy(&kernel.object))?;
                kernel.process = Some(process);
            }
        }
        if loaded.process.is_none() {
            let alive = |process: &mut KernelProcess| process.peer.is_alive();
            let mut process = match (&loaded.of_baseline, processes) {
                (Some(_), _) => {
                    let arena = working.verifier.handle(Side::Candidate).map_err(broken)?;
                    self.starter.start(arena, loaded.of_baseline.as_ref(), None)?
                }
                (None, Processes::AtHand) => self.pool.take(alive)?,
                (None, Processes::New) => self.pool.take_now(alive)?,
            };
            loaded.free_at_first = working.verifier.device.memory().map_err(broken)?[0];
            process.load_copy(&loaded.object)?;
            loaded.process = Some(process);
        }
        CudaPair::new(self, task, working, (session, standing, loaded))
    }

    /// A candidate that failed is no use any more, whatever it was asked.
    fn rest(&self, loaded: &mut Kernel) -> Attempt<bool> {
        Ok(loaded.process.as_mut().is_none_or(|process| process.peer.is_alive()))
    }

    /// One that holds much of the GPU's memory by now is not kept.
    fn go_on_with(&self, before: Kernel, loaded: &mut Kernel) -> bool {
        let Some(mut process) = before.process.filter(|_| loaded.process.is_none()) else { return false };
        let free = lock(&self.trusted).verifier.device.memory().map_or(0, |[free, _]| free);
        let holds_little = free + (self.options.memory_mib << 20) >= before.free_at_first;
        if holds_little && process.peer.is_alive() && process.load_copy(&loaded.object).is_ok() {
            (loaded.process, loaded.free_at_first) = (Some(process), before.free_at_first);
        }
        loaded.process.is_some()
    }

    fn get_ready(&self) {
        self.pool.refill();
        self.profiler.get_ready();
    }

    fn code_labels(&self, candidate: &Candidate, loaded: &Kernel) -> Vec<Label> {
        let may = cuobjdump::may_copy_in_bulk(&candidate.source());
        if may { cuobjdump::races(&reading(&self.options), &loaded.object) } else { vec![] }
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
        _: &dyn Fn(u64),
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

    /// One call on each of the shapes that are new to the candidate; and by the tools that are slow, or by all where no shape is
    /// new, on a small one. Of several tools that find something the first one's finding is the failure.
    fn sanitize(
        &self,
        task: &Task,
        Both { loaded, lease, .. }: Both<'_, '_, Self>,
        _: &Candidate,
        rng: &mut StdRng,
    ) -> Attempt<Vec<Check>> {
        let (new, object): (Vec<&Case>, &Path) = (task.final_cases.iter().collect(), &loaded.object);
        let look = &|tool: Tool, mut rng: StdRng| {
            if tool != Tool::Memcheck || new.is_empty() {
                return self.sanitize_small(tool, task, object, &mut rng);
            }
            let all = format!("one call on each of {} shapes, each array in memory of its own", new.len());
            self.sanitize_by(tool, task, (&new, all), object, &mut rng)
        };
        lease.give_way();
        // Most of what a tool takes is its start, on the CPU: they look side by side.
        std::thread::scope(|scope| {
            let looks = Tool::ALL.map(|tool| (StdRng::from_rng(rng), tool));
            let looks = looks.map(|(rng, tool)| scope.spawn(move || look(tool, rng)));
            let ended = looks.map(|look| look.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            let nothing = |found: &Attempt<Check>| matches!(found, Ok(Check::Sanitizer { outcome: Err(_), .. }));
            // One that came to nothing beside the others, for memory or for time, looks again alone.
            let again = |(tool, found)| if nothing(&found) { look(tool, StdRng::from_rng(rng)) } else { found };
            Tool::ALL.into_iter().zip(ended).map(again).collect()
        })
    }

    fn not_excluded(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            (
                "races in global memory",
                "racecheck looks at shared memory, in one call on a small shape; a race that shows is a wrong output",
            ),
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
