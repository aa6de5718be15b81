//! The Profiler: a candidate that passed in, a profile out.

use crate::device::{Device, RunProfiler};
use crate::tester::fault;
use kameo::prelude::*;
use kernelbench::{Candidate, Fault, Suite, Task, Workshop};
use metrics::Profile;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
pub struct Profiler<W: Workshop> {
    /// Builds, from its cache.
    pub workshop: Arc<W>,
    /// Runs.
    pub device: ActorRef<Device<W>>,
}

impl<W: Workshop> Message<TakeProfile> for Profiler<W> {
    /// The inner error says why nothing was measured.
    type Reply = DelegatedReply<Result<Result<Profile, String>, Fault>>;

    async fn handle(&mut self, job: TakeProfile, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        let (workshop, device) = (self.workshop.clone(), self.device.clone());
        ctx.spawn(async move {
            let TakeProfile { task, candidate, suite } = job;
            match workshop.build(&task, &candidate).await? {
                Ok(built) => device.ask(RunProfiler { task, built, suite }).await.map_err(fault),
                Err(failure) => Ok(Err(format!("not measured: {failure}"))),
            }
        })
    }
}
