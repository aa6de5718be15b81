//! One device. Its mailbox is the lease: timing must be alone, so one job at a time is the point.

use crate::lease::{Clock, Lease, Leased};
use kameo::prelude::*;
use kernelbench::{
    Baseline, Built, CandidateId, Certificate, Evaluation, Failure, Fault, Hash, Rebuilt, Suite, Task, TimingPlan,
    Verified, Workshop,
};
use metrics::Profile;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, sync::Arc};

/// Verified candidates that are kept for the Profiler.
const KEPT: usize = 64;

/// Check a built candidate and, if it is right, time it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckAndTime {
    /// For which task.
    pub task: Arc<Task>,
    /// What was built.
    pub built: Built,
    /// On which shapes.
    pub suite: Suite,
    /// How.
    pub plan: TimingPlan,
    /// By what part the reference was seen to differ from itself.
    pub self_difference: f64,
}

/// Check a built candidate, and do not time it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckAlone {
    /// For which task.
    pub task: Arc<Task>,
    /// What was built.
    pub built: Built,
    /// On which shapes.
    pub suite: Suite,
}

/// Profile a built candidate; one that was not verified in this process is verified first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunProfiler {
    /// For which task.
    pub task: Arc<Task>,
    /// What was built.
    pub built: Built,
    /// On which shapes.
    pub suite: Suite,
}

/// Check and time the reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrepareReference {
    /// Of which task.
    pub task: Arc<Task>,
    /// On which shapes.
    pub suite: Suite,
    /// How.
    pub plan: TimingPlan,
}

/// Examine a candidate that was built again from its source alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CertifyCandidate {
    /// For which task.
    pub task: Arc<Task>,
    /// What was built.
    pub rebuilt: Rebuilt,
    /// How.
    pub plan: TimingPlan,
}

/// Owns a device.
#[derive(Actor)]
pub struct Device {
    workshop: Arc<dyn Workshop>,
    name: String,
    clock: Clock,
    verified: HashMap<(CandidateId, Hash), Verified>,
}

impl Device {
    /// The device of this workshop, by its name, with the clock that its leases are read off.
    pub fn new(workshop: Arc<dyn Workshop>, name: String, clock: Clock) -> Self {
        Self { workshop, name, clock, verified: HashMap::new() }
    }

    fn leased<T>(&self, from_us: i64, result: T) -> Leased<T> {
        let lease = Lease { device: self.name.clone(), from_us, checked_us: None, until_us: self.clock.now_us() };
        Leased { result, lease }
    }

    async fn verify(&mut self, task: &Task, built: Built, suite: &Suite) -> Result<Result<Verified, Failure>, Fault> {
        let key = (built.candidate().id(), suite.id());
        if let Some(verified) = self.verified.get(&key) {
            return Ok(Ok(verified.clone()));
        }
        let outcome = self.workshop.check(task, built, suite).await?;
        if let Ok(verified) = &outcome {
            if self.verified.len() >= KEPT {
                self.verified.clear();
            }
            self.verified.insert(key, verified.clone());
        }
        Ok(outcome)
    }
}

impl Message<CheckAndTime> for Device {
    type Reply = Result<Leased<Evaluation>, Fault>;

    async fn handle(&mut self, job: CheckAndTime, _: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let from_us = self.clock.now_us();
        let CheckAndTime { task, built, suite, plan, self_difference } = job;
        // Checked anew each time it is offered, whatever was found before.
        self.verified.remove(&(built.candidate().id(), suite.id()));
        let verified = match self.verify(&task, built, &suite).await? {
            Ok(verified) => verified,
            Err(failure) => return Ok(self.leased(from_us, Evaluation::Failed(failure))),
        };
        let checked_us = self.clock.now_us();
        let mut leased = match self.workshop.time(&task, &verified, &suite, &plan, self_difference).await? {
            Ok(timed) => self.leased(from_us, Evaluation::Passed(timed)),
            Err(failure) => self.leased(from_us, Evaluation::Failed(failure)),
        };
        leased.lease.checked_us = Some(checked_us);
        Ok(leased)
    }
}

impl Message<CheckAlone> for Device {
    /// How it failed; none where it is right.
    type Reply = Result<Leased<Option<Failure>>, Fault>;

    async fn handle(&mut self, job: CheckAlone, _: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let from_us = self.clock.now_us();
        let outcome = self.workshop.check(&job.task, job.built, &job.suite).await?;
        Ok(self.leased(from_us, outcome.err()))
    }
}

impl Message<RunProfiler> for Device {
    type Reply = Result<Leased<Result<Profile, String>>, Fault>;

    async fn handle(&mut self, job: RunProfiler, _: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let from_us = self.clock.now_us();
        let RunProfiler { task, built, suite } = job;
        let profile = match self.verify(&task, built, &suite).await? {
            Ok(verified) => Ok(self.workshop.profile(&task, &verified, &suite).await?),
            Err(failure) => Err(format!("not measured: {failure}")),
        };
        Ok(self.leased(from_us, profile))
    }
}

impl Message<PrepareReference> for Device {
    type Reply = Result<Leased<Baseline>, Fault>;

    async fn handle(&mut self, job: PrepareReference, _: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let from_us = self.clock.now_us();
        let baseline = self.workshop.prepare(&job.task, &job.suite, &job.plan).await?;
        Ok(self.leased(from_us, baseline))
    }
}

impl Message<CertifyCandidate> for Device {
    type Reply = Result<Leased<Certificate>, Fault>;

    async fn handle(&mut self, job: CertifyCandidate, _: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let from_us = self.clock.now_us();
        let certificate = self.workshop.certify(&job.task, job.rebuilt, &job.plan).await?;
        Ok(self.leased(from_us, certificate))
    }
}
