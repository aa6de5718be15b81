//! A workshop for AMD GPUs that are not here: candidates in HIP are compiled, and not run.
//!
//! Nothing here is checked, timed, profiled or certified: there is a [`CodeObject`], what the compiler says of each kernel. Whoever
//! is called verified here has been compiled, and no more can be asked of him.

use crate::{
    build::{hip::Hip, unit},
    result::{
        candidate::{Built, Candidate, Verified},
        certificate::Certificate,
        code_object::{self, CodeObject},
        error::{Attempt, fault, outcome, trusted},
        evaluation::{Evaluation, Timed},
        failure::{Failure, Fault, Outcome},
    },
    sandbox::start::Sandbox,
    stage::{self, Stage},
    task::{Case, KernelContext, Task, gfx::Gfx, suite::Suite},
    workshop::{Baseline, Fits, Rebuilt, Step, TimingPlan, Workshop, blocking},
};
use metrics::{Arch, Fact, Machine, MachineKind, Profile};
use std::{ffi::OsString, fs, path::PathBuf, sync::Arc, time::Duration};

/// Why there is no time, for people.
const NOT_RUN: &str = "compiled, not run: the GPU is not here, and nothing is checked, timed, profiled or certified";

/// How kernels are compiled.
#[derive(Clone, Debug)]
pub struct CompiledOptions {
    /// The program that calls [`child_main`](crate::native::child_main): as a rule, this very one.
    pub program: PathBuf,
    /// The arguments that lead it there.
    pub program_args: Vec<OsString>,
    /// The folder of builds.
    pub cache: PathBuf,
    /// How long one compilation may take; two minutes where it is `None`.
    pub build_deadline: Option<Duration>,
}

/// An AMD GPU that kernels are compiled for.
#[derive(Clone)]
pub struct Compiled(Arc<Inner>);

struct Inner {
    arch: Gfx,
    machine: Machine,
    hip: Hip,
}

impl Compiled {
    /// A workshop for this architecture.
    ///
    /// # Errors
    /// [`Fault::Absent`] where no compiler here knows it.
    pub fn new(arch: Gfx, options: CompiledOptions) -> Result<Self, Fault> {
        let sandbox = Arc::new(Sandbox::new(options.program, options.program_args));
        let hip = Hip::new(sandbox, options.cache, arch, options.build_deadline)?;
        Ok(Self(Arc::new(Inner { arch, machine: machine(arch), hip })))
    }

    /// What compiled the kernels, in its own words.
    #[must_use]
    pub fn compiler(&self) -> &str {
        self.0.hip.compiler()
    }

    /// The names of the instructions that the compiler writes for a candidate's kernels, a line each; inline assembly is not
    /// among them.
    ///
    /// # Errors
    /// Where nothing can be compiled here.
    pub fn instructions(&self, task: &Task, candidate: &Candidate) -> Outcome<String> {
        let built = match outcome(self.0.build(task, candidate))? {
            Ok(built) => built,
            Err(failure) => return Ok(Err(failure)),
        };
        let text = fs::read(&built.artifact).map_err(fault("cannot read a build"))?;
        Ok(Ok(code_object::instructions(&String::from_utf8_lossy(&text))))
    }

    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, Fault> + Send + 'static,
    ) -> Step<'_, Result<T, Fault>> {
        let inner = Arc::clone(&self.0);
        blocking(move || work(&inner))
    }
}

/// What a kernel's author is to know of a GPU.
fn machine(arch: Gfx) -> Machine {
    let fact = |name: &str, value: String| Fact { name: name.to_owned(), value };
    Machine {
        kind: MachineKind::Gpu,
        name: format!("{} (not here: kernels are compiled, not run)", arch.full_name()),
        arch: Arch::Amd(arch.name().to_owned()),
        facts: vec![
            fact("threads of a wavefront", "64".to_owned()),
            fact("threads of a block, at most", "1024".to_owned()),
            fact("LDS of a block, at most", format!("{} KiB", arch.lds_bytes() >> 10)),
            fact("registers of a thread, at most", "512, those for accumulation (AGPRs) among them".to_owned()),
        ],
        bandwidths: vec![],
        peak_flops: None,
    }
}

impl Inner {
    fn build(&self, task: &Task, candidate: &Candidate) -> Attempt<Built> {
        let _stage = stage::begin(Stage::Build);
        let context = self.context(task)?;
        let artifact = self.hip.build(context, &unit::text(context, candidate)?)?;
        Ok(Built { candidate: candidate.clone(), artifact })
    }

    fn context<'a>(&self, task: &'a Task) -> Result<&'a KernelContext, Fault> {
        let context = task.context().filter(|context| context.arch == Some(self.arch));
        context.ok_or_else(|| Fault::Machine(format!("the task {} is not for {}", task.name, self.arch)))
    }
}

fn not_run<'a, T: Send + 'a>() -> Step<'a, Result<T, Fault>> {
    Box::pin(std::future::ready(Err(Fault::Absent(NOT_RUN.to_owned()))))
}

impl Workshop for Compiled {
    fn machine(&self) -> &Machine {
        &self.0.machine
    }

    /// Whatever fits: nothing is laid out.
    fn fits<'a>(&'a self, task: &'a Task, cases: &'a [Case]) -> Step<'a, Result<Fits, Fault>> {
        let fits = self.0.context(task).map(|context| {
            let bytes = |case: &Case| context.bytes(case).map_err(|why| why.to_string());
            cases.iter().map(bytes).collect()
        });
        Box::pin(std::future::ready(fits))
    }

    /// Compiles the reference; there is no time of it.
    fn prepare<'a>(&'a self, task: &'a Task, _: &'a Suite, _: &'a TimingPlan) -> Step<'a, Result<Baseline, Fault>> {
        let task = task.clone();
        self.blocking(move |inner| {
            let reference = trusted(inner.build(&task, &Candidate::new(task.reference())));
            outcome(reference)?.map_err(|failure| Fault::of_reference(&failure))?;
            Ok(Baseline::new(vec![], inner.hip.command_line(inner.context(&task)?)?))
        })
    }

    fn build<'a>(&'a self, task: &'a Task, candidate: &'a Candidate) -> Step<'a, Outcome<Built>> {
        let (task, candidate) = (task.clone(), candidate.clone());
        self.blocking(move |inner| outcome(inner.build(&task, &candidate)))
    }

    /// Compares nothing: what compiles passes.
    fn check<'a>(&'a self, _: &'a Task, built: Built, _: &'a Suite) -> Step<'a, Outcome<Verified>> {
        Box::pin(std::future::ready(Ok(Ok(Verified { built }))))
    }

    fn measure<'a>(
        &'a self,
        _: &'a Task,
        verified: &'a Verified,
        _: &'a Suite,
        _: &'a TimingPlan,
        _: f64,
    ) -> Step<'a, Result<Evaluation, Fault>> {
        let artifact = verified.built.artifact.clone();
        self.blocking(move |inner| {
            let text = fs::read(&artifact).map_err(fault("cannot read a build"))?;
            let code = CodeObject::of_assembly(inner.arch, &String::from_utf8_lossy(&text)).map_err(Fault::Machine)?;
            let none = || Failure::Interface { log: "the candidate has no kernel for the GPU".to_owned() };
            Ok(if code.kernels.is_empty() { Evaluation::Failed(none()) } else { Evaluation::Compiled(code) })
        })
    }

    fn time<'a>(
        &'a self,
        _: &'a Task,
        _: &'a Verified,
        _: &'a Suite,
        _: &'a TimingPlan,
        _: f64,
    ) -> Step<'a, Outcome<Timed>> {
        not_run()
    }

    fn profile<'a>(&'a self, _: &'a Task, _: &'a Verified, _: &'a Suite) -> Step<'a, Result<Profile, Fault>> {
        not_run()
    }

    fn rebuild<'a>(&'a self, _: &'a Task, _: &'a Candidate) -> Step<'a, Result<Rebuilt, Fault>> {
        not_run()
    }

    fn certify<'a>(&'a self, _: &'a Task, _: Rebuilt, _: &'a TimingPlan) -> Step<'a, Result<Certificate, Fault>> {
        not_run()
    }
}
