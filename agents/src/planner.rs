//! The main loop. The Planner asks; nobody asks the Planner but for its status.

mod feature;
mod hands;
mod lookup;
mod operator;
mod reflect;
mod remember;
mod round;
mod same_code;
mod search;
mod steered;
mod talk;
mod tuning;
mod weigh;
mod workflow;

use crate::crew::Crew;
use crate::event::{End, Event, FORMAT, Step};
use crate::lease::{Work, Worked};
use crate::llm::{AskError, Purpose, Role};
use crate::log::{Log, LogError};
use crate::notebook::Notebook;
use crate::policy::{self, Decider, Policy, Shapes};
use crate::tester::{Certify, FreezeSuite, Prepare, ProposeShapes};
use crate::trajectory::Trajectory;
use kameo::prelude::*;
use kernelbench::{Fault, Task, TimedCases};
use std::{ops::ControlFlow, sync::Arc};
use talk::{Told, asked};
use tokio::sync::oneshot;

pub use workflow::Request;

/// Candidates that are offered for certification, fastest first, before none is certified.
const CERTIFICATIONS: usize = 3;

/// One task to work on, from where its record ends.
pub struct Job {
    /// The task.
    pub task: Task,
    /// How to work on it.
    pub policy: Policy,
    /// What has happened; [`Trajectory::default`] at first.
    pub so_far: Trajectory,
    /// Where it is written down.
    pub log: Box<dyn Log>,
    /// Whether a limit is reached; asked before each round and each model call. What is under way then is finished, and
    /// the best candidate is certified.
    pub limit: Limit,
}

/// Whether a limit is reached, by what has happened and by what it knows itself, and which.
pub type Limit = Arc<dyn Fn(&Trajectory) -> Option<End> + Send + Sync>;

/// No limit but the policy's rounds.
#[must_use]
pub fn no_limit() -> Limit {
    Arc::new(|_| None)
}

/// Why a run broke off. No candidate is to blame for any of these, and [`work`] goes on from the record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokeOff {
    /// A reply is not there yet.
    #[error("waiting for a reply to {0}")]
    Waiting(String),
    /// The model.
    #[error(transparent)]
    Model(AskError),
    /// The record that answers holds no more replies: an end, not an accident.
    #[error("{0}")]
    RecordEnds(String),
    /// A limit is reached: an end, not an accident.
    #[error("a limit is reached: {}", .0.limit().unwrap_or("rounds"))]
    Limit(End),
    /// The machine.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The record.
    #[error("the record could not be written or read: {0}")]
    Log(#[from] LogError),
    /// What was asked for cannot be done to this context: whoever asked is told why.
    #[error("{0}")]
    Refused(String),
    /// An actor died: a defect of this program.
    #[error("{0}: this is a defect of the program; the record is whole, and the run can be resumed")]
    Gone(String),
}

impl From<AskError> for BrokeOff {
    fn from(err: AskError) -> Self {
        match err {
            AskError::Waiting(file) => Self::Waiting(file),
            AskError::RecordEnds(why) => Self::RecordEnds(why),
            other => Self::Model(other),
        }
    }
}

/// Works on one task until it ends or breaks off. Everything that happens is in its log.
///
/// # Errors
///
/// Why it broke off; the record then holds all that happened before.
pub async fn work(job: Job, crew: &Crew) -> Result<Trajectory, BrokeOff> {
    drive(job, None, crew).await
}

/// Finishes what was ordered of a workflow, applies these transformations to it one behind the other, and leaves it open:
/// nothing is certified, and the record does not end.
///
/// # Errors
///
/// Why it broke off, or why a transformation is refused.
pub async fn transform(job: Job, requests: Vec<Request>, crew: &Crew) -> Result<Trajectory, BrokeOff> {
    drive(job, Some(requests), crew).await
}

async fn drive(job: Job, requests: Option<Vec<Request>>, crew: &Crew) -> Result<Trajectory, BrokeOff> {
    let (planner, done) = Planner::new(job, requests, crew.clone());
    let planner = Planner::spawn(planner);
    let gone = |_| BrokeOff::Gone("the planner stopped in the middle of its work".to_owned());
    planner.tell(Begin).await.map_err(|_| BrokeOff::Gone("the planner could not begin".to_owned()))?;
    done.await.map_err(gone)?
}

/// What the loop works with.
struct Loop {
    task: Arc<Task>,
    policy: Policy,
    crew: Crew,
    book: Notebook,
    limit: Limit,
    requests: Option<Vec<Request>>,
}

impl Loop {
    /// The loop.
    async fn run(&mut self) -> Result<(), BrokeOff> {
        if let Some(requests) = self.requests.take() {
            return self.apply_all(requests).await;
        }
        let end = match self.open_and_go_round().await {
            Err(BrokeOff::RecordEnds(_)) => End::RecordEnds,
            Err(BrokeOff::Limit(end)) => end,
            end => end?,
        };
        self.certify().await?;
        self.note(Event::Ended { end })
    }

    async fn open_and_go_round(&mut self) -> Result<End, BrokeOff> {
        self.open().await?;
        self.rounds().await
    }

    /// Round after round, until there is none to do.
    async fn rounds(&mut self) -> Result<End, BrokeOff> {
        loop {
            self.checkpoint_if_due()?;
            self.weigh_if_due().await?;
            self.reflect_if_due().await?;
            match self.next().await? {
                ControlFlow::Break(end) => return Ok(end),
                ControlFlow::Continue(step) => self.round(step).await?,
            }
        }
    }

    /// What comes before the first round: the shapes, and the reference.
    async fn open(&mut self) -> Result<(), BrokeOff> {
        if self.book.so_far().task.is_none() {
            self.note_opened()?;
        }
        if self.book.so_far().baseline.is_none() {
            self.within_limits()?;
        }
        if self.book.so_far().suite.is_none() {
            let proposed = self.propose_shapes().await?;
            let timed = self.timed_cases();
            let freeze = FreezeSuite { task: self.task.clone(), proposed, timed };
            let (suite, notes) = asked(&self.crew.tester.suite, freeze).await?;
            self.note(Event::SuiteFrozen { suite, notes })?;
        }
        if self.book.so_far().baseline.is_none() {
            let prepare = Prepare { task: self.task.clone(), suite: self.suite(), plan: self.policy.timing };
            let worked = asked(&self.crew.tester.prepare, prepare).await?;
            let baseline = self.note_spent(Work::Prepare, worked)?;
            self.note(Event::Prepared { baseline })?;
        }
        self.take_signature();
        Ok(())
    }

    /// What preparing the reference found out about a problem's module stands in every prompt from here on.
    fn take_signature(&mut self) {
        if let Some(baseline) = &self.book.so_far().baseline {
            self.task = Arc::new((*self.task).clone().with_signature(&baseline.signature));
        }
    }

    fn note_opened(&mut self) -> Result<(), BrokeOff> {
        let task = serde_json::to_string(&*self.task).map_err(|e| LogError(e.to_string()))?;
        let policy = toml::to_string(&self.policy).map_err(|e| LogError(e.to_string()))?;
        let (task, policy) = (self.book.keep(&task)?, self.book.keep(&policy)?);
        self.note(Event::Opened {
            format: FORMAT,
            task,
            name: self.task.name.clone(),
            policy,
            model: self.crew.llm.describe(),
            machine: self.crew.machine.clone(),
        })
    }

    /// A model's shapes, where the policy wants them and they can be had.
    async fn propose_shapes(&mut self) -> Result<Option<Vec<kernelbench::Case>>, BrokeOff> {
        if self.policy.shapes == Shapes::Task {
            return Ok(None);
        }
        let (task, tester) = (self.task.clone(), self.crew.tester.shapes.clone());
        let told = self.ask_twice(0, Role::Tester, Purpose::Shapes, |call, earlier| {
            let propose = ProposeShapes { call, task: task.clone(), earlier };
            asked(&tester, propose)
        });
        match told.await {
            Ok(Told::Read(cases)) => Ok(Some(cases)),
            // Without a proposal there are still the task's own cases.
            Ok(Told::Unreadable(_) | Told::PassedOver) | Err(BrokeOff::RecordEnds(_) | BrokeOff::Limit(_)) => Ok(None),
            Err(err) => Err(err),
        }
    }

    fn timed_cases(&self) -> TimedCases {
        self.policy.timed.clone().unwrap_or_else(|| self.task.timed.clone())
    }

    /// What to do next: the open round first; else what the policy says, or a model within what the policy allows.
    async fn next(&mut self) -> Result<ControlFlow<End, Step>, BrokeOff> {
        if let Some(open) = self.book.so_far().open() {
            return Ok(ControlFlow::Continue(open.step.clone()));
        }
        let rule = policy::next(self.book.so_far(), &self.policy);
        if rule.is_continue() {
            self.within_limits()?;
        }
        if self.policy.sequence.is_some() && self.policy.planner == Decider::Model {
            return self.after_the_sequence(rule).await;
        }
        // A first step leaves no choice.
        let free = self.book.so_far().finished().next().is_some() && rule.is_continue();
        if self.policy.planner == Decider::Rule || !free {
            return Ok(rule);
        }
        Ok(self.propose().await?.unwrap_or(rule))
    }

    /// The best candidate is examined anew; one that is refused gives way to the next best.
    async fn certify(&mut self) -> Result<(), BrokeOff> {
        while self.book.so_far().certified().is_none() && self.book.so_far().certificates.len() < CERTIFICATIONS {
            let Some(best) = self.book.so_far().best() else { break };
            let candidate = self.book.candidate(&best.candidate)?;
            let certify = Certify { task: self.task.clone(), candidate, plan: self.policy.timing };
            let worked = asked(&self.crew.tester.certify, certify).await?;
            let certificate = self.note_spent(Work::Certify, worked)?;
            let evidence = Some(self.book.evidence(&certificate));
            self.note(Event::Certified { certificate, evidence })?;
        }
        Ok(())
    }

    fn note(&mut self, event: Event) -> Result<(), BrokeOff> {
        Ok(self.book.note(event)?)
    }

    /// Notes what a job took, and gives what it came to.
    fn note_spent<T>(&mut self, work: Work, worked: Worked<T>) -> Result<T, BrokeOff> {
        let Worked { result, build_ms, lease, stages } = worked;
        self.note(Event::Spent { work, build_ms, lease, stages })?;
        Ok(result)
    }

    fn within_limits(&self) -> Result<(), BrokeOff> {
        (self.limit)(self.book.so_far()).map_or(Ok(()), |end| Err(BrokeOff::Limit(end)))
    }
}

/// The Planner of one task. What it has come to stands in its log, for whoever wants to know while it works.
#[derive(Actor)]
struct Planner {
    work: Option<(Loop, oneshot::Sender<Result<Trajectory, BrokeOff>>)>,
}

/// Start, or go on from where the record ends.
struct Begin;
/// The loop is over.
struct Done;

impl Planner {
    fn new(
        job: Job,
        requests: Option<Vec<Request>>,
        crew: Crew,
    ) -> (Self, oneshot::Receiver<Result<Trajectory, BrokeOff>>) {
        let (done, result) = oneshot::channel();
        let mut crew = crew;
        // What is said of the machine stays as it was first said, so that a question is the same when it is asked again.
        if let Some(known) = job.so_far.machine.as_ref().filter(|known| known.name == crew.machine.name) {
            crew.machine = known.clone();
        }
        let book = Notebook::new(job.log, job.so_far);
        let work = Loop { task: Arc::new(job.task), policy: job.policy, crew, book, limit: job.limit, requests };
        (Self { work: Some((work, done)) }, result)
    }
}

impl Message<Begin> for Planner {
    type Reply = ();

    async fn handle(&mut self, _: Begin, ctx: &mut Context<Self, ()>) {
        let Some((mut work, done)) = self.work.take() else { return };
        // Off the mailbox, so that the actor can be stopped meanwhile: a run takes hours.
        ctx.pipe(async move {
            let result = work.run().await;
            if let Err(why) = &result
                && !matches!(why, BrokeOff::Log(_) | BrokeOff::Waiting(_) | BrokeOff::Refused(_))
            {
                // What cannot be noted now is known from the missing end.
                let _ = work.note(Event::BrokeOff { why: why.to_string() });
            }
            let trajectory = work.book.so_far().clone();
            // Nobody listening is nobody's loss: the record has it all.
            let _ = done.send(result.map(|()| trajectory));
            Done
        });
    }
}

impl Message<Done> for Planner {
    type Reply = ();

    async fn handle(&mut self, _: Done, ctx: &mut Context<Self, ()>) {
        ctx.stop();
    }
}
