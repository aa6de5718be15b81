//! Where candidates in C and C++ are built and run, on this machine's processor.
//!
//! A candidate's author is rewarded for speed and not for honesty. So a candidate is a stranger here: it is built from its
//! text alone, it runs in a confined process of its own that holds neither the reference nor the expected outputs nor the
//! clock that counts, and nothing that it says is believed.

mod calls;
mod check;
mod child;
mod compiler;
mod confine;
mod cores;
mod plan;
mod process;
mod segment;
mod time;
mod trial;
mod trouble;
mod unit;
mod wire;
mod worker;

pub use child::child_main;
pub use wire::Layer;

use crate::{
    candidate::{Built, Candidate, Verified},
    certificate::Certificate,
    evaluation::Timed,
    failure::{Fault, Outcome},
    suite::Suite,
    task::{Case, KernelContext, Source, Task},
    workshop::{Baseline, TimingPlan, Workshop},
};
use check::Bench;
use metrics::{Machine, Profile, Rung};
use rand::{SeedableRng, rngs::StdRng};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use trouble::{Attempt, outcome};
use worker::{Launch, Worker};

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
    compiler: compiler::Compiler,
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
        };
        let machine = format!("{} {}", options.machine.arch, options.machine.name);
        let compiler = compiler::Compiler::new(options.cache.clone(), machine);
        Self(Arc::new(Inner { options, launch, compiler }))
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

impl Inner {
    fn rng(&self) -> StdRng {
        self.options.seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)
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
        let bytes = plan::Plan::of(context(task), case)?.array_bytes();
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
        let mut rng = self.rng();
        let timed = check::check(&bench, &suite.cases, &mut rng)
            .and_then(|_| time::time(&bench, suite, plan, &self.options.machine, &mut rng));
        let timed = outcome(timed)?.map_err(|failure| reference_failed(task, &failure))?;
        let timings = timed.cases.into_iter().map(|case| (case.case, case.reference)).collect();
        Ok(Baseline { timings, build: self.compiler.command_line(context(task))? })
    }

    fn build(&self, task: &Task, candidate: Candidate) -> Attempt<Built> {
        let artifact = self.compiler.build(context(task), candidate.source())?;
        Ok(Built { candidate, artifact })
    }

    fn check(&self, task: &Task, built: Built, suite: &Suite) -> Attempt<Verified> {
        let reference = self.reference(task)?;
        check::check(&self.bench(task, [&reference, &built.artifact]), &suite.cases, &mut self.rng())?;
        Ok(Verified { built })
    }

    fn time(&self, task: &Task, verified: &Verified, suite: &Suite, plan: &TimingPlan) -> Attempt<Timed> {
        let reference = self.reference(task)?;
        let bench = self.bench(task, [&reference, &verified.built.artifact]);
        time::time(&bench, suite, plan, &self.options.machine, &mut self.rng())
    }
}

fn context(task: &Task) -> &KernelContext {
    let Source::Context(context) = &task.source;
    context
}

fn reference_failed(task: &Task, failure: &crate::failure::Failure) -> Fault {
    use crate::failure::Failure::{Build, Interface};
    let log = match failure {
        Build { log } | Interface { log } => format!("\n{log}"),
        _ => String::new(),
    };
    Fault(format!("the reference of task `{}` is no reference: {failure}{log}", task.name))
}

impl Workshop for Native {
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

    async fn profile(&self, _: &Task, _: &Verified, suite: &Suite) -> Result<Profile, Fault> {
        let case = suite.timed.first().cloned().unwrap_or_default();
        let notes = vec!["this workshop has no profiler yet".to_owned()];
        Ok(Profile { rung: Rung::TimingOnly, case, readings: vec![], notes })
    }

    async fn certify(&self, _: &Task, _: &Candidate, _: &TimingPlan) -> Result<Certificate, Fault> {
        Err(Fault("this workshop cannot certify yet".to_owned()))
    }
}
