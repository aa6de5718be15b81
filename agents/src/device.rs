//! One device. Its jobs run beside one another: its workshop lets checks share the device, and has nobody else there while
//! something is timed.

use crate::lease::{Clock, Lease, Leased};
use kameo::prelude::*;
use kernelbench::{
    Baseline, Built, CandidateId, Certificate, Evaluation, Failure, Fault, Hash, Rebuilt, Suite, Task, TimingPlan,
    Verified, Workshop,
    stage::{Hand, Recorder, Stage},
};
use metrics::Profile;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

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
    /// By what part the reference may differ from itself, as it was seen to.
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
    /// Whether it runs under sanitizers too.
    pub sanitize: bool,
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
#[derive(Actor, Clone)]
pub struct Device {
    workshop: Arc<dyn Workshop>,
    name: String,
    clock: Clock,
    verified: Arc<Mutex<HashMap<(CandidateId, Hash), Verified>>>,
}

impl Device {
    /// The device of this workshop, by its name, with the clock that its leases are read off.
    pub fn new(workshop: Arc<dyn Workshop>, name: String, clock: Clock) -> Self {
        Self { workshop, name, clock, verified: Arc::default() }
    }

    /// Does a job, and says who held the device meanwhile.
    async fn leased<T>(&self, job: impl Future<Output = Result<T, Fault>>) -> Result<Leased<T>, Fault> {
        let from_us = self.clock.now_us();
        let recorder = Recorder::begin(from_us);
        let result = recorder.record(job).await?;
        let stages = recorder.stretches();
        let hand = recorder.hand().unwrap_or_else(|| Hand::named(&self.name));
        let lease = Lease::of(hand, (from_us, self.clock.now_us()), &stages);
        Ok(Leased { result, lease, stages })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(CandidateId, Hash), Verified>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn verify(&self, task: &Task, built: Built, suite: &Suite) -> Result<Result<Verified, Failure>, Fault> {
        let key = (built.candidate().id(), suite.id());
        let known = self.known().get(&key).cloned();
        if let Some(verified) = known {
            return Ok(Ok(verified));
        }
        let outcome = self.workshop.check(task, built, suite).await?;
        if let Ok(verified) = &outcome {
            let mut known = self.known();
            if known.len() >= KEPT {
                known.clear();
            }
            known.insert(key, verified.clone());
        }
        Ok(outcome)
    }

    async fn check_and_time(&self, job: CheckAndTime) -> Result<Leased<Evaluation>, Fault> {
        let CheckAndTime { task, built, suite, plan, self_difference } = job;
        if let Some(there) = self.workshop.elsewhere() {
            let whole = there.evaluate(&task, built.candidate(), &suite, &plan, self_difference);
            let mut leased = self.leased(whole).await?;
            leased.lease.checked_us = timing_began(&leased);
            return Ok(leased);
        }
        let mut checked_us = None;
        let mut leased = self
            .leased(async {
                if plan.glance {
                    return self.workshop.glance(&task, built, &suite, &plan, self_difference).await;
                }
                // Checked anew each time it is offered, whatever was found before.
                self.known().remove(&(built.candidate().id(), suite.id()));
                let verified = match self.verify(&task, built, &suite).await? {
                    Ok(verified) => verified,
                    Err(failure) => return Ok(Evaluation::Failed(failure)),
                };
                checked_us = Some(self.clock.now_us());
                self.workshop.measure(&task, &verified, &suite, &plan, self_difference).await
            })
            .await?;
        leased.lease.checked_us = checked_us.or_else(|| timing_began(&leased));
        Ok(leased)
    }

    async fn check(&self, job: CheckAlone) -> Result<Leased<Option<Failure>>, Fault> {
        let CheckAlone { task, built, suite, sanitize } = job;
        if let Some(there) = self.workshop.elsewhere() {
            return self.leased(there.checked(&task, built.candidate(), &suite, sanitize)).await;
        }
        self.leased(async {
            Ok(match self.workshop.check(&task, built, &suite).await? {
                Ok(verified) if sanitize => self.workshop.sanitize(&task, &verified).await?.err(),
                checked => checked.err(),
            })
        })
        .await
    }

    async fn profile(&self, job: RunProfiler) -> Result<Leased<Result<Profile, String>>, Fault> {
        let RunProfiler { task, built, suite } = job;
        if let Some(there) = self.workshop.elsewhere() {
            return self.leased(there.profile_whole(&task, built.candidate(), &suite)).await;
        }
        self.leased(async {
            Ok(match self.verify(&task, built, &suite).await? {
                Ok(verified) => Ok(self.workshop.profile(&task, &verified, &suite).await?),
                Err(failure) => Err(format!("not measured: {failure}")),
            })
        })
        .await
    }
}

/// When a candidate that passed was timed first.
fn timing_began(leased: &Leased<Evaluation>) -> Option<i64> {
    leased.result.passed()?;
    let timing = |stage| matches!(stage, Stage::Calibrate | Stage::Time);
    leased.stages.iter().find(|one| timing(one.stage)).map(|one| one.from_us)
}

impl Message<CheckAndTime> for Device {
    type Reply = DelegatedReply<Result<Leased<Evaluation>, Fault>>;

    async fn handle(&mut self, job: CheckAndTime, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let device = self.clone();
        ctx.spawn(async move { device.check_and_time(job).await })
    }
}

impl Message<CheckAlone> for Device {
    /// How it failed; none where it is right.
    type Reply = DelegatedReply<Result<Leased<Option<Failure>>, Fault>>;

    async fn handle(&mut self, job: CheckAlone, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let device = self.clone();
        ctx.spawn(async move { device.check(job).await })
    }
}

impl Message<RunProfiler> for Device {
    type Reply = DelegatedReply<Result<Leased<Result<Profile, String>>, Fault>>;

    async fn handle(&mut self, job: RunProfiler, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let device = self.clone();
        ctx.spawn(async move { device.profile(job).await })
    }
}

impl Message<PrepareReference> for Device {
    type Reply = DelegatedReply<Result<Leased<Baseline>, Fault>>;

    async fn handle(&mut self, job: PrepareReference, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let device = self.clone();
        ctx.spawn(async move { device.leased(device.workshop.prepare(&job.task, &job.suite, &job.plan)).await })
    }
}

impl Message<CertifyCandidate> for Device {
    type Reply = DelegatedReply<Result<Leased<Certificate>, Fault>>;

    async fn handle(&mut self, job: CertifyCandidate, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let device = self.clone();
        ctx.spawn(async move { device.leased(device.workshop.certify(&job.task, job.rebuilt, &job.plan)).await })
    }
}
