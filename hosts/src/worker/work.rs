//! One job at a worker: what it is, that it is under way, what came of it, and that it is told.

use super::{Bench, Host};
use crate::message::{Ask, Doing, KEY, SIGNATURE, Stowed, Taken, Told, taken_subject, told_subject};
use async_nats::{
    HeaderMap,
    jetstream::{self, AckKind},
};
use kernelbench::{Asked, Done, Fault, Job, Task, Workshop, stage::Hand};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// What came of a job travels in a message up to this size, in bytes.
const SMALL: usize = 512 << 10;
/// How long a server that has gone away is waited for with what came of a job.
const PATIENCE: Duration = Duration::from_mins(10);
/// Tasks that are kept at hand.
const TASKS: usize = 256;

/// How often what a job needs is looked for.
const TRIES: i64 = 10;

/// Why a job is not done.
enum Refused {
    /// Nobody can do it as it is.
    Invalid(String),
    /// What it needs could not be got now.
    Unready(String),
}

impl Bench {
    /// Does a job, says so meanwhile, and tells what came of it.
    pub(super) async fn handle(self: Arc<Self>, message: jetstream::Message) {
        let ask = match serde_json::from_slice::<Ask>(&message.payload) {
            Ok(ask) => ask,
            Err(why) => {
                tracing::warn!(subject = %message.subject, "this is no job, and is thrown away: {why}");
                let _ = message.ack_with(AckKind::Term).await;
                return;
            }
        };
        match self.unpacked(&ask, &message).await {
            Ok((job, workshop)) => self.work(&ask, job, workshop, &message).await,
            Err(Refused::Unready(why)) if message.info().is_ok_and(|info| info.delivered < TRIES) => {
                tracing::warn!(job = ask.id.short(), "not ready: {why}");
                let _ = message.ack_with(AckKind::Nak(Some(Duration::from_secs(1)))).await;
            }
            Err(Refused::Invalid(why) | Refused::Unready(why)) => {
                tracing::warn!(job = ask.id.short(), "thrown away: {why}");
                let found = Err(Fault::Machine(format!("{} threw the job away: {why}", self.name)));
                let done = Done { found, hand: Hand::named(&self.device), stages: vec![] };
                if self.tell(&ask, done).await.is_ok() {
                    let _ = message.ack_with(AckKind::Term).await;
                }
            }
        }
    }

    /// The job of a message, where it is what it is called.
    async fn unpacked(&self, ask: &Ask, message: &jetstream::Message) -> Result<(Job, Arc<dyn Workshop>), Refused> {
        let lane = message.subject.as_str().split('.').nth(2).unwrap_or_default();
        let workshop =
            self.lanes.get(lane).filter(|(class, _)| *class == ask.class).map(|(_, workshop)| workshop.clone());
        let workshop = workshop.ok_or_else(|| {
            Refused::Invalid(format!("it is for {lane} on {}, which {} is not", ask.class, self.device))
        })?;
        let task = self.host.task(ask).await?;
        let mut asked = match &ask.asked {
            Stowed::Here(asked) => asked.clone(),
            Stowed::Blob(hash) => self.host.read::<Asked>(hash).await?,
        };
        let job = Job { task: task.clone(), asked: asked.clone() };
        if job.id(&ask.class) != ask.id {
            return Err(Refused::Invalid("it is not what its name is the hash of".to_owned()));
        }
        if let Asked::Evaluate { self_difference, .. } = &mut asked {
            *self_difference = ask.self_difference;
        }
        Ok((Job { task, asked }, workshop))
    }

    async fn work(self: &Arc<Self>, ask: &Ask, job: Job, workshop: Arc<dyn Workshop>, message: &jetstream::Message) {
        let delivery = message.info().map_or(1, |info| info.delivered);
        let (slot, process) = (self.name.clone(), self.host.presence.facts().process);
        let taken = Taken { slot, process, delivery, returned: false };
        let doing = Doing { run: ask.run.clone(), task: ask.name.clone(), step: job.asked.name().into(), seconds: 0 };
        self.host.presence.began(&self.name, &ask.id, doing);
        let mut leaving = self.host.leaving.subscribe();
        let worked = tokio::select! {
            found = self.worked(ask, &taken, job, workshop, message) => Some(found),
            _ = leaving.wait_for(|leaving| *leaving) => None,
        };
        if let Some(done) = worked {
            if let Err(why) = self.tell(ask, done).await {
                tracing::warn!(job = ask.id.short(), "what came of it could not be told: {why}");
            } else if let Err(why) = message.double_ack().await {
                tracing::warn!(job = ask.id.short(), "it is told, but still on the server: {why}");
            }
        } else {
            self.host.say_taken(ask, &Taken { returned: true, ..taken }).await;
            let _ = message.ack_with(AckKind::Nak(None)).await;
        }
        self.host.presence.ended(&self.name, &ask.id);
    }

    /// Does it when its turn comes, and says meanwhile that it is at it.
    async fn worked(
        &self,
        ask: &Ask,
        taken: &Taken,
        job: Job,
        workshop: Arc<dyn Workshop>,
        message: &jetstream::Message,
    ) -> Done {
        let work = async {
            let _turn = self.turns.acquire().await;
            self.host.say_taken(ask, taken).await;
            let work = tokio::spawn(async move { job.work(&*workshop).await });
            let broke = |why| (Err(Fault::Machine(format!("the worker's workshop broke: {why}"))), vec![]);
            let (found, stages) = work.await.unwrap_or_else(broke);
            Done { found, hand: Hand::named(&self.device), stages }
        };
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(self.host.pace.progress) => {
                    if let Err(why) = message.ack_with(AckKind::Progress).await {
                        tracing::warn!(job = ask.id.short(), "that it is under way cannot be said: {why}");
                    }
                }
            }
        }
    }

    /// Tells what came of a job, signed; a server that is away is waited for.
    async fn tell(&self, ask: &Ask, done: Done) -> Result<(), String> {
        let told = Told { slot: self.name.clone(), done };
        let began = Instant::now();
        loop {
            let why = match self.host.try_to_tell(ask, &told).await {
                Ok(()) => return Ok(()),
                Err(why) if began.elapsed() > PATIENCE => return Err(why),
                Err(why) => why,
            };
            tracing::warn!(job = ask.id.short(), "what came of it cannot be told yet: {why}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

impl Host {
    async fn try_to_tell(&self, ask: &Ask, told: &Told) -> Result<(), String> {
        let text = serde_json::to_vec(told).map_err(|e| e.to_string())?;
        let payload = if text.len() > SMALL {
            let hash = self.found.put(&text).await?;
            serde_json::to_vec(&Stowed::<Told>::Blob(hash)).map_err(|e| e.to_string())?
        } else {
            serde_json::to_vec(&Stowed::Here(told)).map_err(|e| e.to_string())?
        };
        let mut headers = HeaderMap::new();
        headers.insert(KEY, self.identity.public());
        headers.insert(SIGNATURE, self.identity.sign(&ask.id, &payload));
        let subject = told_subject(&ask.run, &ask.id);
        let published = self.server.js.publish_with_headers(subject, headers, payload.into()).await;
        published.map_err(|e| e.to_string())?.await.map(drop).map_err(|e| e.to_string())
    }

    /// Says that a job was taken or given back; where that is lost, its orchestrator waits longer and no more.
    async fn say_taken(&self, ask: &Ask, taken: &Taken) {
        let payload = serde_json::to_vec(taken).unwrap_or_default();
        let subject = taken_subject(&ask.run, &ask.id);
        let _ = self.server.client.publish(subject, payload.into()).await;
    }

    async fn task(&self, ask: &Ask) -> Result<Arc<Task>, Refused> {
        let lock = || self.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(task) = lock().get(&ask.task) {
            return Ok(task.clone());
        }
        let task = Arc::new(self.read::<Task>(&ask.task).await?);
        let mut tasks = lock();
        if tasks.len() >= TASKS {
            tasks.clear();
        }
        tasks.insert(ask.task.clone(), task.clone());
        Ok(task)
    }

    /// What stands in a blob.
    async fn read<T: serde::de::DeserializeOwned>(&self, hash: &kernelbench::Hash) -> Result<T, Refused> {
        let content = self.blobs.get(hash).await.map_err(|why| {
            if why.contains("does not have its hash") { Refused::Invalid(why) } else { Refused::Unready(why) }
        })?;
        serde_json::from_slice(&content).map_err(|e| Refused::Invalid(format!("the blob {}: {e}", hash.short())))
    }
}
