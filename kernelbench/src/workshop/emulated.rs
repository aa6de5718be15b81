//! A workshop for processors that are not here: candidates are built by cross compilers, run by QEMU, compared with the
//! reference as everywhere, and their instructions counted.
//!
//! An emulator has no clock that says anything of the processor it stands for. So nothing here is timed, profiled or certified:
//! there are [`Counts`], the difference of two calls and one, and only for candidates that are right.

mod emulator;

use crate::{
    build::{script, unit},
    engine::contents::{context, layout, mismatch, poison},
    result::{
        candidate::{Built, Candidate, Verified},
        certificate::Certificate,
        counts::{CaseCounts, Counts},
        error::{Attempt, outcome, trusted},
        evaluation::{Evaluation, Timed},
        failure::{Failure, Fault, Outcome},
    },
    sandbox::start::Sandbox,
    stage::{self, Stage},
    task::{Case, Task, layout::Layout, processor::Processor, space::Bindings, suite::Suite},
    workshop::{Baseline, Fits, Rebuilt, Step, TimingPlan, Workshop, blocking},
};
use arrays::{compare, fill, repeat};
use emulator::Emulator;
use metrics::{
    Arch, Fact, Machine, MachineKind, Profile,
    factors::{NAMES, records},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

/// The largest case, in bytes of its arrays: an emulator takes tens of times as long as a processor.
pub const LARGEST_CASE: u64 = 64 << 20;
/// Why there is no time, for people.
const NO_TIMES: &str = "an emulator's time says nothing of the processor: its instructions are counted, and nothing is timed, profiled or certified";

/// How an emulated processor is set up.
#[derive(Clone, Debug)]
pub struct EmulatedOptions {
    /// The program that calls [`child_main`](crate::native::child_main): as a rule, this very one.
    pub program: PathBuf,
    /// The arguments that lead it there.
    pub program_args: Vec<OsString>,
    /// The folder of builds.
    pub cache: PathBuf,
    /// How long one compilation may take; a minute where it is `None`.
    pub build_deadline: Option<Duration>,
    /// How long one run may take: some tens of times what the processor itself would.
    pub deadline: Duration,
}

impl EmulatedOptions {
    /// The usual limits, for a program and the arguments that lead it to [`child_main`](crate::native::child_main).
    #[must_use]
    pub fn new(program: PathBuf, program_args: Vec<OsString>, cache: PathBuf) -> Self {
        Self { program, program_args, cache, build_deadline: None, deadline: Duration::from_mins(2) }
    }
}

/// A processor that is emulated.
#[derive(Clone)]
pub struct Emulated(Arc<Inner>);

struct Inner {
    processor: Processor,
    machine: Machine,
    emulator: Emulator,
    sandbox: Arc<Sandbox>,
}

/// What there is on this machine to emulate an architecture with; in words what is missing.
///
/// # Errors
/// No QEMU, one whose plugins are of another kind, or no cross compiler.
pub fn tools(arch: &str) -> Result<String, String> {
    let qemu = emulator::qemu_version(arch)?;
    let compiler = emulator::compiler_version(&format!("{arch}-linux-gnu-g++")).map_err(|fault| fault.to_string())?;
    Ok(format!("{qemu}; {compiler}"))
}

impl Emulated {
    /// A workshop for this processor.
    ///
    /// # Errors
    /// [`Fault::Absent`] where there is no emulator for it on this machine.
    pub fn new(processor: Processor, options: EmulatedOptions) -> Result<Self, Fault> {
        let sandbox = Arc::new(Sandbox::new(options.program, options.program_args));
        let deadlines = (options.build_deadline, options.deadline);
        let emulator = Emulator::new(processor, Arc::clone(&sandbox), options.cache, deadlines)?;
        Ok(Self(Arc::new(Inner { processor, machine: machine(processor), emulator, sandbox })))
    }

    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, Fault> + Send + 'static,
    ) -> Step<'_, Result<T, Fault>> {
        let inner = Arc::clone(&self.0);
        blocking(move || work(&inner))
    }
}

/// What is known of a processor by its record.
fn machine(processor: Processor) -> Machine {
    let what = |name: &str| NAMES.iter().find(|(_, known, _)| *known == name).map(|(_, _, what)| (*what).to_owned());
    let known = records::named(processor.name()).unwrap_or_default().into_iter();
    let value = format!(
        "by QEMU ({}), for its results alone: what counts is the time on the processor itself",
        processor.emulated().0
    );
    let emulated = Fact { name: "emulated".into(), value };
    let facts = known.filter_map(|factor| Some(Fact { name: what(&factor.name)?, value: factor.value }));
    Machine {
        kind: MachineKind::Cpu,
        name: format!("{} (emulated)", processor.full_name()),
        arch: Arch::Cpu(processor.arch().to_owned()),
        facts: [emulated].into_iter().chain(facts).collect(),
        bandwidths: vec![],
        peak_flops: None,
    }
}

/// Both sides' arguments of so many calls, each call on contents of its own.
struct Arguments {
    layout: Layout,
    /// What the reference gets, and what the candidate gets: they differ in their poison alone.
    sides: [Vec<u8>; 2],
    /// What the candidate's outputs hold before each call.
    poisons: Vec<[u8; 8]>,
}

impl Arguments {
    fn drawn(task: &Task, case: &Case, calls: usize) -> Result<Self, Fault> {
        let (layout, mut rng) = (layout(task, case)?, StdRng::from_os_rng());
        let mut sides = [0, 1].map(|_| vec![0_u8; layout.slot_bytes * calls]);
        rng.fill(&mut sides[1][..]);
        let mut poisons = vec![];
        for slot in 0..calls {
            let both: [[u8; 8]; 2] = [rng.random(), rng.random()];
            poisons.push(both[1]);
            for array in &layout.arrays {
                let start = slot * layout.slot_bytes + array.offset;
                let place = start..start + array.bytes;
                if array.is_input() {
                    fill(&mut sides[0][place.clone()], array.dtype, array.fill, &mut rng);
                    let [reference, candidate] = &mut sides;
                    candidate[place.clone()].copy_from_slice(&reference[place]);
                } else {
                    for (side, own) in sides.iter_mut().zip(both) {
                        repeat(&poison(array.dtype, own)[..array.dtype.bytes()], &mut side[place.clone()]);
                    }
                }
            }
        }
        Ok(Self { layout, sides, poisons })
    }

    /// Compares every element of every call, and looks at what the candidate left around it.
    fn verify(&self, task: &Task, left: [&[u8]; 2]) -> Attempt<()> {
        let (layout, case) = (&self.layout, || self.layout.case.clone());
        for (slot, own) in self.poisons.iter().enumerate() {
            let at = |range: std::ops::Range<usize>| {
                let start = slot * layout.slot_bytes;
                start + range.start..start + range.end
            };
            for array in &layout.arrays {
                let bytes = array.offset..array.offset + array.bytes;
                let zones = [array.room.start..array.offset, bytes.end..array.room.end];
                let beside = zones.into_iter().any(|zone| left[1][at(zone.clone())] != self.sides[1][at(zone)]);
                if beside {
                    return Err(Failure::OutOfBounds { case: case(), argument: array.name.clone() }.into());
                }
                if !array.is_output() {
                    if left[1][at(bytes.clone())] != self.sides[1][at(bytes)] {
                        return Err(Failure::InputChanged { case: case(), argument: array.name.clone() }.into());
                    }
                    continue;
                }
                let poison = poison(array.dtype, *own);
                let poison = (!array.is_input()).then(|| &poison[..array.dtype.bytes()]);
                let found =
                    compare(array.dtype, &left[0][at(bytes.clone())], &left[1][at(bytes)], &task.tolerance, poison);
                if !found.passes(task.tolerance.share) {
                    return Err(mismatch(case(), array, &found, false).into());
                }
            }
        }
        Ok(())
    }
}

/// The bytes that a case takes; in words why it does not fit.
fn fits(task: &Task, case: &Case) -> Result<u64, String> {
    let bytes = Layout::of(context(task).map_err(|fault| fault.to_string())?, case)?.array_bytes();
    match bytes {
        0 => Err(format!("case `{}` has no data", case.name)),
        _ if bytes > LARGEST_CASE => Err(format!(
            "case `{}` takes {} MiB; a processor that is emulated gets {} MiB at most",
            case.name,
            bytes >> 20,
            LARGEST_CASE >> 20
        )),
        _ => Ok(bytes),
    }
}

impl Inner {
    /// The reference, built by the same compiler as candidates.
    fn reference(&self, task: &Task) -> Attempt<PathBuf> {
        trusted(self.emulator.build(context(task)?, task.reference()))
    }

    fn build(&self, task: &Task, candidate: &Candidate) -> Attempt<Built> {
        let _stage = stage::begin(Stage::Build);
        let artifact = self.emulator.build(context(task)?, &unit::text(context(task)?, candidate)?)?;
        Ok(Built { candidate: candidate.clone(), artifact })
    }

    /// Compares on every case.
    fn check(&self, task: &Task, built: &Built, suite: &Suite) -> Attempt<()> {
        let _stage = stage::begin(Stage::Check);
        let reference = self.reference(task)?;
        for case in &suite.cases {
            fits(task, case).map_err(Fault::Machine)?;
            let arguments = Arguments::drawn(task, case, 2)?;
            let right = trusted(self.emulator.run(&reference, &arguments.layout, &arguments.sides[0], 2))?;
            let got = self.emulator.run(&built.artifact, &arguments.layout, &arguments.sides[1], 2)?;
            arguments.verify(task, [&right.memory, &got.memory])?;
        }
        Ok(())
    }

    /// Instructions of one call of each timed case: those of two calls, without those of one.
    fn count(&self, task: &Task, verified: &Verified, suite: &Suite) -> Attempt<Counts> {
        let _stage = stage::begin(Stage::Replay);
        let (reference, mut cases) = (self.reference(task)?, vec![]);
        for case in suite.cases.iter().filter(|case| suite.timed.contains(&case.name)) {
            let arguments = Arguments::drawn(task, case, 2)?;
            let of =
                |side: usize, built, calls| self.emulator.run(built, &arguments.layout, &arguments.sides[side], calls);
            let right = [1, 2].map(|calls| trusted(of(0, &reference, calls)));
            let got = [1, 2].map(|calls| of(1, &verified.built.artifact, calls));
            let ([right_one, right_two], [one, two]) = (right, got);
            let ([right_one, right_two], [one, two]) = ([right_one?, right_two?], [one?, two?]);
            // Nothing is counted that was not right when it was counted.
            arguments.verify(task, [&right_two.memory, &two.memory])?;
            let reference = right_two.instructions.saturating_sub(right_one.instructions);
            let candidate = two.instructions.saturating_sub(one.instructions);
            cases.push(CaseCounts { case: case.name.clone(), reference, candidate });
        }
        Ok(Counts { processor: self.processor, cases })
    }
}

fn no_times<T>() -> Result<T, Fault> {
    Err(Fault::Absent(NO_TIMES.to_owned()))
}

impl Workshop for Emulated {
    fn machine(&self) -> &Machine {
        &self.0.machine
    }

    fn fits<'a>(&'a self, task: &'a Task, cases: &'a [Case]) -> Step<'a, Result<Fits, Fault>> {
        let fits = cases.iter().map(|case| fits(task, case)).collect();
        Box::pin(std::future::ready(Ok(fits)))
    }

    /// Builds the reference and checks it against itself; there is no time of it.
    fn prepare<'a>(&'a self, task: &'a Task, suite: &'a Suite, _: &'a TimingPlan) -> Step<'a, Result<Baseline, Fault>> {
        let (task, suite) = (task.clone(), suite.clone());
        self.blocking(move |inner| {
            let itself = || {
                let artifact = inner.reference(&task)?;
                let built = Built { candidate: Candidate::new(task.reference()), artifact };
                inner.check(&task, &built, &suite)
            };
            outcome(trusted(itself()))?.map_err(|failure| Fault::of_reference(&failure))?;
            Ok(Baseline::new(vec![], inner.emulator.describe(context(&task)?)?))
        })
    }

    fn build<'a>(&'a self, task: &'a Task, candidate: &'a Candidate) -> Step<'a, Outcome<Built>> {
        let (task, candidate) = (task.clone(), candidate.clone());
        self.blocking(move |inner| outcome(inner.build(&task, &candidate)))
    }

    fn check<'a>(&'a self, task: &'a Task, built: Built, suite: &'a Suite) -> Step<'a, Outcome<Verified>> {
        let (task, suite) = (task.clone(), suite.clone());
        self.blocking(move |inner| outcome(inner.check(&task, &built, &suite).map(|()| Verified { built })))
    }

    fn measure<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
        _: &'a TimingPlan,
        _: f64,
    ) -> Step<'a, Result<Evaluation, Fault>> {
        let (task, verified, suite) = (task.clone(), verified.clone(), suite.clone());
        self.blocking(move |inner| {
            let counted = outcome(inner.count(&task, &verified, &suite))?;
            Ok(counted.map_or_else(Evaluation::Failed, Evaluation::Counted))
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
        Box::pin(std::future::ready(no_times()))
    }

    fn profile<'a>(&'a self, _: &'a Task, _: &'a Verified, _: &'a Suite) -> Step<'a, Result<Profile, Fault>> {
        Box::pin(std::future::ready(no_times()))
    }

    fn print<'a>(&'a self, text: &'a str, bindings: &'a Bindings) -> Step<'a, Outcome<String>> {
        let (text, bindings) = (text.to_owned(), bindings.clone());
        self.blocking(move |inner| outcome(script::print(&inner.sandbox, &text, &bindings)))
    }

    fn rebuild<'a>(&'a self, _: &'a Task, _: &'a Candidate) -> Step<'a, Result<Rebuilt, Fault>> {
        Box::pin(std::future::ready(no_times()))
    }

    fn certify<'a>(&'a self, _: &'a Task, _: Rebuilt, _: &'a TimingPlan) -> Step<'a, Result<Certificate, Fault>> {
        Box::pin(std::future::ready(no_times()))
    }
}
