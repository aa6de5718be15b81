//! The Profiler: a candidate that passed in, a profile out.

use crate::device::{Device, RunProfiler};
use crate::lease::{Build, Clock, Worked};
use crate::tester::fault;
use kameo::prelude::*;
use kernelbench::{Candidate, Fault, Suite, Task, Workshop};
use metrics::Profile;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Say where the time goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TakeProfile {
    /// For which task.
    pub task: Arc<Task>,
    /// Of which candidate.
    pub candidate: Candidate,
    /// On which shapes.
    pub suite: Suite,
}

/// Profiles.
#[derive(Actor)]
pub struct Profiler {
    /// Builds, from its cache.
    pub workshop: Arc<dyn Workshop>,
    /// Runs.
    pub device: ActorRef<Device>,
    /// As the Tester's.
    pub builds: Arc<Semaphore>,
    /// As the Tester's.
    pub clock: Clock,
}

impl Message<TakeProfile> for Profiler {
    /// The inner error says why nothing was measured.
    type Reply = DelegatedReply<Result<Worked<Result<Profile, String>>, Fault>>;

    async fn handle(&mut self, job: TakeProfile, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let (workshop, device, builds) = (self.workshop.clone(), self.device.clone(), self.builds.clone());
        let clock = self.clock;
        ctx.spawn(async move {
            let TakeProfile { task, candidate, suite } = job;
            let _turn = builds.acquire().await;
            let (built, took) = Build::timed(clock, workshop.build(&task, &candidate)).await;
            let built = match built? {
                Ok(built) => built,
                Err(failure) => return Ok(took.ended(Err(format!("not measured: {failure}")))),
            };
            let leased = device.ask(RunProfiler { task, built, suite }).await.map_err(fault)?;
            Ok(Worked::from(leased).after(took))
        })
    }
}
