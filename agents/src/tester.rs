//! The Tester: shapes once, then a candidate in, an evaluation out.

use crate::answer::{self, Answer, Earlier};
use crate::device::{CertifyCandidate, CheckAlone, CheckAndTime, Device, PrepareReference};
use crate::lease::{Build, Clock, Work, Worked};
use crate::llm::{AskError, CallId, Llm};
use crate::validator::{Validated, Validator};
use kameo::{error::SendError, prelude::*};
use kernelbench::{
    Baseline, Bindings, Candidate, Case, Certificate, Evaluation, Failure, Fault, Hash, Provenance, Suite, Task,
    TimedCases, TimingPlan, Tuned, Unbuilt, Workshop,
};
use metrics::MachineKind;
use prompts::Prompts;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Shapes that a model is asked for (CudaForge, Appendix B).
pub const SHAPES: usize = 10;

/// The most bytes that all arrays of one proposed shape may take: on a GPU enough for a product of 4096 by 4096 in single
/// precision (CudaForge, Appendix B: from there on), elsewhere more than caches hold.
#[must_use]
pub const fn shape_bytes(on: MachineKind) -> u64 {
    match on {
        MachineKind::Gpu => 256 << 20,
        MachineKind::Cpu | MachineKind::Simulated => 32 << 20,
    }
}

/// Fewer shapes than this test nothing: the task's own are taken.
const FEWEST: usize = 2;

/// Propose shapes to test on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProposeShapes {
    /// Which call this is.
    pub call: CallId,
    /// For which task.
    pub task: Arc<Task>,
    /// The first try, when this is the second.
    pub earlier: Option<Earlier>,
}

/// Make the suite of a run. It is asked for once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreezeSuite {
    /// For which task.
    pub task: Arc<Task>,
    /// What a model proposed; `None` for the task's own cases.
    pub proposed: Option<Vec<Case>>,
    /// Which of them are timed.
    pub timed: TimedCases,
}

/// Build, check and time the reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepare {
    /// Of which task.
    pub task: Arc<Task>,
    /// On which shapes.
    pub suite: Suite,
    /// How.
    pub plan: TimingPlan,
}

/// Say what comes of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Examine {
    /// For which task.
    pub task: Arc<Task>,
    /// Which.
    pub candidate: Candidate,
    /// On which shapes.
    pub suite: Suite,
    /// How it is timed.
    pub plan: TimingPlan,
    /// By what part the reference may differ from itself, as it was seen to.
    pub self_difference: f64,
}

/// Say whether one configuration of a candidate is right, without timing it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// For which task.
    pub task: Arc<Task>,
    /// Which, with nothing left open.
    pub candidate: Candidate,
    /// On which shapes.
    pub suite: Suite,
    /// Whether it runs under sanitizers too.
    pub sanitize: bool,
}

/// Have a validator of the user's look at one configuration of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validate {
    /// For which task.
    pub task: Arc<Task>,
    /// Which, with nothing left open.
    pub candidate: Candidate,
    /// By whom.
    pub validator: Validator,
}

/// Build some candidates side by side, for what examines them one by one to find them built, and say which cannot be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildAhead {
    /// For which task.
    pub task: Arc<Task>,
    /// Which.
    pub candidates: Vec<Candidate>,
}

/// Run a script that prints primitives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Print {
    /// The script.
    pub script: String,
    /// The values of its parameters.
    pub bindings: Bindings,
}

/// Find the best bindings of a candidate that leaves tuning parameters open, and say what comes of it with those.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tune {
    /// What to examine: the candidate is the open one.
    pub examine: Examine,
    /// How many configurations are tried at most.
    pub tests: usize,
}

/// What a search over bindings came to, and what each of its steps took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Searched {
    /// What it came to.
    pub tuned: Tuned,
    /// What each step took, in order.
    pub spent: Vec<(Work, Worked<()>)>,
}

/// Examine the best candidate anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certify {
    /// For which task.
    pub task: Arc<Task>,
    /// Which.
    pub candidate: Candidate,
    /// How it is timed.
    pub plan: TimingPlan,
}

/// Builds beside the device, checks and times on it.
#[derive(Actor)]
pub struct Tester {
    /// Its model, for shapes.
    pub llm: Arc<dyn Llm>,
    /// Its words.
    pub prompts: Arc<Prompts>,
    /// Builds.
    pub workshop: Arc<dyn Workshop>,
    /// Runs.
    pub device: ActorRef<Device>,
    /// How many candidates may be under way at once, from the build on until the device gives them back.
    pub builds: Arc<Semaphore>,
    /// The clock that leases are read off.
    pub clock: Clock,
}

impl Message<ProposeShapes> for Tester {
    type Reply = DelegatedReply<Result<Answer<Vec<Case>>, AskError>>;

    async fn handle(&mut self, ask: ProposeShapes, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let (llm, words) = (self.llm.clone(), self.prompts.clone());
        let bytes = shape_bytes(self.workshop.machine().kind);
        ctx.spawn(async move {
            let prompt = match &ask.earlier {
                Some(first) => words.again(&first.prompt, &first.reply, &first.why),
                None => words.shapes(&ask.task, SHAPES, bytes),
            };
            answer::ask(&*llm, ask.call, prompt, |reply| prompts::read_shapes(reply, &ask.task)).await
        })
    }
}

impl Message<FreezeSuite> for Tester {
    /// The suite, and what was left out of it and why.
    type Reply = DelegatedReply<Result<(Suite, Vec<String>), Fault>>;

    async fn handle(&mut self, ask: FreezeSuite, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let workshop = self.workshop.clone();
        ctx.spawn(async move { freeze(&*workshop, &ask).await })
    }
}

impl Message<Prepare> for Tester {
    type Reply = DelegatedReply<Result<Worked<Baseline>, Fault>>;

    async fn handle(&mut self, ask: Prepare, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let device = self.device.clone();
        let Prepare { task, suite, plan } = ask;
        ctx.spawn(
            async move { device.ask(PrepareReference { task, suite, plan }).await.map(Worked::from).map_err(fault) },
        )
    }
}

impl Message<Examine> for Tester {
    type Reply = DelegatedReply<Result<Worked<Evaluation>, Fault>>;

    async fn handle(&mut self, ask: Examine, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let (place, builds) = (self.place(), self.builds.clone());
        ctx.spawn(async move {
            let _turn = builds.acquire().await;
            place.examine(ask).await
        })
    }
}

impl Message<Check> for Tester {
    /// How it failed; none where it is right.
    type Reply = DelegatedReply<Result<Worked<Option<Failure>>, Fault>>;

    async fn handle(&mut self, ask: Check, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let (place, builds) = (self.place(), self.builds.clone());
        ctx.spawn(async move {
            let _turn = builds.acquire().await;
            place.check(ask).await
        })
    }
}

impl Message<Validate> for Tester {
    type Reply = DelegatedReply<Result<Validated, Fault>>;

    async fn handle(&mut self, ask: Validate, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let Validate { task, candidate, validator } = ask;
        ctx.spawn(async move { Ok(validator.look_at(&candidate, task.language()).await) })
    }
}

impl Message<BuildAhead> for Tester {
    /// Which cannot be built.
    type Reply = DelegatedReply<Result<Worked<Vec<Unbuilt>>, Fault>>;

    async fn handle(&mut self, ask: BuildAhead, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let place = self.place();
        ctx.spawn(async move { Ok(place.build_ahead(ask).await) })
    }
}

impl Message<Print> for Tester {
    /// What it printed, or how it failed.
    type Reply = DelegatedReply<Result<Result<String, Failure>, Fault>>;

    async fn handle(&mut self, ask: Print, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let workshop = self.workshop.clone();
        ctx.spawn(async move { workshop.print(&ask.script, &ask.bindings).await })
    }
}

impl Message<Tune> for Tester {
    type Reply = DelegatedReply<Result<Searched, Fault>>;

    async fn handle(&mut self, ask: Tune, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let (place, builds) = (self.place(), self.builds.clone());
        ctx.spawn(async move {
            let _turn = builds.acquire().await;
            place.tune(ask).await
        })
    }
}

impl Message<Certify> for Tester {
    type Reply = DelegatedReply<Result<Worked<Certificate>, Fault>>;

    async fn handle(&mut self, ask: Certify, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let (Place { workshop, device, clock }, builds) = (self.place(), self.builds.clone());
        let Certify { task, candidate, plan } = ask;
        ctx.spawn(async move {
            let _turn = builds.acquire().await;
            let (rebuilt, took) = Build::timed(clock, workshop.rebuild(&task, &candidate)).await;
            let certify = CertifyCandidate { task, rebuilt: rebuilt?, plan };
            let leased = device.ask(certify).await.map_err(fault)?;
            Ok(Worked::from(leased).after(took))
        })
    }
}

/// Where candidates are worked on.
struct Place {
    workshop: Arc<dyn Workshop>,
    device: ActorRef<Device>,
    clock: Clock,
}

impl Tester {
    fn place(&self) -> Place {
        Place { workshop: self.workshop.clone(), device: self.device.clone(), clock: self.clock }
    }
}

impl Place {
    /// Builds a candidate beside the device, then has it checked and timed there.
    async fn examine(&self, ask: Examine) -> Result<Worked<Evaluation>, Fault> {
        let Examine { task, candidate, suite, plan, self_difference } = ask;
        // Building needs no device, so it waits for none.
        let (built, took) = Build::timed(self.clock, self.workshop.build(&task, &candidate)).await;
        let built = match built? {
            Ok(built) => built,
            Err(failure) => return Ok(took.ended(Evaluation::Failed(failure))),
        };
        // Read before a candidate runs, in a folder that it may not write to.
        let object = std::fs::read(built.artifact()).ok().map(|content| Hash::of(&content));
        let job = CheckAndTime { task, built, suite, plan, self_difference };
        let mut leased = self.device.ask(job).await.map_err(fault)?;
        if let Evaluation::Passed(timed) = &mut leased.result {
            timed.object = object.or(timed.object.take());
        }
        Ok(Worked::from(leased).after(took))
    }

    /// Builds some on all cores, and says which cannot be built.
    async fn build_ahead(&self, BuildAhead { task, candidates }: BuildAhead) -> Worked<Vec<Unbuilt>> {
        let built = kernelbench::build_ahead(&*self.workshop, &task, candidates);
        let (unbuilt, took) = Build::timed(self.clock, built).await;
        took.ended(unbuilt)
    }

    /// Builds a configuration beside the device, then has it checked there.
    async fn check(&self, ask: Check) -> Result<Worked<Option<Failure>>, Fault> {
        let Check { task, candidate, suite, sanitize } = ask;
        let (built, took) = Build::timed(self.clock, self.workshop.build(&task, &candidate)).await;
        let built = match built? {
            Ok(built) => built,
            Err(failure) => return Ok(took.ended(Some(failure))),
        };
        let leased = self.device.ask(CheckAlone { task, built, suite, sanitize }).await.map_err(fault)?;
        Ok(Worked::from(leased).after(took))
    }

    /// Searches the task's space for the best bindings of an open candidate. The device is free between two configurations.
    async fn tune(&self, ask: Tune) -> Result<Searched, Fault> {
        let Tune { examine: asked, tests } = ask;
        let space = asked.task.context().map(|context| context.tuning.clone()).unwrap_or_default();
        let spent = Mutex::new(vec![]);
        let evaluate = |candidate, plan| {
            let (ask, spent) = (Examine { candidate, plan, ..asked.clone() }, &spent);
            async move {
                let Worked { result, build_ms, lease, stages } = self.examine(ask).await?;
                let worked = Worked { result: (), build_ms, lease, stages };
                spent.lock().unwrap_or_else(PoisonError::into_inner).push((Work::Examine, worked));
                Ok(result)
            }
        };
        let build = |candidates| {
            let (ahead, spent) = (BuildAhead { task: asked.task.clone(), candidates }, &spent);
            async move {
                let Worked { build_ms, lease, stages, .. } = self.build_ahead(ahead).await;
                let worked = Worked { result: (), build_ms, lease, stages };
                spent.lock().unwrap_or_else(PoisonError::into_inner).push((Work::Build, worked));
            }
        };
        let tuned = kernelbench::search(&space, &asked.candidate, &asked.plan, tests, build, evaluate).await?;
        Ok(Searched { tuned, spent: spent.into_inner().unwrap_or_else(PoisonError::into_inner) })
    }
}

/// The suite of the cases that fit, and what was left out. A model's proposal of which too little fits gives way to the
/// task's own cases.
async fn freeze(workshop: &dyn Workshop, ask: &FreezeSuite) -> Result<(Suite, Vec<String>), Fault> {
    let mut notes = vec![];
    if let Some(proposed) = &ask.proposed {
        let fitting = fitting(workshop, &ask.task, proposed, &mut notes).await?;
        if fitting.len() >= FEWEST {
            return Ok((suite(Provenance::Model, &fitting, &ask.timed), notes));
        }
        notes.push(format!("{} proposed shapes fit: the task's own are taken", fitting.len()));
    }
    let fitting = fitting(workshop, &ask.task, &ask.task.cases, &mut notes).await?;
    let refused = |what: String| {
        let why = notes.join("; ");
        Fault::Machine(format!(
            "{what} fit this machine: {why}; `largest_case_mib` under [workshop] allows larger ones"
        ))
    };
    if fitting.is_empty() {
        return Err(refused(format!("the cases of {} do not", ask.task.name)));
    }
    // Another one would be timed in its place.
    if let TimedCases::Case(name) = &ask.timed
        && fitting.iter().all(|(case, _)| case.name != *name)
    {
        return Err(refused(format!("the case of {} that is timed, `{name}`, does not", ask.task.name)));
    }
    Ok((suite(Provenance::Task, &fitting, &ask.timed), notes))
}

async fn fitting(
    workshop: &dyn Workshop,
    task: &Task,
    cases: &[Case],
    notes: &mut Vec<String>,
) -> Result<Vec<(Case, u64)>, Fault> {
    let verdicts = workshop.fits(task, cases).await?;
    let mut fitting = vec![];
    for (case, verdict) in cases.iter().zip(verdicts) {
        match verdict {
            Ok(bytes) => fitting.push((case.clone(), bytes)),
            Err(why) => notes.push(format!("{}: {why}", case.name)),
        }
    }
    Ok(fitting)
}

fn suite(provenance: Provenance, cases: &[(Case, u64)], timed: &TimedCases) -> Suite {
    let names = cases.iter().map(|(case, _)| case.name.clone());
    let known = |name: &String| cases.iter().any(|(case, _)| case.name == *name);
    let timed = match timed {
        TimedCases::All => names.collect(),
        TimedCases::Case(name) if known(name) => vec![name.clone()],
        TimedCases::Largest | TimedCases::Case(_) => {
            cases.iter().max_by_key(|(_, bytes)| *bytes).map(|(case, _)| case.name.clone()).into_iter().collect()
        }
    };
    Suite { provenance, cases: cases.iter().map(|(case, _)| case.clone()).collect(), timed }
}

/// A device that cannot be asked is a fault like any other.
pub(crate) fn fault<M>(err: SendError<M, Fault>) -> Fault {
    match err {
        SendError::HandlerError(fault) => fault,
        _ => Fault::Machine(
            "the device's actor stopped in the middle of a job: this is a defect of the program".to_owned(),
        ),
    }
}
