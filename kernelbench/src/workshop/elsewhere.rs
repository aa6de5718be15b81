//! A workshop on other hosts: it knows their kind of machine, and has whole steps carried there and their findings back.

use crate::{
    result::{
        candidate::{Built, Candidate, Verified},
        certificate::Certificate,
        evaluation::{Evaluation, Timed},
        failure::{Failure, Fault, Outcome},
    },
    stage,
    task::{Case, Task, suite::Suite},
    workshop::{
        Baseline, Fits, Rebuilt, Step, TimingPlan, Workshop,
        job::{Asked, Done, Found, Job},
    },
};
use metrics::{Machine, Profile};
use std::{path::PathBuf, sync::Arc};

/// How a job is carried to whoever does it.
pub type Carry = dyn Fn(Job) -> Step<'static, Result<Done, Fault>> + Send + Sync;

/// Workshops on other hosts, of one kind of machine.
pub struct Elsewhere {
    machine: Machine,
    carry: Box<Carry>,
}

impl Elsewhere {
    /// Those with this machine, which jobs are carried to in this way.
    #[must_use]
    pub fn new(machine: Machine, carry: Box<Carry>) -> Self {
        Self { machine, carry }
    }

    /// A workshop of this process, asked as if it were elsewhere.
    #[must_use]
    pub fn beside(workshop: Arc<dyn Workshop>, device: &str) -> Self {
        let (machine, device) = (workshop.machine().clone(), device.to_owned());
        let carry = move |job: Job| -> Step<'static, Result<Done, Fault>> {
            let (workshop, hand) = (workshop.clone(), stage::Hand::named(&device));
            Box::pin(async move {
                let (found, stages) = job.work(&*workshop).await;
                Ok(Done { found, hand, stages })
            })
        };
        Self::new(machine, Box::new(carry))
    }

    /// Builds, checks and times there.
    ///
    /// # Errors
    ///
    /// What broke there or on the way.
    pub async fn evaluate(
        &self,
        task: &Task,
        candidate: &Candidate,
        suite: &Suite,
        plan: &TimingPlan,
        self_difference: f64,
    ) -> Result<Evaluation, Fault> {
        let (candidate, suite, plan) = (candidate.clone(), suite.clone(), *plan);
        match self.ask(task, Asked::Evaluate { candidate, suite, plan, self_difference }).await? {
            Found::Evaluated(evaluation) => Ok(evaluation),
            other => Err(astray(&other)),
        }
    }

    /// Builds, checks and profiles there; the inner error says why nothing was measured.
    ///
    /// # Errors
    ///
    /// What broke there or on the way.
    pub async fn profile_whole(
        &self,
        task: &Task,
        candidate: &Candidate,
        suite: &Suite,
    ) -> Result<Result<Profile, String>, Fault> {
        match self.ask(task, Asked::Profile { candidate: candidate.clone(), suite: suite.clone() }).await? {
            Found::Profiled(profile) => Ok(profile),
            other => Err(astray(&other)),
        }
    }

    /// Has it done there; what the time was spent on there is recorded here.
    async fn ask(&self, task: &Task, asked: Asked) -> Result<Found, Fault> {
        let Done { found, hand, stages } = (self.carry)(Job { task: Arc::new(task.clone()), asked }).await?;
        stage::done_elsewhere(hand, stages);
        found
    }

    /// Builds and checks there, under sanitizers too where that is wished; how it failed, or none where it is right.
    ///
    /// # Errors
    ///
    /// What broke there or on the way.
    pub async fn checked(
        &self,
        task: &Task,
        candidate: &Candidate,
        suite: &Suite,
        sanitize: bool,
    ) -> Result<Option<Failure>, Fault> {
        match self.ask(task, Asked::Check { candidate: candidate.clone(), suite: suite.clone(), sanitize }).await? {
            Found::Checked(failure) => Ok(failure),
            other => Err(astray(&other)),
        }
    }
}

/// The answer to another question.
fn astray(found: &Found) -> Fault {
    let kind = match found {
        Found::Fits(_) => "shapes",
        Found::Prepared(_) => "a reference",
        Found::Evaluated(_) => "an evaluation",
        Found::Checked(_) => "a check",
        Found::Profiled(_) => "a profile",
        Found::Certified(_) => "a certificate",
    };
    Fault::Machine(format!("a worker answered another question than it was asked, with {kind}"))
}

impl Workshop for Elsewhere {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn elsewhere(&self) -> Option<&Elsewhere> {
        Some(self)
    }

    fn fits<'a>(&'a self, task: &'a Task, cases: &'a [Case]) -> Step<'a, Result<Fits, Fault>> {
        Box::pin(async move {
            match self.ask(task, Asked::Fit { cases: cases.to_vec() }).await? {
                Found::Fits(fits) if fits.len() == cases.len() => Ok(fits),
                other => Err(astray(&other)),
            }
        })
    }

    fn prepare<'a>(
        &'a self,
        task: &'a Task,
        suite: &'a Suite,
        plan: &'a TimingPlan,
    ) -> Step<'a, Result<Baseline, Fault>> {
        Box::pin(async move {
            match self.ask(task, Asked::Prepare { suite: suite.clone(), plan: *plan }).await? {
                Found::Prepared(baseline) => Ok(baseline),
                other => Err(astray(&other)),
            }
        })
    }

    /// Nothing is built here: whoever checks it builds it first.
    fn build<'a>(&'a self, _: &'a Task, candidate: &'a Candidate) -> Step<'a, Outcome<Built>> {
        let built = Built { candidate: candidate.clone(), artifact: PathBuf::new() };
        Box::pin(std::future::ready(Ok(Ok(built))))
    }

    fn check<'a>(&'a self, task: &'a Task, built: Built, suite: &'a Suite) -> Step<'a, Outcome<Verified>> {
        Box::pin(async move {
            let failure = self.checked(task, &built.candidate, suite, false).await?;
            Ok(failure.map_or(Ok(Verified { built }), Err))
        })
    }

    fn time<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
        plan: &'a TimingPlan,
        self_difference: f64,
    ) -> Step<'a, Outcome<Timed>> {
        Box::pin(async move {
            Ok(match self.evaluate(task, verified.candidate(), suite, plan, self_difference).await? {
                Evaluation::Passed(timed) => Ok(timed),
                Evaluation::Failed(failure) => Err(failure),
                Evaluation::Counted(_) => {
                    return Err(Fault::Machine(
                        "the worker counted instructions where times were asked for".to_owned(),
                    ));
                }
                Evaluation::Compiled(_) => {
                    return Err(Fault::Machine("the worker compiled where times were asked for".to_owned()));
                }
            })
        })
    }

    fn measure<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
        plan: &'a TimingPlan,
        self_difference: f64,
    ) -> Step<'a, Result<Evaluation, Fault>> {
        Box::pin(self.evaluate(task, verified.candidate(), suite, plan, self_difference))
    }

    fn profile<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
    ) -> Step<'a, Result<Profile, Fault>> {
        Box::pin(async move { self.profile_whole(task, verified.candidate(), suite).await?.map_err(Fault::Machine) })
    }

    /// Nothing is built here: whoever certifies it builds it first.
    fn rebuild<'a>(&'a self, _: &'a Task, candidate: &'a Candidate) -> Step<'a, Result<Rebuilt, Fault>> {
        Box::pin(std::future::ready(Ok(Rebuilt { candidate: candidate.clone(), ticket: 0 })))
    }

    fn certify<'a>(
        &'a self,
        task: &'a Task,
        rebuilt: Rebuilt,
        plan: &'a TimingPlan,
    ) -> Step<'a, Result<Certificate, Fault>> {
        Box::pin(async move {
            match self.ask(task, Asked::Certify { candidate: rebuilt.candidate, plan: *plan }).await? {
                Found::Certified(certificate) => Ok(certificate),
                other => Err(astray(&other)),
            }
        })
    }
}
