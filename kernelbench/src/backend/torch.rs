//! The torch backend: KernelBench's problems, on the CPU or on an NVIDIA GPU.
//!
//! Three Python processes work on a problem. The verifier draws inputs from secret seeds, and compares; it never loads a
//! candidate's code. The reference and the candidate run in processes alike, confined, that hold one module each and are
//! stopped unless they are asked.

pub(crate) mod contract;
pub(crate) mod harness;
pub(crate) mod headers;
mod machine;
mod not_excluded;
pub(crate) mod options;
mod own_evaluation;
mod pair;
mod places;
pub(crate) mod problem;
pub(crate) mod python;
pub(crate) mod runner;
mod slim;
mod values;
mod variant;
mod verifier;
pub(crate) mod wire;
mod zygote;

pub use crate::profile::kind::ProfilerKind;
pub use contract::CASE;
pub use harness::TOLERANCE;
pub use headers::Headers;
pub use not_excluded::{OPEN, Open};
pub use options::Options;
pub use own_evaluation::KernelBench;
pub use python::Facts;
pub use variant::Mode;

use crate::{
    engine::{
        Engine,
        backend::{Backend, Both, Processes, Standard, Toolchain},
        notes::LastTiming,
    },
    hash::Hash,
    lease::Lease,
    machine::{
        driver::CudaDevice,
        gpu::{self, Gpu},
    },
    measure::{
        gpu_clock::{GpuClock, broken},
        numbers::{Clock, Numbers},
    },
    profile::{
        cuobjdump, own,
        torch::{ProfilerChain, Ready, Scene},
    },
    result::{
        candidate::Candidate,
        certificate::Check,
        error::{Attempt, EvalError, outcome},
        failure::Fault,
        label::Label,
    },
    sandbox::{
        layer::Layer,
        pool::{Quiet, Starting, WarmPool},
        start::open_folder,
    },
    stage::{self, Stage},
    task::{Case, Task, signature::Signature},
    workshop::{TimingPlan, Variant},
};
use metrics::{Machine, Profile};
use pair::TorchPair;
use problem::{OpenProblem, problem};
use python::Python;
use rand::rngs::StdRng;
use runner::{Role, Runner, not_started};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use verifier::Verifier;

/// The part of a device's memory that all inputs of one side may take: the other side's, both outputs, and what the verifier
/// compares with come on top.
const SHARE_OF_INPUTS: u64 = 16;

/// A request of the reference's calls lasts 20 ms, for Python's own part of a request takes a tenth of a millisecond and
/// scatters; on a GPU pairs beyond the fewest are taken for 750 ms. A certificate's pairs of processes are even in number, for
/// either side's inputs lie first in every other one.
const NUMBERS: Numbers = Numbers {
    draws: 5,
    signed: true,
    clock: Clock::Inside,
    request_ns: 20_000_000.0,
    certificate_request_ns: 20_000_000.0,
    longest_request_ns: 100_000_000.0,
    most_calls: problem::MOST_SLOTS,
    calibration: (1, 3),
    empty_requests: 5,
    processes: (1, 4),
    spread: false,
    endurance: Duration::from_secs(15),
    fewest: 16,
    budget: Some(Duration::from_millis(750)),
    disagreement: (50_000.0, 0.03),
    floor_margin: 1.15,
    glance: (3, Duration::from_millis(80)),
    long_ns: f64::INFINITY,
    ranked_in_one: 1,
    between_processes: 0.0005,
    open_tasks: 12,
    kept_candidates: 24,
};

/// A processor's threads hardly race as a GPU's do.
const ENDURANCE_ON_A_PROCESSOR: Duration = Duration::from_millis(500);

/// A workshop for problems. Clones share what is open.
pub type Torch = Engine<TorchBackend>;

/// Torch on one device.
pub struct TorchBackend {
    options: Options,
    numbers: Numbers,
    python: Arc<Python>,
    facts: Facts,
    machine: Machine,
    /// The GPU, where it can be asked how it is doing.
    gpu: Option<Gpu>,
    /// The work around requests, on a GPU.
    clock: Option<Mutex<GpuClock>>,
    /// Bytes of the GPU that were free when this workshop began.
    free_at_first: Option<u64>,
    verifiers: WarmPool<Verifier>,
    runners: WarmPool<Runner>,
    starting: Arc<Starting>,
    profilers: Arc<ProfilerChain>,
    _folder: tempfile::TempDir,
}

impl Torch {
    /// A workshop. Asks Python what there is, which takes as long as importing torch; meanwhile the first processes start.
    ///
    /// # Errors
    /// Where that Python has no torch, or torch no such device.
    pub fn new(options: Options) -> Result<Self, Fault> {
        TorchBackend::new(options).map(Self::on)
    }

    /// What Python found.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.backend().facts
    }

    /// The Python in use.
    #[must_use]
    pub fn python(&self) -> &std::path::Path {
        &self.backend().options.python
    }

    /// What names the harness's text.
    #[must_use]
    pub fn harness(&self) -> &Hash {
        self.backend().python.harness.hash()
    }

    /// What confines candidates on this machine, layer by layer.
    ///
    /// # Errors
    /// Where the problem cannot be opened.
    pub fn confinement(&self, task: &Task) -> Result<Vec<Layer>, Fault> {
        self.in_open_task(task, |problem| problem.reference.peer.layers.clone())
    }

    /// The numbers of the processes that it has started and that are there.
    #[must_use]
    pub fn processes(&self) -> Vec<i32> {
        self.backend().python.sandbox.spawner.running()
    }
}

impl TorchBackend {
    fn new(options: Options) -> Result<Self, Fault> {
        let ordinal = gpu::ordinal(&options.device);
        let gpu = ordinal.and_then(|ordinal| Gpu::at(ordinal).ok());
        let free_at_first = gpu.as_ref().and_then(Gpu::memory_free);
        let folder = open_folder("torch-")?;
        let python = Arc::new(Python::new(&options, folder.path())?);
        let starting = Arc::new(if ordinal.is_some() { Starting::on_gpu() } else { Starting::default() });
        let verifiers = {
            let python = Arc::clone(&python);
            WarmPool::new(Arc::clone(&starting), options.spares / 2, move |starting| python.verifier(starting))
        };
        let runners = {
            let python = Arc::clone(&python);
            WarmPool::new(Arc::clone(&starting), options.spares, move |starting| Runner::start(&python, starting))
        };
        verifiers.fill(1);
        runners.fill(1 + options.spares.min(1));
        let profilers = Arc::new(ProfilerChain::new(&options, Arc::clone(&python), Arc::clone(&starting)));
        profilers.start_ahead(None);
        let facts = match verifiers.take(|_| true) {
            Ok(mut verifier) => {
                let facts = python.facts(Ok(&mut verifier))?;
                verifiers.give_back(verifier);
                facts
            }
            Err(error) => python.facts(Err(error))?,
        };
        let machine = machine::machine(&options, &facts, gpu.as_ref());
        let clock = ordinal.map(|ordinal| {
            let device =
                CudaDevice::open(ordinal).map_err(|why| Fault::Absent(format!("no GPU can be used: {why}")))?;
            GpuClock::new(Arc::new(device)).map(Mutex::new).map_err(broken)
        });
        let on_gpu = ordinal.is_some();
        let endurance = if on_gpu { NUMBERS.endurance } else { ENDURANCE_ON_A_PROCESSOR };
        let budget = NUMBERS.budget.filter(|_| on_gpu);
        let numbers = Numbers { draws: options.trials, budget, endurance, ..NUMBERS };
        Ok(Self {
            numbers,
            python,
            facts,
            machine,
            gpu,
            clock: clock.transpose()?,
            free_at_first,
            verifiers,
            runners,
            starting,
            profilers,
            options,
            _folder: folder,
        })
    }

    fn is_on_gpu(&self) -> bool {
        self.clock.is_some()
    }

    /// What the inputs of one side may take, in bytes.
    fn budget_of_inputs(&self) -> u64 {
        let of_device = self.facts.memory_bytes / SHARE_OF_INPUTS;
        (self.options.arena_mib << 20).min(if of_device > 0 { of_device } else { u64::MAX })
    }

    fn warm_runner(&self) -> Attempt<Runner> {
        self.runners.take(|runner| runner.peer.is_alive())
    }

    /// A new process in which a role is loaded.
    fn loaded(&self, role: Role) -> Attempt<Runner> {
        let mut runner = self.warm_runner()?;
        self.profilers.start_ahead(Some(runner.folder()));
        let loaded = runner.load(role, self.options.build_deadline);
        self.get_ready();
        loaded.map(|()| runner)
    }
}

impl Backend for TorchBackend {
    type Session = OpenProblem;
    type Loaded = Runner;
    type Tool = Option<Ready>;
    type Pair<'a> = TorchPair<'a>;

    fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn slack(&self) -> Duration {
        self.options.deadline_floor
    }

    /// Triton compiles a kernel when it is first called, and a candidate may have a dozen.
    fn first_slack(&self) -> Duration {
        self.options.first_call
    }

    fn seed(&self) -> Option<u64> {
        self.options.seed
    }

    fn nvml(&self) -> Option<&Gpu> {
        self.gpu.as_ref()
    }

    fn fits(&self, _: &Task, case: &Case) -> Result<u64, String> {
        match case.name.as_str() {
            CASE => Ok(0),
            _ => Err("a problem has one shape, its own".to_owned()),
        }
    }

    /// What torch is, and where it runs.
    fn describe_build(&self, _: &Task) -> Result<String, Fault> {
        let Facts { torch, cuda, .. } = &self.facts;
        let cuda = cuda.as_ref().map(|cuda| format!(", CUDA {cuda}")).unwrap_or_default();
        Ok(format!("torch {torch}{cuda}, eager, on {}", self.options.device))
    }

    fn key(&self, task: &Task) -> Hash {
        problem::key(task)
    }

    fn open(&self, task: &Task, _: Toolchain, on_device: &mut dyn FnMut(Option<u64>)) -> Attempt<OpenProblem> {
        let problem = problem(task)?;
        let verifier = self.verifiers.take(|verifier| verifier.0.is_alive()).map_err(not_started)?;
        let reference = self.warm_runner()?;
        let how = (self.is_on_gpu(), self.budget_of_inputs());
        let opened = OpenProblem::open(verifier, reference, problem, how, on_device);
        self.get_ready();
        let mut opened = opened?;
        opened.audit(&task.tolerance, &mut self.fresh_rng())?;
        Ok(opened)
    }

    fn labels(&self, session: &OpenProblem) -> Vec<Label> {
        session.labels.clone()
    }

    fn signature(&self, session: &OpenProblem) -> Signature {
        session.signature.clone()
    }

    /// Some references put out what even they do not put out again, such as NaN: their problem is labelled.
    fn reference_may_differ(&self) -> bool {
        true
    }

    fn load(&self, task: &Task, candidate: &Candidate, toolchain: Toolchain) -> Attempt<Runner> {
        problem(task)?;
        let headers = if toolchain == Toolchain::Quick { self.options.headers } else { Headers::Stock };
        self.loaded(Role::candidate(&candidate.source(), headers))
    }

    fn artifact(&self, loaded: &Runner) -> PathBuf {
        loaded.file()
    }

    fn pair<'a>(
        &'a self,
        _: &'a Task,
        session: &'a mut OpenProblem,
        loaded: &'a mut Runner,
        (_, processes): (Standard, Processes),
    ) -> Attempt<TorchPair<'a>> {
        if processes == Processes::New {
            // What was built is in the candidate's folder; what was put out is open nowhere any more.
            session.trim_memory()?;
            loaded.restart(&self.python, self.options.build_deadline)?;
            session.lay_out_anew()?;
            session.replace_reference(self.runners.take_now(|runner| runner.peer.is_alive())?)?;
        } else if session.is_stale() {
            session.trim_memory()?;
            session.replace_reference(self.warm_runner()?)?;
        }
        // A model that torch compiles was bound, and called once, when it was compiled.
        if loaded.role.as_ref().is_none_or(|role| role.compile.is_none()) {
            session.bind(loaded)?;
        }
        Ok(TorchPair::new(session, loaded, self.clock.as_ref()))
    }

    fn tidy(&self, session: &mut OpenProblem) -> Attempt<()> {
        session.trim_memory()
    }

    fn offload(&self, session: &mut OpenProblem) -> Attempt<bool> {
        session.offload().map(|()| true)
    }

    fn is_offloaded(&self, session: &OpenProblem) -> bool {
        session.is_offloaded()
    }

    fn reload(&self, session: &mut OpenProblem) -> Attempt<()> {
        session.lay_out()
    }

    fn rest(&self, loaded: &mut Runner) -> Attempt<bool> {
        if loaded.is_broken() {
            return Ok(false);
        }
        if loaded.has_run {
            loaded.trim_memory(true)?;
        }
        Ok(true)
    }

    /// What nvcc built takes minutes to build again, a dozen of Triton's kernels ten seconds, and both lie in its folder.
    fn put_to_sleep(&self, mut loaded: Runner) -> Option<Runner> {
        if !loaded.has_compiled() {
            return None;
        }
        loaded.sleep();
        Some(loaded)
    }

    fn wake(&self, loaded: &mut Runner) -> Attempt<()> {
        loaded.wake(&self.python, &self.starting, self.options.build_deadline)
    }

    fn in_doubt(&self, loaded: &Runner, error: &EvalError) -> Option<Label> {
        headers::in_doubt(&loaded.extensions, error)
    }

    fn build_labels(&self, loaded: &Runner) -> Vec<Label> {
        loaded.extensions.iter().map(headers::label).collect()
    }

    fn code_labels(&self, candidate: &Candidate, loaded: &Runner) -> Vec<Label> {
        let may = cuobjdump::may_copy_in_bulk(&candidate.source());
        if may { self.profilers.races(loaded.folder()) } else { vec![] }
    }

    fn get_ready(&self) {
        self.verifiers.refill();
        self.runners.refill();
        self.profilers.start_ahead(None);
    }

    fn quiet(&self) -> Option<Quiet> {
        self.profilers.let_reading_end();
        Some(self.starting.quiet())
    }

    fn beside(&self) -> usize {
        self.options.beside
    }

    fn compiling(&self) -> usize {
        self.options.compiling
    }

    /// Several may wait under their profilers, where each may be given any candidate; where none does, none is waited for.
    fn profiles_in_turn(&self) -> bool {
        !self.python.has_users() && self.profilers.is_by_ncu()
    }

    fn free_memory(&self) -> Option<u64> {
        self.gpu.as_ref().and_then(Gpu::memory_free)
    }

    fn wanted_memory(&self, session: &OpenProblem) -> u64 {
        session.wanted_bytes()
    }

    fn held_memory(&self, session: &OpenProblem) -> u64 {
        session.held_bytes()
    }

    fn whole_memory(&self, session: &OpenProblem) -> u64 {
        session.whole_bytes()
    }

    /// Nsight Compute copies what a process holds before it replays a launch: to the host, for many seconds, where the device
    /// has no room for it. Who reads its own counters has the inputs twice.
    fn memory_of_a_profile(&self, session: &OpenProblem) -> u64 {
        let beside = if self.profilers.is_by_ncu() { session.copied_bytes() } else { session.input_bytes };
        session.wanted_bytes() + beside
    }

    /// An eighth of what was free when this workshop began: most problems of `KernelBench` take less, and one that is short of
    /// memory is opened once more, alone.
    fn memory_of_a_task(&self) -> u64 {
        self.free_at_first.unwrap_or(0) / 8
    }

    fn was_short(&self, session: &OpenProblem) -> bool {
        let no_oracle = session.no_oracle.as_deref();
        session.refused_at_opening || no_oracle.is_some_and(|why| Fault::told(why.to_owned()).is_of_memory())
    }

    fn was_refused_memory(&self, session: &mut OpenProblem) -> bool {
        session.was_refused()
    }

    fn holds_memory(&self, loaded: &Runner) -> bool {
        loaded.has_run
    }

    fn variants(
        &self,
        task: &Task,
        session: &mut OpenProblem,
        plan: &TimingPlan,
        lease: &mut Lease<'_>,
    ) -> Result<Vec<Variant>, Fault> {
        self.options.baselines.iter().map(|mode| self.variant(task, session, (*mode, plan), lease)).collect()
    }

    fn tool(&self, loaded: &Runner) -> Option<Ready> {
        self.profilers.is_by_ncu().then(|| self.profilers.at_hand(loaded.folder())).flatten()
    }

    fn profile(
        &self,
        _: &Task,
        (Both { session, loaded, lease }, ready): (Both<'_, '_, Self>, Option<Ready>),
        _: &Case,
        timing: Option<&LastTiming>,
        rng: &mut StdRng,
        make_room: &dyn Fn(u64),
    ) -> Attempt<Profile> {
        let _stage = stage::begin(Stage::ProfileStart);
        let scene = Scene { session, candidate: loaded, timing, lease, make_room };
        self.profilers.profile(scene, ready, rng)
    }

    fn sanitize(
        &self,
        _: &Task,
        Both { session, loaded, lease }: Both<'_, '_, Self>,
        _: &Candidate,
        rng: &mut StdRng,
    ) -> Attempt<Vec<Check>> {
        let outcome = if self.is_on_gpu() {
            session.draw(1, false, rng)?;
            let how = "one call, every tensor in an allocation of its own; an access that lands in another tensor is not seen";
            self.profilers.memcheck(session, loaded, lease)?.map(|()| how.to_owned())
        } else {
            Err("compute-sanitizer looks at GPUs alone".to_owned())
        };
        Ok(vec![Check::Sanitizer { tool: "compute-sanitizer's memcheck".to_owned(), outcome }])
    }

    fn kind_of_win(
        &self,
        Both { session, loaded, lease }: Both<'_, '_, Self>,
        candidate: &Candidate,
        ratio: f64,
        rng: &mut StdRng,
    ) -> Attempt<(Vec<Check>, Vec<Label>)> {
        let source = candidate.source();
        if !self.is_on_gpu() {
            return Ok((vec![], own::labels(None, &source, ratio)));
        }
        let launches = session.draw(1, false, rng).and_then(|()| {
            let scene = Scene { session, candidate: loaded, timing: None, lease, make_room: &|_| () };
            self.profilers.launches(scene)
        });
        // Whatever it does while it is watched: it was certified.
        let launches = outcome(launches)?.unwrap_or_else(|failure| Err(failure.to_string()));
        let share =
            launches.and_then(|all| own::own_share(&all, &source).ok_or_else(|| "no launch took time".to_owned()));
        let labels = own::labels(share.as_ref().ok().copied(), &source, ratio);
        Ok((vec![Check::OwnKernels { share }], labels))
    }

    fn evaluated_elsewhere(
        &self,
        task: &Task,
        certified: (&Candidate, f64),
        lease: &mut Lease<'_>,
        be_alone: &dyn Fn(&mut Lease<'_>),
    ) -> Option<Check> {
        self.own_evaluation(task, certified, lease, be_alone)
    }

    fn not_excluded(&self) -> Vec<(&'static str, &'static str)> {
        not_excluded::all()
    }
}

impl TorchBackend {
    /// A generator for inputs that no step draws.
    fn fresh_rng(&self) -> StdRng {
        use rand::SeedableRng;
        self.options.seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)
    }
}
