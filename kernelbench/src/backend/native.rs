//! The CPU backend: kernels in C and C++, each in a confined process that shares its arguments' memory with us; and kernels in
//! HLSL by way of a Vulkan driver that computes on this processor.

pub(crate) mod child;
mod contents;
mod pair;
mod placement;
mod segment;
mod standalone;
mod vulkan;

use crate::{
    build::cc::{self, Compiler},
    build::{script, unit},
    engine::{
        Engine,
        backend::{Backend, Both, Processes, Standard, Toolchain},
        contents::{context, layout},
        notes::LastTiming,
    },
    machine::cores::Cores,
    measure::numbers::{Clock, Numbers},
    profile::{
        cpu::{self, Run, Subject, Target},
        sanitizer::{self, Unsanitized},
    },
    result::{
        candidate::Candidate,
        certificate::Check,
        error::{Attempt, fault, outcome, trusted},
        failure::{Failure, Fault},
    },
    sandbox::{layer::Layer, start::Sandbox},
    stage::{self, Stage},
    task::{Case, KernelContext, Task, baseline::BaselineKernel, layout::Layout, library, space::Bindings},
};
use metrics::{Machine, Profile, Statistic};
use pair::CpuPair;
use rand::rngs::StdRng;
use standalone::Standalone;
use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    fs,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;

pub use crate::sandbox::entry::child_main;

/// How long a profile may take.
const PROFILING: Duration = Duration::from_mins(1);

/// A request of the reference's calls lasts half a millisecond, so that our clock, which alone counts here, is precise; ten
/// pairs of processes, for where memory lies is settled when a process starts.
pub(crate) const NUMBERS: Numbers = Numbers {
    draws: 2,
    signed: false,
    clock: Clock::Outside,
    request_ns: 500_000.0,
    certificate_request_ns: 500_000.0,
    longest_request_ns: 4_000_000.0,
    most_calls: 512,
    calibration: (1, 15),
    empty_requests: 3,
    processes: (10, 10),
    spread: true,
    endurance: Duration::from_millis(500),
    fewest: 1,
    budget: None,
    disagreement: (20_000.0, 0.1),
    floor_margin: 1.0,
    glance: (3, Duration::from_millis(80)),
    long_ns: f64::INFINITY,
    ranked_in_one: 1,
    between_processes: 0.0,
    open_tasks: 64,
    kept_candidates: 256,
};

/// How a native workshop is set up.
#[derive(Clone, Debug)]
pub struct NativeOptions {
    /// The program that calls [`child_main`]: as a rule, this very one.
    pub program: PathBuf,
    /// The arguments that lead it there: as a rule, the hidden sub-command.
    pub program_args: Vec<OsString>,
    /// The folder of builds.
    pub cache: PathBuf,
    /// What inputs are drawn from; secret, from the system's randomness, where it is `None`.
    pub seed: Option<u64>,
    /// The machine's specification.
    pub machine: Machine,
    /// Memory that a kernel may take beyond its arguments, in MiB.
    pub memory_mib: u64,
    /// What one case's arrays may take, in MiB.
    pub case_mib: u64,
    /// What every deadline has beside twenty times the reference's time.
    pub deadline_floor: Duration,
    /// How long one compilation may take; a minute where it is `None`.
    pub build_deadline: Option<Duration>,
    /// Whether a candidate is certified that does not build with sanitizers, on a machine that has them.
    pub unsanitized: bool,
    /// Whether kernels are in HLSL, and run by a Vulkan driver on this processor.
    pub vulkan: bool,
}

impl NativeOptions {
    /// The usual limits, for a program and the arguments that lead it to [`child_main`].
    #[must_use]
    pub fn new(program: PathBuf, program_args: Vec<OsString>, cache: PathBuf, machine: Machine) -> Self {
        let deadline_floor = Duration::from_secs(2);
        let (seed, memory_mib, case_mib, build_deadline) = (None, 512, 256, None);
        let (unsanitized, vulkan) = (false, false);
        Self {
            program,
            program_args,
            cache,
            seed,
            machine,
            memory_mib,
            case_mib,
            deadline_floor,
            build_deadline,
            unsanitized,
            vulkan,
        }
    }
}

/// This machine's CPU as a workshop.
pub type Native = Engine<Cpu>;

/// This machine's CPU. One core of it runs kernels.
pub struct Cpu {
    options: NativeOptions,
    sandbox: Arc<Sandbox>,
    compiler: Compiler,
    cores: Cores,
}

/// A shared object, and the folder that it goes away with, where it has one.
pub struct Object {
    path: PathBuf,
    source: String,
    /// Of a baseline: the variables of its process.
    of_baseline: Option<BTreeMap<String, String>>,
    _folder: Option<TempDir>,
}

/// A task's reference, and the baselines that may stand in its place.
pub struct Reference {
    object: Object,
    /// By name: what speedups are over, and the oracle.
    baselines: BTreeMap<String, Object>,
    /// What a call takes, in nanoseconds, by what is called and case.
    call_ns: HashMap<(PathBuf, String), f64>,
}

impl Native {
    /// A workshop.
    #[must_use]
    pub fn new(options: NativeOptions) -> Self {
        let sandbox = Arc::new(Sandbox::new(options.program.clone(), options.program_args.clone()));
        let machine = format!("{} {}", options.machine.arch, options.machine.name);
        let compiler = Compiler::new(Arc::clone(&sandbox), options.cache.clone(), machine, options.build_deadline);
        Self::on(Cpu { options, sandbox, compiler, cores: Cores::here() })
    }

    /// What confines a kernel on this machine, layer by layer, as a child process found it that has just tried.
    ///
    /// # Errors
    /// Where the child process cannot be started.
    pub fn confinement(&self) -> Result<Vec<Layer>, Fault> {
        pair::probe(self.backend()).map(|(layers, _)| layers)
    }

    /// A workshop for kernels in HLSL, by way of a Vulkan driver on this processor, which the machine's name then names.
    ///
    /// # Errors
    /// [`Fault::Absent`] where there is no such driver.
    pub fn with_vulkan(mut options: NativeOptions) -> Result<Self, Fault> {
        options.vulkan = true;
        let probed = Self::new(options.clone());
        let (_, driver) = pair::probe(probed.backend()).map_err(|fault| {
            // The child says it last; what stands before is how it came here.
            let text = fault.to_string();
            let missing = text.find(vulkan::MISSING).map_or(&text[..], |at| &text[at..]);
            Fault::Absent(missing.to_owned())
        })?;
        options.machine.name = format!("{driver} on {}", options.machine.name);
        Ok(Self::new(options))
    }
}

impl Cpu {
    fn built(&self, task: &Task, source: &str, link: &[String], toolchain: Toolchain) -> Attempt<Object> {
        let context = context(task)?;
        let (path, folder) = match toolchain {
            Toolchain::Quick => (self.compiler.build_linked(context, source, link)?, None),
            Toolchain::Stock => {
                let folder = cc::private_folder(&std::env::temp_dir())?;
                (self.compiler.build_anew(context, source, link, folder.path())?, Some(folder))
            }
        };
        Ok(Object { path, source: source.to_owned(), of_baseline: None, _folder: folder })
    }

    /// The build that a profiler runs.
    fn object_for(&self, target: Target, context: &KernelContext, object: &Object) -> Result<PathBuf, String> {
        if self.options.vulkan {
            return Err("a shader runs inside Vulkan's driver, where a processor's profiler sees no kernel".to_owned());
        }
        if target == Target::AsTimed {
            return Ok(object.path.clone());
        }
        let mut context = context.clone();
        for flag in context.flags.iter_mut().filter(|flag| *flag == "-march=native") {
            "-march=x86-64-v3".clone_into(flag);
        }
        context.flags.push("-Wno-error".to_owned());
        match outcome(self.compiler.build(&context, &object.source)) {
            Ok(Ok(object)) => Ok(object),
            Ok(Err(_)) => Err("the candidate does not build for x86-64-v3".to_owned()),
            Err(fault) => Err(fault.to_string()),
        }
    }
}

impl Backend for Cpu {
    type Session = Reference;
    type Loaded = Object;
    type Tool = ();
    type Pair<'a> = CpuPair<'a>;

    fn numbers(&self) -> &Numbers {
        &NUMBERS
    }

    fn machine(&self) -> &Machine {
        &self.options.machine
    }

    fn slack(&self) -> Duration {
        self.options.deadline_floor
    }

    fn seed(&self) -> Option<u64> {
        self.options.seed
    }

    fn fits(&self, task: &Task, case: &Case) -> Result<u64, String> {
        let bytes = Layout::of(context(task).map_err(|fault| fault.to_string())?, case)?.array_bytes();
        let limit = self.options.case_mib << 20;
        match bytes {
            0 => Err(format!("case `{}` has no data", case.name)),
            _ if bytes > limit => {
                Err(format!("case `{}` takes {} MiB, the limit is {} MiB", case.name, bytes >> 20, limit >> 20))
            }
            _ => Ok(bytes),
        }
    }

    fn describe_build(&self, task: &Task) -> Result<String, Fault> {
        self.compiler.command_line(context(task)?)
    }

    fn open(&self, task: &Task, toolchain: Toolchain, _: &mut dyn FnMut(Option<u64>)) -> Attempt<Reference> {
        let object = trusted(self.built(task, task.reference(), &[], toolchain))?;
        let all = task.baselines();
        let mut baselines = BTreeMap::new();
        for kernel in all.against().into_iter().chain(all.oracle()) {
            if !baselines.contains_key(&kernel.name) {
                baselines.insert(kernel.name.clone(), self.load_baseline(task, kernel, toolchain)?);
            }
        }
        Ok(Reference { object, baselines, call_ns: HashMap::new() })
    }

    fn load(&self, task: &Task, candidate: &Candidate, toolchain: Toolchain) -> Attempt<Object> {
        let (text, forbidden) = (unit::text(context(task)?, candidate)?, task.baselines().forbidden());
        library::refuse(&forbidden, |library| library.in_text(&text))?;
        let object = self.built(task, &text, &[], toolchain).or_else(|error| {
            library::refuse(&forbidden, |library| library.in_log(error.build_log()?))?;
            Err(error)
        })?;
        if !forbidden.is_empty() {
            let bytes = fs::read(&object.path).map_err(fault("cannot read a build"))?;
            library::refuse(&forbidden, |library| library.in_object(&bytes))?;
        }
        Ok(object)
    }

    fn load_baseline(&self, task: &Task, kernel: &BaselineKernel, toolchain: Toolchain) -> Attempt<Object> {
        if !kernel.is_harmless() {
            let why = "it links or sets what no baseline may: read its task from a folder anew";
            return Err(kernel.unusable(why).into());
        }
        match outcome(self.built(task, &kernel.source, &kernel.link, toolchain))? {
            Ok(object) => Ok(Object { of_baseline: Some(kernel.environment.clone()), ..object }),
            Err(Failure::Build { log } | Failure::Interface { log }) => Err(kernel.unbuilt(&log).into()),
            Err(failure) => Err(kernel.unusable(failure).into()),
        }
    }

    fn print(&self, text: &str, bindings: &Bindings) -> Attempt<String> {
        script::print(&self.sandbox, text, bindings)
    }

    fn artifact(&self, loaded: &Object) -> PathBuf {
        loaded.path.clone()
    }

    /// Both sides get processes of their own for each case, so those of a pair are always new.
    fn pair<'a>(
        &'a self,
        task: &'a Task,
        session: &'a mut Reference,
        loaded: &'a mut Object,
        (standard, _): (Standard, Processes),
    ) -> Attempt<CpuPair<'a>> {
        Ok(CpuPair::new(self, task, session, loaded, standard))
    }

    fn tool(&self, _: &Object) {}

    fn profile(
        &self,
        task: &Task,
        (Both { loaded, .. }, ()): (Both<'_, '_, Self>, ()),
        case: &Case,
        timing: Option<&LastTiming>,
        rng: &mut StdRng,
        _: &dyn Fn(u64),
    ) -> Attempt<Profile> {
        let _stage = stage::begin(Stage::Replay);
        let (context, layout) = (context(task)?, layout(task, case)?);
        let alone = Standalone::lay_out(self, &layout, rng)?;
        let elements = |array: &crate::task::layout::Array| (array.bytes / array.dtype.bytes()) as u64;
        let subject = Subject {
            case: &case.name,
            elements: layout.arrays.iter().filter(|array| array.is_output()).map(elements).sum(),
            bytes: layout.compulsory_bytes(),
            working_set: layout.array_bytes(),
            median_ns: timing.map(|(case, _)| case.candidate.typical_ns(Statistic::Median)),
            object: &loaded.path,
            machine: &self.options.machine,
        };
        let command = |run: &Run<'_>| {
            let object = self.object_for(run.target, context, loaded)?;
            alone.command(self, run, &object).map_err(|fault| fault.to_string())
        };
        Ok(cpu::profile(&subject, &command, PROFILING))
    }

    fn sanitize(
        &self,
        task: &Task,
        _: Both<'_, '_, Self>,
        candidate: &Candidate,
        rng: &mut StdRng,
    ) -> Attempt<Vec<Check>> {
        if self.options.vulkan {
            let why =
                "no sanitizer here looks into a Vulkan driver: what a shader reads beyond an array was not looked for";
            return Ok(vec![Check::Sanitizer { tool: "sanitizer".to_owned(), outcome: Err(why.to_owned()) }]);
        }
        let fits = |case: &&Case| self.fits(task, case).is_ok_and(|bytes| bytes <= sanitizer::LARGEST_CASE);
        let cases: Vec<&Case> = task.cases.iter().chain(&task.final_cases).filter(fits).collect();
        let tools = (&self.compiler, &*self.sandbox);
        let told = if self.options.unsanitized { Unsanitized::Told } else { Unsanitized::Refused };
        sanitizer::sanitize(tools, context(task)?, &unit::text(context(task)?, candidate)?, &cases, told, rng)
            .map(|check| vec![check])
    }

    fn not_excluded(&self) -> Vec<(&'static str, &'static str)> {
        let on_the_host =
            ("a host region that computes what its shaders should", "both run on this processor, in one process");
        let mut rows = vec![
            (
                "a candidate that tells tests from use",
                "it was seen on random contents of the task's shapes, and on nothing else",
            ),
            ("another machine's times", "one core of this one was measured, alone"),
        ];
        rows.extend(self.options.vulkan.then_some(on_the_host));
        rows
    }
}
