//! The way of one job: to which device, again where it is lost, and back.

use super::{Courier, Missing};
use crate::{
    look,
    message::{ANY, Ask, DELIVERIES, Home, Stowed, Told, job_subject},
};
use async_nats::jetstream::context::PublishErrorKind;
use kernelbench::{Asked, Baseline, Done, Fault, Hash, Job, JobFound};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// What is asked travels in the message up to this size, in bytes.
const SMALL: usize = 64 << 10;
/// How long a server that has gone away, or workers that have, are waited for.
const PATIENCE: Duration = Duration::from_mins(10);

/// How long a server may take to store something before it counts as one that does not.
const PROBED: Duration = Duration::from_secs(2);

/// What a job's way came to.
enum Way {
    /// It came back.
    Back(Box<Told>),
    /// The device that it was for is gone.
    Gone,
}

impl Courier {
    /// Carries a job there and back. A task whose device is gone moves: its reference is prepared anew, and that is said.
    pub(super) async fn carry(self: Arc<Self>, job: Job) -> Result<Done, Fault> {
        let text = job.task_text();
        let task = self.stow(&text).await?;
        let as_read = job.task.hash_as_read();
        let mut home = self.home(&as_read).await;
        let (mut moved_from, mut job) = (None, job);
        loop {
            let lost = home.take_if(|home| !self.lives(&home.slot));
            if let Some(lost) = lost {
                moved_from = Some(lost.device);
                home = self.moved((&task, &as_read), &mut job).await?;
            }
            let to = self.towards(home.as_ref(), &job.asked);
            match self.travel(&job, &task, &to).await? {
                // It moves in the next turn.
                Way::Gone => {}
                Way::Back(told) => {
                    let own = home.is_none() && !matches!(job.asked, Asked::Fit { .. });
                    if own {
                        self.settle_at(&as_read, &told).await;
                    }
                    let mut done = told.done;
                    done.hand.moved_from = moved_from;
                    return Ok(done);
                }
            }
        }
    }

    fn lives(&self, slot: &str) -> bool {
        self.state().lives(slot, self.silence())
    }

    /// How long a worker may say nothing before it counts as gone.
    pub(super) fn silence(&self) -> Duration {
        self.wanted.pace.ack
    }

    /// A certificate is taken on another host where there is one; all else where the task is at home.
    fn towards(&self, home: Option<&Home>, asked: &Asked) -> String {
        let Some(home) = home else { return ANY.to_owned() };
        let other = || self.state().elsewhere(&home.slot, &self.class, self.silence());
        let other = matches!(asked, Asked::Certify { .. }).then(other).flatten();
        other.unwrap_or_else(|| home.slot.clone())
    }

    /// Where a task is at home, by its hash as it was read: as this process knows, or as an earlier one left it.
    async fn home(&self, task: &Hash) -> Option<Home> {
        if let Some(home) = self.state().homes.get(task) {
            return Some(home.clone());
        }
        let entry = self.workers.get(self.home_key(task)).await.ok().flatten()?;
        serde_json::from_slice(&entry).ok()
    }

    fn home_key(&self, task: &Hash) -> String {
        format!("home.{}.{task}", self.wanted.run)
    }

    /// Whoever did a task's first job keeps it.
    async fn settle_at(&self, task: &Hash, told: &Told) {
        let home = Home { slot: told.slot.clone(), device: told.done.hand.device.clone() };
        let value = serde_json::to_vec(&home).unwrap_or_default();
        self.state().homes.insert(task.clone(), home);
        // A run that goes on without it prepares the task anew, and nothing is lost.
        if let Err(why) = self.workers.put(self.home_key(task), value.into()).await {
            tracing::warn!("where a task is at home could not be kept: {why}");
        }
    }

    /// Gives a task another home, where its reference is prepared anew; how far that reaches from itself there counts from
    /// then on.
    async fn moved(&self, (task, as_read): (&Hash, &Hash), job: &mut Job) -> Result<Option<Home>, Fault> {
        self.state().homes.remove(as_read);
        self.state().tally.moved += 1;
        tracing::warn!(task = job.task.name, "its device is gone; its reference is prepared anew on another");
        let Asked::Evaluate { suite, plan, self_difference, .. } = &mut job.asked else { return Ok(None) };
        let prepare = Asked::Prepare { suite: suite.clone(), plan: *plan };
        let prepare = Job { task: job.task.clone(), asked: prepare };
        let Way::Back(told) = self.travel(&prepare, task, ANY).await? else { return Ok(None) };
        if let JobFound::Prepared(baseline) = told.done.found.clone()? {
            *self_difference = self_difference.max(Baseline::self_difference(&baseline));
        }
        self.settle_at(as_read, &told).await;
        let home = self.state().homes.get(as_read).cloned();
        Ok(home)
    }

    /// Has a blob on the server.
    async fn stow(&self, content: &[u8]) -> Result<Hash, Fault> {
        let hash = Hash::of(content);
        if self.state().kept.contains(&hash) {
            return Ok(hash);
        }
        let began = Instant::now();
        loop {
            match self.blobs.put(content).await {
                Ok(hash) => {
                    self.state().kept.insert(hash.clone());
                    return Ok(hash);
                }
                Err(why) if began.elapsed() > PATIENCE => return Err(self.unanswered(&why)),
                Err(why) => self.refused(&why).await,
            }
        }
    }

    /// Waits a moment before the server is asked again; that one which is there stores nothing is said.
    async fn refused(&self, why: &str) {
        if self.is_there() && self.state().complains() {
            let (server, minutes) = (self.server.stores_nothing(&why), PATIENCE.as_secs() / 60);
            tracing::warn!("{server}; it is tried for {minutes} minutes, and `warpsmith resume` goes on after that");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// Says why no worker is heard of: a server that stores nothing hears of none.
    async fn say_why_nobody(&self) {
        if !self.is_there() || !self.state().complains() {
            return;
        }
        let (url, class, minutes) = (&self.server.url, &self.class, PATIENCE.as_secs() / 60);
        let stored = tokio::time::timeout(PROBED, look::clock(&self.workers)).await;
        match stored.unwrap_or_else(|_| Err("it does not say that it has".to_owned())) {
            Ok(_) => {
                tracing::warn!("{url}: no worker of class {class} is heard of; one is waited for, {minutes} minutes");
            }
            Err(why) => tracing::warn!("{}", self.server.stores_nothing(&why)),
        }
    }

    fn is_there(&self) -> bool {
        self.server.client.connection_state() == async_nats::connection::State::Connected
    }

    fn unanswered(&self, why: &str) -> Fault {
        if self.is_there() {
            return Fault::Absent(self.server.stores_nothing(&why));
        }
        let minutes = PATIENCE.as_secs() / 60;
        Fault::Absent(format!("{}: the message server has not answered for {minutes} minutes: {why}", self.server.url))
    }

    /// Has a job done by this device, or by any.
    async fn travel(&self, job: &Job, task: &Hash, to: &str) -> Result<Way, Fault> {
        let id = job.id(&self.class);
        if let Some(why) = self.state().fatal.get(&id) {
            return Err(Fault::Machine(why.clone()));
        }
        let mut receiver = match self.state().wait(&id) {
            Ok(told) => {
                return Ok(Way::Back(Box::new(told)));
            }
            Err(receiver) => receiver,
        };
        let (subject, payload) = self.packed(job, task, &id, to).await?;
        let mut published = self.publish(&subject, &payload).await?;
        let (mut seen, tick) = (Instant::now(), (self.silence() / 8).min(Duration::from_secs(1)));
        loop {
            tokio::select! {
                told = &mut receiver => match told {
                    Ok(told) => return Ok(Way::Back(Box::new(told))),
                    Err(_) => return Err(Fault::Machine("the courier lost count of a job: this is a defect".into())),
                },
                () = tokio::time::sleep(tick) => {}
            }
            let missing = self.state().missing(&id, published, self.silence());
            match missing {
                Missing::No => seen = Instant::now(),
                Missing::Fatal(who) => return Err(self.fatal(&id, &subject, &who).await),
                Missing::Untaken if to != ANY && !self.lives(to) => {
                    self.recall(&subject).await;
                    // Who took it stays counted.
                    self.state().wait_no_more(&id);
                    return Ok(Way::Gone);
                }
                Missing::Untaken if self.deserted() => {
                    if seen.elapsed() > PATIENCE {
                        self.state().give_up(&id);
                        return Err(self.nobody());
                    }
                    self.say_why_nobody().await;
                }
                Missing::Untaken => {
                    // It waits its turn, or a server that broke has forgotten it: published again, it is there once.
                    published = self.publish(&subject, &payload).await?;
                }
            }
        }
    }

    fn deserted(&self) -> bool {
        self.state().deserted(&self.class, self.silence())
    }

    fn nobody(&self) -> Fault {
        let (url, class, minutes) = (&self.server.url, &self.class, PATIENCE.as_secs() / 60);
        Fault::Absent(format!("{url}: no worker of class {class} has been heard of for {minutes} minutes"))
    }

    /// The job as it is published, and where.
    async fn packed(&self, job: &Job, task: &Hash, id: &Hash, to: &str) -> Result<(String, Vec<u8>), Fault> {
        let self_difference = match &job.asked {
            Asked::Evaluate { self_difference, .. } => *self_difference,
            _ => 0.0,
        };
        let asked = job.asked.canonical();
        let asked = if asked.len() > SMALL {
            Stowed::Blob(self.stow(&asked).await?)
        } else {
            Stowed::Here(serde_json::from_slice(&asked).map_err(|e| Fault::Machine(e.to_string()))?)
        };
        let (run, class, name) = (self.wanted.run.clone(), self.class.clone(), job.task.name.clone());
        let subject = job_subject(&class, self.wanted.lane, to, &run, id);
        let ask = Ask { id: id.clone(), run, class, task: task.clone(), name, asked, self_difference };
        let payload = serde_json::to_vec(&ask).map_err(|e| Fault::Machine(e.to_string()))?;
        Ok((subject, payload))
    }

    /// Publishes a job; one that waits or is under way already is not taken in a second time. A server that is away is
    /// waited for.
    async fn publish(&self, subject: &str, payload: &[u8]) -> Result<Instant, Fault> {
        let began = Instant::now();
        loop {
            let why = match self.server.js.publish(subject.to_owned(), payload.to_vec().into()).await {
                Ok(acknowledged) => match acknowledged.await {
                    Ok(_) => return Ok(Instant::now()),
                    Err(error) if is_there_already(&error) => return Ok(Instant::now()),
                    Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                        return Err(Fault::Machine(format!("a job is larger than the server takes: {error}")));
                    }
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if began.elapsed() > PATIENCE {
                return Err(self.unanswered(&why));
            }
            self.refused(&why).await;
        }
    }

    /// Takes a job back that nobody is at.
    async fn recall(&self, subject: &str) {
        if let Err(why) = self.jobs.purge().filter(subject.to_owned()).await {
            tracing::warn!("a job could not be taken back: {why}");
        }
    }

    /// A job that nobody who took it came back from.
    async fn fatal(&self, id: &Hash, subject: &str, who: &[String]) -> Fault {
        self.recall(subject).await;
        self.state().give_up(id);
        self.wipe(id).await;
        let why = format!(
            "{DELIVERIES} workers took this job and none came back from it: {}; it is given to no further one",
            who.join(", ")
        );
        self.state().fatal.insert(id.clone(), why.clone());
        Fault::Machine(why)
    }
}

/// Whether the server refused a job because it has it.
fn is_there_already(error: &async_nats::jetstream::context::PublishError) -> bool {
    error.to_string().contains("maximum messages per subject")
        || std::error::Error::source(error).is_some_and(|why| why.to_string().contains("maximum messages per subject"))
}
