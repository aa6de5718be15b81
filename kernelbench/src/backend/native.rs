//! Where candidates in C and C++ are built and run, on this machine's processor.
//!
//! A candidate's author is rewarded for speed and not for honesty. So a candidate is a stranger here: it is built from its
//! text alone, it runs in a confined process of its own that holds neither the reference nor the expected outputs nor the
//! clock that counts, and nothing that it says is believed.

pub(crate) mod certify;
pub(crate) mod check;
pub(crate) mod child;
pub(crate) mod segment;
pub(crate) mod time;
pub(crate) mod trial;
pub(crate) mod wire;
pub(crate) mod worker;

pub use child::child_main;
pub use wire::Layer;

use crate::build::cc;
use crate::machine::cores;
use crate::profile;
use crate::sandbox::process;
use crate::task::layout;
use crate::{
    profile::{
        cpu::{Run, Subject, Target},
        standalone::Standalone,
    },
    result::{
        candidate::{Built, Candidate, CandidateId, Verified},
        certificate::Certificate,
        error::{Attempt, outcome},
        evaluation::Timed,
        failure::{Fault, Outcome},
    },
    task::{Case, KernelContext, Source, Task, suite::Suite},
    workshop::{Baseline, TimingPlan, Workshop},
};
use check::Bench;
use metrics::{Machine, Profile, Statistic};
use rand::{SeedableRng, rngs::StdRng};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use worker::{Launch, Worker};

/// How long a profile may take.
const PROFILING: Duration = Duration::from_mins(1);

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
}

impl NativeOptions {
    /// The usual limits, for a program and the arguments that lead it to [`child_main`].
    #[must_use]
    pub fn new(program: PathBuf, program_args: Vec<OsString>, cache: PathBuf, machine: Machine) -> Self {
        let deadline_floor = Duration::from_secs(2);
        Self { program, program_args, cache, seed: None, machine, memory_mib: 512, case_mib: 256, deadline_floor }
    }
}

/// This machine's processor as a workshop. Clones share their builds.
#[derive(Clone, Debug)]
pub struct Native(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: NativeOptions,
    launch: Launch,
    compiler: cc::Compiler,
    /// Medians of what was timed, in nanoseconds, for the profiler.
    medians: Mutex<BTreeMap<(CandidateId, String), f64>>,
}

impl Native {
    /// A workshop. From here on this process's memory is closed to others of the same user, kernels among them.
    #[must_use]
    pub fn new(options: NativeOptions) -> Self {
        process::close_own_memory();
        let launch = Launch {
            program: options.program.clone(),
            arguments: options.program_args.clone(),
            memory_mib: options.memory_mib,
            cores: cores::Cores::here(),
        };
        let machine = format!("{} {}", options.machine.arch, options.machine.name);
        let compiler = cc::Compiler::new(launch.clone(), options.cache.clone(), machine);
        Self(Arc::new(Inner { options, launch, compiler, medians: Mutex::default() }))
    }

    /// What confines a kernel on this machine, layer by layer, as a child process found it that has just tried.
    ///
    /// # Errors
    /// Where the child process cannot be started.
    pub fn confinement(&self) -> Result<Vec<Layer>, Fault> {
        Worker::probe(&self.0.launch)
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

/// What inputs are drawn for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Prepare,
    Check,
    Time,
    Profile,
    Certify,
    Sanitize,
}

impl Inner {
    /// A generator for one purpose: the same seed draws other contents for another purpose.
    fn rng(&self, purpose: Purpose) -> StdRng {
        let seeded = |seed: u64| StdRng::seed_from_u64(seed.wrapping_mul(8).wrapping_add(purpose as u64));
        self.options.seed.map_or_else(StdRng::from_os_rng, seeded)
    }

    fn bench<'a>(&'a self, task: &'a Task, objects: [&'a Path; 2]) -> Bench<'a> {
        let floor = self.options.deadline_floor;
        Bench { launch: &self.launch, context: context(task), tolerance: &task.tolerance, objects, floor }
    }

    fn reference(&self, task: &Task) -> Result<PathBuf, Fault> {
        let context = context(task);
        match outcome(self.compiler.build(context, &context.reference))? {
            Ok(object) => Ok(object),
            Err(failure) => Err(reference_failed(task, &failure)),
        }
    }

    fn fits(&self, task: &Task, case: &Case) -> Result<u64, String> {
        let bytes = layout::Plan::of(context(task), case)?.array_bytes();
        let limit = self.options.case_mib << 20;
        match bytes {
            0 => Err(format!("case `{}` has no data", case.name)),
            _ if bytes > limit => {
                Err(format!("case `{}` takes {} MiB, the limit is {} MiB", case.name, bytes >> 20, limit >> 20))
            }
            _ => Ok(bytes),
        }
    }

    /// The reference stands in for a candidate: it must agree with itself in another process.
    fn prepare(&self, task: &Task, suite: &Suite, plan: &TimingPlan) -> Result<Baseline, Fault> {
        let object = self.reference(task)?;
        let bench = self.bench(task, [&object, &object]);
        let mut rng = self.rng(Purpose::Prepare);
        let timed = check::check(&bench, &suite.cases, &mut rng)
            .and_then(|_| time::time(&bench, suite, plan, &self.options.machine, &mut rng));
        let timed = outcome(timed)?.map_err(|failure| reference_failed(task, &failure))?;
        let timings = timed.cases.into_iter().map(|case| (case.case, case.reference)).collect();
        Ok(Baseline::new(timings, self.compiler.command_line(context(task))?))
    }

    fn build(&self, task: &Task, candidate: Candidate) -> Attempt<Built> {
        let artifact = self.compiler.build(context(task), candidate.source())?;
        Ok(Built { candidate, artifact })
    }

    fn check(&self, task: &Task, built: Built, suite: &Suite) -> Attempt<Verified> {
        let reference = self.reference(task)?;
        check::check(&self.bench(task, [&reference, &built.artifact]), &suite.cases, &mut self.rng(Purpose::Check))?;
        Ok(Verified { built })
    }

    fn time(&self, task: &Task, verified: &Verified, suite: &Suite, plan: &TimingPlan) -> Attempt<Timed> {
        let reference = self.reference(task)?;
        let bench = self.bench(task, [&reference, &verified.built.artifact]);
        let timed = time::time(&bench, suite, plan, &self.options.machine, &mut self.rng(Purpose::Time))?;
        let mut medians = self.medians.lock().unwrap_or_else(PoisonError::into_inner);
        for case in &timed.cases {
            let key = (verified.candidate().id(), case.case.clone());
            medians.insert(key, case.candidate.typical_ns(Statistic::Median));
        }
        Ok(timed)
    }

    fn profile(&self, task: &Task, verified: &Verified, suite: &Suite) -> Result<Profile, Fault> {
        let case = suite.cases.iter().filter(|case| suite.timed.contains(&case.name));
        let case = case.max_by_key(|case| context(task).bytes(case).unwrap_or(0));
        let case = case.ok_or_else(|| Fault("the suite times no case, so there is none to profile".to_owned()))?;
        let plan = trial::plan(context(task), case)?;
        let alone = Standalone::lay_out(&self.launch, &plan, &mut self.rng(Purpose::Profile))?;
        let key = (verified.candidate().id(), case.name.clone());
        let subject = Subject {
            case: &case.name,
            elements: plan.arrays.iter().filter(|a| a.is_output()).map(|a| (a.bytes / a.dtype.bytes()) as u64).sum(),
            bytes: plan.compulsory_bytes(),
            working_set: plan.array_bytes(),
            median_ns: self.medians.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied(),
            object: verified.built.artifact(),
            machine: &self.options.machine,
        };
        let command = |run: &Run<'_>| {
            let object = self.object_for(run.target, task, verified)?;
            alone.command(&self.launch, run, &object)
        };
        Ok(profile::cpu::profile(&subject, &command, PROFILING))
    }

    /// The build that a profiler runs.
    fn object_for(&self, target: Target, task: &Task, verified: &Verified) -> Result<PathBuf, String> {
        if target == Target::AsTimed {
            return Ok(verified.built.artifact.clone());
        }
        let mut context = context(task).clone();
        for flag in context.flags.iter_mut().filter(|flag| *flag == "-march=native") {
            "-march=x86-64-v3".clone_into(flag);
        }
        context.flags.push("-Wno-error".to_owned());
        match outcome(self.compiler.build(&context, verified.candidate().source())) {
            Ok(Ok(object)) => Ok(object),
            Ok(Err(_)) => Err("the candidate does not build for x86-64-v3".to_owned()),
            Err(Fault(why)) => Err(why),
        }
    }
}

fn context(task: &Task) -> &KernelContext {
    let Source::Context(context) = &task.source else {
        unreachable!("the program chooses the workshop by the task's source: problems go to another");
    };
    context
}

fn reference_failed(task: &Task, failure: &crate::result::failure::Failure) -> Fault {
    use crate::result::failure::Failure::{Build, Interface};
    let log = match failure {
        Build { log } | Interface { log } => format!("\n{log}"),
        _ => String::new(),
    };
    Fault(format!("the reference of task `{}` is no reference: {failure}{log}", task.name))
}

impl Workshop for Native {
    type Rebuilt = certify::Rebuilt;

    fn machine(&self) -> &Machine {
        &self.0.options.machine
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

    async fn rebuild(&self, task: &Task, candidate: &Candidate) -> Result<certify::Rebuilt, Fault> {
        let (task, candidate) = (task.clone(), candidate.clone());
        self.off_the_runtime(move |inner| certify::rebuild(inner, &task, &candidate)).await?
    }

    async fn certify(&self, task: &Task, rebuilt: certify::Rebuilt, plan: &TimingPlan) -> Result<Certificate, Fault> {
        let (task, plan) = (task.clone(), *plan);
        self.off_the_runtime(move |inner| certify::certify(inner, &task, rebuilt, &plan)).await?
    }
}
