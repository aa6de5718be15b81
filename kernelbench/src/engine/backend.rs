//! The port of the engine: what differs between a CPU, a GPU without Python, and torch.
//!
//! A backend says how a candidate is built, how both sides are opened, filled, called and compared, and by which numbers it
//! is timed. What is checked, timed, profiled and certified, in which order and with which verdict, is the engine's.

use crate::{
    lease::Lease,
    machine::gpu::Gpu,
    measure::{floor::Traffic, numbers::Numbers, reading::Reading},
    result::{
        candidate::Candidate,
        certificate::Check,
        error::{Attempt, EvalError},
        failure::{Failure, Fault},
        label::Label,
        survey::Survey,
    },
    sandbox::{layer::Layer, pool::Quiet},
    task::{Case, Task, Tolerance, baseline::BaselineKernel, signature::Signature, space::Bindings},
    workshop::{TimingPlan, Variant},
};
use metrics::{Machine, Profile};
use rand::rngs::StdRng;
use std::{path::PathBuf, time::Duration};

use super::notes::LastTiming;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The task's own.
    Reference,
    /// The one to be judged.
    Candidate,
}

/// What inputs are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inputs {
    /// Those of the task.
    Drawn,
    /// The same with numbers of both signs and a wider range.
    Signed,
}

/// How closely outputs are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look<'a> {
    /// By which rule.
    pub(crate) tolerance: &'a Tolerance,
    /// What a failure calls the case.
    pub(crate) case: &'a str,
    /// Of which calls.
    pub(crate) calls: Looked,
}

/// The calls whose outputs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// One of a check.
    Checked {
        /// Whether errors against double precision are asked for, where there is such an oracle.
        oracle: bool,
        /// Whether right outputs are compared once more by another comparator, where there is one.
        twice: bool,
    },
    /// Those that were timed.
    Timed,
    /// One on inputs that the task does not draw: only an output that is its own input is wrong there.
    Beyond,
}

impl Look<'_> {
    /// Whether errors against double precision are asked for.
    pub(crate) fn oracle(&self) -> bool {
        matches!(self.calls, Looked::Checked { oracle: true, .. })
    }

    /// Whether right outputs are compared once more.
    pub(crate) fn twice(&self) -> bool {
        matches!(self.calls, Looked::Checked { twice: true, .. })
    }

    /// Whether the calls were timed.
    pub(crate) fn while_timed(&self) -> bool {
        self.calls == Looked::Timed
    }
}

/// What a comparison found that is no failure.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Root mean square errors against double precision, of reference and candidate, the worst of all outputs.
    pub(crate) errors: Vec<(f64, f64)>,
    /// Why there are none, where they were asked for.
    pub(crate) no_oracle: Option<String>,
    /// How outputs differ, where that decides nothing.
    pub(crate) differs: Option<Failure>,
}

/// How a candidate is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// As quickly as may be, from a cache where it holds the build.
    Quick,
    /// By the stock toolchain, from the text alone in an empty folder.
    Stock,
}

/// Which processes a pair is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processes {
    /// Those that are there, started where they are not.
    AtHand,
    /// New ones of both sides.
    New,
}

/// What stands on the reference's side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standard {
    /// The task's reference, whatever else there is.
    Reference,
    /// What says which outputs are right: the reference, or the task's oracle on the cases that it answers for.
    Outputs,
    /// What speedups are over: the reference, or the baseline that the task names.
    Times,
}

/// Both sides of a step, and the device that they run on.
pub(crate) struct Both<'a, 'gate, B: Backend> {
    pub(crate) session: &'a mut B::Session,
    pub(crate) loaded: &'a mut B::Loaded,
    pub(crate) lease: &'a mut Lease<'gate>,
}

/// A way to run kernels.
pub(crate) trait Backend: Send + Sync + Sized + 'static {
    /// One task, open: its reference, built and perhaps loaded, and what compares.
    type Session: Send + 'static;
    /// A candidate that was built, perhaps in a process that has loaded it.
    type Loaded: Send + 'static;
    /// What profiles are taken with.
    type Tool;
    /// Both sides, ready to be called.
    type Pair<'a>: Pair
    where
        Self: 'a;

    /// What it is checked and timed by.
    fn numbers(&self) -> &Numbers;

    /// The machine.
    fn machine(&self) -> &Machine;

    /// What every deadline has beside twenty times the reference's time.
    fn slack(&self) -> Duration;

    /// What the first call of a candidate has in its place: where kernels are compiled when they are first called, room for
    /// that.
    fn first_slack(&self) -> Duration {
        self.slack()
    }

    /// What inputs are drawn from; secret, from the system's randomness, where it is `None`.
    fn seed(&self) -> Option<u64>;

    /// The GPU, where it can be asked how it is doing.
    fn nvml(&self) -> Option<&Gpu> {
        None
    }

    /// The bytes that a case takes; in words why it does not fit.
    fn fits(&self, task: &Task, case: &Case) -> Result<u64, String>;

    /// The compiler and its flags, or the framework, in a line.
    fn describe_build(&self, task: &Task) -> Result<String, Fault>;

    /// What names a task's session.
    fn key(&self, task: &Task) -> crate::hash::Hash {
        let baselines = task.baselines();
        let more =
            if baselines.is_empty() { String::new() } else { serde_json::to_string(baselines).unwrap_or_default() };
        crate::hash::Hash::of([task.reference(), &more].concat().as_bytes())
    }

    /// Opens a task. Its reference is built by the toolchain that candidates are. Whoever needs the device for that calls
    /// `on_device` once all else is at hand, with the bytes that it takes there, where they are known.
    fn open(&self, task: &Task, toolchain: Toolchain, on_device: &mut dyn FnMut(Option<u64>))
    -> Attempt<Self::Session>;

    /// What is known against a task, from its labels and from an audit of its reference.
    fn labels(&self, session: &Self::Session) -> Vec<Label> {
        let _ = session;
        vec![]
    }

    /// What a problem's module is constructed with, called with, and gives back.
    fn signature(&self, session: &Self::Session) -> Signature {
        let _ = session;
        Signature::default()
    }

    /// Whether a reference that differs from itself in another process is labelled, and no fault of the task.
    fn reference_may_differ(&self) -> bool {
        false
    }

    /// Builds a candidate.
    fn load(&self, task: &Task, candidate: &Candidate, toolchain: Toolchain) -> Attempt<Self::Loaded>;

    /// Builds a baseline, to stand in a candidate's place.
    fn load_baseline(&self, task: &Task, kernel: &BaselineKernel, toolchain: Toolchain) -> Attempt<Self::Loaded> {
        let _ = (task, toolchain);
        Err(kernel.unusable("only kernels in C, C++ and CUDA can have one").into())
    }

    /// What a script prints that makes primitives.
    fn print(&self, script: &str, bindings: &Bindings) -> Attempt<String> {
        let _ = (script, bindings);
        let why = "this backend runs no scripts: only kernels in C and C++ take primitives that a script prints";
        Err(Fault::Absent(why.to_owned()).into())
    }

    /// Where what was built lies.
    fn artifact(&self, loaded: &Self::Loaded) -> PathBuf;

    /// Both sides for one task. A backend without baselines has one standard.
    fn pair<'a>(
        &'a self,
        task: &'a Task,
        session: &'a mut Self::Session,
        loaded: &'a mut Self::Loaded,
        which: (Standard, Processes),
    ) -> Attempt<Self::Pair<'a>>;

    /// Frees what a step left in a session.
    fn tidy(&self, session: &mut Self::Session) -> Attempt<()> {
        let _ = session;
        Ok(())
    }

    /// Makes a candidate ready to wait for its next step, without the device's memory that it can give back; whether it can
    /// wait.
    fn rest(&self, loaded: &mut Self::Loaded) -> Attempt<bool> {
        let _ = loaded;
        Ok(true)
    }

    /// Ends the process of a candidate that gives way to others, where what was compiled for it is worth keeping; `None` where
    /// it is as quickly built again.
    fn put_to_sleep(&self, loaded: Self::Loaded) -> Option<Self::Loaded> {
        let _ = loaded;
        None
    }

    /// Starts a process again for one that was put to sleep.
    fn wake(&self, loaded: &mut Self::Loaded) -> Attempt<()> {
        let _ = loaded;
        Ok(())
    }

    /// Has the process of a configuration of the same text go on with this one, where it can; whether it does. It ends otherwise.
    fn go_on_with(&self, before: Self::Loaded, loaded: &mut Self::Loaded) -> bool {
        let _ = (before, loaded);
        false
    }

    /// Whether a candidate that failed is built once more in another way before that counts, and why, for a label.
    fn in_doubt(&self, loaded: &Self::Loaded, error: &EvalError) -> Option<Label> {
        let _ = (loaded, error);
        None
    }

    /// What is worth a label of how it was built.
    fn build_labels(&self, loaded: &Self::Loaded) -> Vec<Label> {
        let _ = loaded;
        vec![]
    }

    /// What is worth a label of the code that was built.
    fn code_labels(&self, candidate: &Candidate, loaded: &Self::Loaded) -> Vec<Label> {
        let _ = (candidate, loaded);
        vec![]
    }

    /// Starts in the background what the next candidate will need.
    fn get_ready(&self) {}

    /// Keeps the machine quiet until what is returned is dropped: no process of ours starts meanwhile.
    fn quiet(&self) -> Option<Quiet> {
        None
    }

    /// How many steps may use the device side by side while nothing is timed; 1 where each needs it alone.
    fn beside(&self) -> usize {
        1
    }

    /// How many candidates may compile in their first calls while something is timed.
    fn compiling(&self) -> usize {
        0
    }

    /// Whether one candidate is profiled after the other, from the moment its profiler starts.
    fn profiles_in_turn(&self) -> bool {
        true
    }

    /// The device's memory that is free, in bytes, where it is short and known.
    fn free_memory(&self) -> Option<u64> {
        None
    }

    /// Whether other programs compute on the device now, as far as is known: what is short of memory then may be their doing.
    fn is_visited(&self) -> bool {
        self.nvml().is_some_and(|gpu| !gpu.look().strangers.is_empty())
    }

    /// What a step of a candidate takes of it, in bytes, as far as is known.
    fn wanted_memory(&self, session: &Self::Session) -> u64 {
        let _ = session;
        0
    }

    /// What an open task holds of the memory beside that, while it was not offloaded, in bytes.
    fn held_memory(&self, session: &Self::Session) -> u64 {
        let _ = session;
        0
    }

    /// What it takes from its opening to its certificate, in bytes.
    fn whole_memory(&self, session: &Self::Session) -> u64 {
        self.wanted_memory(session) + self.held_memory(session)
    }

    /// What a profile of a candidate takes of it, in bytes, as far as is known.
    fn memory_of_a_profile(&self, session: &Self::Session) -> u64 {
        self.wanted_memory(session)
    }

    /// What a task takes of it of which nothing is known yet, in bytes.
    fn memory_of_a_task(&self) -> u64 {
        0
    }

    /// Whether memory was short while a task was opened, though it was.
    fn was_short(&self, session: &Self::Session) -> bool {
        let _ = session;
        false
    }

    /// Whether the device had no memory for the reference in the step that just ended, though the reference went on: what was
    /// compared with it and timed beside it is then not what it is with enough.
    fn was_refused_memory(&self, session: &mut Self::Session) -> bool {
        let _ = session;
        false
    }

    /// Has an open task give its part of the memory back until it is worked with again; `false` where it must be closed for that.
    fn offload(&self, session: &mut Self::Session) -> Attempt<bool> {
        let _ = session;
        Ok(false)
    }

    /// Whether it has.
    fn is_offloaded(&self, session: &Self::Session) -> bool {
        let _ = session;
        false
    }

    /// Has it take its part again.
    fn reload(&self, session: &mut Self::Session) -> Attempt<()> {
        let _ = session;
        Ok(())
    }

    /// Whether a candidate that waits may hold some of it.
    fn holds_memory(&self, loaded: &Self::Loaded) -> bool {
        let _ = loaded;
        false
    }

    /// The reference run in other ways, timed beside it.
    fn variants(
        &self,
        task: &Task,
        session: &mut Self::Session,
        plan: &TimingPlan,
        lease: &mut Lease<'_>,
    ) -> Result<Vec<Variant>, Fault> {
        let _ = (task, session, plan, lease);
        Ok(vec![])
    }

    /// What a profile of this candidate is taken with, ready to be used: whoever waits for it needs no device.
    fn tool(&self, loaded: &Self::Loaded) -> Self::Tool;

    /// Profiles one case. Whatever is read is read while the lease is held alone; `make_room` has those who wait give way until
    /// so many bytes of the device are free, or nobody waits.
    fn profile(
        &self,
        task: &Task,
        with: (Both<'_, '_, Self>, Self::Tool),
        case: &Case,
        timing: Option<&LastTiming>,
        rng: &mut StdRng,
        make_room: &dyn Fn(u64),
    ) -> Attempt<Profile>;

    /// Reads everything that a profiler here reads of each launch of one case; in words why there is nothing to be had.
    fn survey(
        &self,
        task: &Task,
        session: &mut Self::Session,
        loaded: &mut Self::Loaded,
        case: &Case,
        rng: &mut StdRng,
    ) -> Attempt<Result<Survey, String>> {
        let _ = (task, session, loaded, case, rng);
        Ok(Err("no profiler of this workshop reads everything: only kernels in CUDA are surveyed".to_owned()))
    }

    /// Runs a candidate under a sanitizer. A finding is a failure; what was looked at, or could not be, is a row. Beside others;
    /// what takes long and needs no device may be done aside from it.
    fn sanitize(
        &self,
        task: &Task,
        both: Both<'_, '_, Self>,
        candidate: &Candidate,
        rng: &mut StdRng,
    ) -> Attempt<Vec<Check>>;

    /// What kind of win a certified candidate's is, which is so many times as fast as the reference: rows, and labels among them.
    fn kind_of_win(
        &self,
        both: Both<'_, '_, Self>,
        candidate: &Candidate,
        ratio: f64,
        rng: &mut StdRng,
    ) -> Attempt<(Vec<Check>, Vec<Label>)> {
        let _ = (both, candidate, ratio, rng);
        Ok((vec![], vec![]))
    }

    /// What an evaluation that is not ours says of a certified candidate, which is so many times as fast as the reference, where
    /// one was asked for: a row that decides nothing. Nothing of the task is open; the lease has all of the device, and nobody
    /// else anything of it, once `be_alone` was called.
    fn evaluated_elsewhere(
        &self,
        task: &Task,
        (candidate, ratio): (&Candidate, f64),
        lease: &mut Lease<'_>,
        be_alone: &dyn Fn(&mut Lease<'_>),
    ) -> Option<Check> {
        let _ = (task, candidate, ratio, lease, be_alone);
        None
    }

    /// What this backend cannot exclude on any machine, for certificates: what, and why.
    fn not_excluded(&self) -> Vec<(&'static str, &'static str)>;
}

/// Both sides of one task, each in a process of its own.
pub(crate) trait Pair {
    /// Has both called on this case from here on: the most calls that a request may hold.
    fn enter(&mut self, case: &Case) -> Attempt<usize>;

    /// Says how many calls a request makes, each on arguments of its own, and whether it will be timed. Whether launches are
    /// replayed as they were recorded, so that issuing them does not hold them up; true where that makes no difference.
    fn prepare(&mut self, calls: usize, timed: bool) -> Attempt<bool>;

    /// In how many ways arguments can lie in memory; how they lie after `enter` is the first.
    fn placements(&self) -> usize {
        1
    }

    /// Has arguments lie in another of these ways from here on, with contents at the ends of their ranges too.
    fn place(&mut self, at: usize) -> Attempt<()> {
        let _ = at;
        Ok(())
    }

    /// Has the same processes hold the arguments of several cases, to be turned to; which of them fit, the smallest first.
    /// None where cases share their processes anyway.
    fn enter_all(&mut self, cases: &[Case]) -> Attempt<Vec<usize>> {
        let _ = cases;
        Ok(vec![])
    }

    /// Has both called on one of the cases that were entered, by its place among them.
    fn turn_to(&mut self, entered: usize) -> Attempt<()> {
        let _ = entered;
        Ok(())
    }

    /// Calls the candidate again and again on the same arguments: what is to be known of the memory that it holds.
    fn wear(&mut self, deadline: Duration) -> Attempt<Option<Label>> {
        let _ = deadline;
        Ok(None)
    }

    /// Draws fresh contents for a request, the same for both sides, and poisons what outputs are written to.
    fn draw(&mut self, inputs: Inputs, rng: &mut StdRng) -> Attempt<()>;

    /// Has a side make the calls of its request; `None` where that cannot count, because its outputs lie where none was
    /// looked for: then the request is drawn anew.
    fn call(&mut self, side: Side, deadline: Duration, rng: &mut StdRng) -> Attempt<Option<Reading>>;

    /// Has the candidate make its first calls, which are not timed. While they compile they need no device, and may step aside
    /// from it.
    fn first_call(&mut self, deadline: Duration, lease: &mut Lease<'_>, rng: &mut StdRng) -> Attempt<()> {
        let _ = lease;
        self.call(Side::Candidate, deadline, rng).map(|_| ())
    }

    /// Whether the candidate's model was not called yet: its first call may compile.
    fn is_new(&self) -> bool {
        false
    }

    /// What a request costs that calls nothing, in nanoseconds, as a timed one is sent. Of the reference's process.
    fn empty(&mut self, rng: &mut StdRng) -> Attempt<f64> {
        let _ = rng;
        Ok(0.0)
    }

    /// Compares every element of what both put out, and looks at what the candidate left around it.
    fn verify(&mut self, look: &Look<'_>) -> Attempt<Found>;

    /// The bytes of one call of this case.
    fn traffic(&self) -> Traffic;

    /// What one call of this case takes by the reference's own clock, in nanoseconds, where that was found out before.
    fn known_call_ns(&self) -> Option<f64>;

    /// Takes note of it.
    fn note_call_ns(&mut self, ns: f64);

    /// Looks at what the candidate did beside its outputs: memory that it keeps, processes that it left.
    fn look_around(&mut self) -> Attempt<()>;

    /// In words, that others used the device since this was last asked, as far as our own work on it shows that.
    fn shared(&mut self) -> Option<String> {
        None
    }

    /// How the candidate's process is confined.
    fn layers(&self) -> Vec<Layer>;
}
