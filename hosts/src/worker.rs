//! A worker: it takes jobs for its devices, does them in its own workshops, and signs what it found.
//!
//! It believes nothing of a job but runs it as any candidate is run. What it is at when it dies is given to another.

mod presence;
mod work;

use crate::{
    identity::Identity,
    message::{self, BLOBS, FOUND, Facts, JOBS, Place, token},
    server::{Blobs, Server, WORKER},
};
use async_nats::jetstream::{
    consumer::{AckPolicy, PullConsumer, pull},
    stream::Stream,
};
use futures::StreamExt;
use kernelbench::{Hash, Workshop};
use presence::Presence;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::Instant,
};
use warpsmith::{
    exit::{Exit, Trouble},
    hosts::{Address, Slot, Staff},
    version::VERSION,
};

/// How often a job is delivered at most, whatever happens; the orchestrator counts who began it.
const DELIVERIES: i64 = 100;
/// Jobs that a device holds of its own queue for each that may be under way: those that wait for their turn, and those whose
/// results a server does not take now.
const HELD: usize = 4;
/// How long after it was asked a server that had nothing is asked again at the earliest.
const PAUSE: Duration = Duration::from_secs(1);
/// How long saying that it leaves may take.
const GOODBYE: Duration = Duration::from_secs(2);
/// How long a device that does so many jobs of a queue that others take from too leaves the next of it to them, each.
const ASIDE: Duration = Duration::from_millis(50);
/// How long the server remembers a device that asks for nothing.
const REMEMBERED: Duration = Duration::from_mins(30);

/// What every device of a worker shares.
pub(crate) struct Host {
    server: Server,
    identity: Identity,
    jobs: Stream,
    blobs: Blobs,
    found: Blobs,
    presence: Presence,
    pace: warpsmith::hosts::Pace,
    /// The tasks that came last, by their blobs.
    tasks: Mutex<BTreeMap<Hash, Arc<kernelbench::Task>>>,
    /// Whether to end.
    ending: watch::Sender<bool>,
    /// Whether to give back what is under way.
    leaving: watch::Sender<bool>,
}

/// A device that takes jobs.
pub(crate) struct Bench {
    host: Arc<Host>,
    /// The name of its subject.
    name: String,
    /// As records call it.
    device: String,
    /// Each lane's class and workshop.
    lanes: BTreeMap<&'static str, (String, Arc<dyn Workshop>)>,
    /// Turns of jobs that are under way.
    turns: Semaphore,
    /// How many there are.
    at_once: usize,
}

/// Works for whoever asks, until it is told to end.
///
/// # Errors
///
/// Where the server cannot be reached or does not let it in, or another worker has its name.
pub fn serve(address: &Address, staff: Staff) -> Result<Exit, Trouble> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Trouble::machine(format!("cannot start threads: {e}")))?;
    let done = runtime.block_on(work(address, staff));
    runtime.shutdown_timeout(Duration::from_secs(2));
    done
}

async fn work(address: &Address, staff: Staff) -> Result<Exit, Trouble> {
    let identity = Identity::load(staff.identity.as_deref())?;
    let server = Server::connect(address, WORKER).await?;
    server.set_up().await?;
    let facts = introduced(&staff, &identity);
    let jobs = server.js.get_stream(JOBS).await;
    let jobs = jobs.map_err(|e| Trouble::machine(format!("{}: the stream of jobs: {e}", server.url)))?;
    let (blobs, found) = (server.blobs(BLOBS).await?, server.blobs(FOUND).await?);
    let presence = Presence::begin(&server, facts, staff.pace.progress).await?;
    let classes = presence.facts();
    eprint(&format!(
        "warpsmith worker {} at {}: {} devices, key {}",
        classes.name,
        server.url,
        classes.slots.len(),
        classes.key
    ));
    let (ending, leaving) = (watch::Sender::new(false), watch::Sender::new(false));
    let (pace, tasks) = (staff.pace, Mutex::default());
    let host = Arc::new(Host { server, identity, jobs, blobs, found, presence, pace, tasks, ending, leaving });
    let mut benches = JoinSet::new();
    for (number, slot) in staff.slots.iter().enumerate() {
        let bench = Arc::new(Bench::of(&host, &classes, number, slot));
        benches.spawn(bench.clone().take_all());
    }
    let beating = tokio::spawn(host.clone().beat());
    let told = tokio::select! {
        () = told_to_end() => Ok(Exit::Done),
        stolen = beating => Err(stolen.unwrap_or_else(|e| Trouble::machine(format!("the worker broke: {e}")))),
    };
    host.ending.send_replace(true);
    if told.is_ok() {
        eprint(&format!(
            "finishing what is under way, for {} s at most; then, or when interrupted again, the rest is given back",
            staff.grace.as_secs()
        ));
    }
    if !finished_within(staff.grace, &mut benches).await {
        host.leaving.send_replace(true);
        let rest = async { while benches.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(Duration::from_secs(5), rest).await;
    }
    // A server that is gone is not waited for.
    let goodbye = async { (host.presence.end().await, host.server.client.flush().await) };
    let _ = tokio::time::timeout(GOODBYE, goodbye).await;
    told
}

fn introduced(staff: &Staff, identity: &Identity) -> Facts {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let name = staff.name.clone().unwrap_or_else(|| format!("{host}-{}", std::process::id()));
    let name = token(&name);
    let (mut slots, mut machines) = (BTreeMap::new(), BTreeMap::new());
    for (number, slot) in staff.slots.iter().enumerate() {
        let mut lanes = BTreeMap::new();
        for (lane, workshop) in &slot.lanes {
            let class = message::class(workshop.machine(), lane, &staff.toolchain);
            machines.entry(class.clone()).or_insert_with(|| workshop.machine().clone());
            lanes.insert((*lane).to_owned(), class);
        }
        let place = Place { device: slot.device.clone(), lanes, doing: BTreeMap::new() };
        slots.insert(format!("{name}-{number}"), place);
    }
    // No two processes have this, on whatever host and at whatever time.
    let process = Hash::of(nkeys::KeyPair::new_user().public_key().as_bytes()).short().to_owned();
    let (key, version) = (identity.public(), VERSION.to_owned());
    Facts { name, host, process, key, version, slots, machines }
}

impl Host {
    /// Says again and again that it is there; comes back only where another has taken its name.
    async fn beat(self: Arc<Self>) -> Trouble {
        loop {
            tokio::time::sleep(self.pace.progress).await;
            if let Some(stolen) = self.presence.beat().await {
                return stolen;
            }
        }
    }
}

impl Bench {
    fn of(host: &Arc<Host>, facts: &Facts, number: usize, slot: &Slot) -> Self {
        let name = format!("{}-{number}", facts.name);
        let classes = facts.slots.get(&name).map(|place| place.lanes.clone()).unwrap_or_default();
        let lane = |(lane, workshop): &(&'static str, Arc<dyn Workshop>)| {
            (*lane, (classes.get(*lane).cloned().unwrap_or_default(), workshop.clone()))
        };
        let lanes = slot.lanes.iter().map(lane).collect();
        let (device, turns) = (format!("{}/{}", facts.name, slot.device), Semaphore::new(slot.at_once));
        Self { host: host.clone(), name, device, lanes, turns, at_once: slot.at_once.max(1) }
    }

    /// Takes jobs that are for this device, and those that are for any of its classes, until it is told to end.
    async fn take_all(self: Arc<Self>) {
        let mut queues = JoinSet::new();
        queues.spawn(self.clone().take(format!("at-{}", self.name), format!("jobs.*.*.{}.>", self.name), false));
        for (lane, (class, _)) in &self.lanes {
            let filter = format!("jobs.{class}.{lane}.{}.>", message::ANY);
            queues.spawn(self.clone().take(format!("{class}-{lane}"), filter, true));
        }
        while queues.join_next().await.is_some() {}
    }

    /// Takes jobs of one queue. A queue that others take from too is asked only while there is room for a new task here.
    async fn take(self: Arc<Self>, queue: String, filter: String, shared: bool) {
        let (mut ending, mut jobs) = (self.host.ending.subscribe(), JoinSet::new());
        loop {
            let room = if shared { 1 } else { self.turns.available_permits().max(1) };
            let next = async {
                if shared {
                    // A turn that is free now says that there is room; the job takes its own.
                    drop(self.turns.acquire().await);
                } else {
                    while jobs.len() >= HELD * self.at_once {
                        jobs.join_next().await;
                    }
                }
                let asked = Instant::now();
                let taken = self.next(&queue, &filter, room).await;
                // A server that is in trouble has nothing at once, again and again.
                if taken.as_ref().is_ok_and(Vec::is_empty) {
                    tokio::time::sleep_until(asked + PAUSE).await;
                }
                taken
            };
            let taken = tokio::select! {
                taken = next => taken,
                _ = ending.wait_for(|ending| *ending) => break,
            };
            match taken {
                Ok(messages) => {
                    for message in messages {
                        jobs.spawn(self.clone().handle(message));
                    }
                    while jobs.try_join_next().is_some() {}
                    if shared {
                        while jobs.len() >= self.at_once {
                            jobs.join_next().await;
                        }
                        // The next task is for whoever has less to do.
                        let aside = ASIDE * u32::try_from(jobs.len()).unwrap_or(u32::MAX);
                        tokio::time::sleep(aside).await;
                    }
                }
                Err(why) => {
                    tracing::warn!(queue, "no jobs can be taken: {why}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        while jobs.join_next().await.is_some() {}
    }

    /// The next jobs of a queue; none where there was none for a while.
    async fn next(
        &self,
        queue: &str,
        filter: &str,
        most: usize,
    ) -> Result<Vec<async_nats::jetstream::Message>, String> {
        let consumer = self.consumer(queue, filter).await?;
        // A question that a server forgot, for it broke, is asked again when its time is over. (Without heartbeats: after one,
        // this library's batch is not woken by the message that follows.)
        let asked = consumer.batch().max_messages(1).expires(self.host.pace.ack).messages().await;
        let mut first = asked.map_err(|e| e.to_string())?;
        let mut taken = vec![];
        while let Some(message) = first.next().await {
            taken.push(message.map_err(|e| e.to_string())?);
        }
        if most > 1 && !taken.is_empty() {
            let more = consumer.fetch().max_messages(most - 1).messages().await.map_err(|e| e.to_string())?;
            taken.extend(more.filter_map(|message| std::future::ready(message.ok())).collect::<Vec<_>>().await);
        }
        Ok(taken)
    }

    async fn consumer(&self, queue: &str, filter: &str) -> Result<PullConsumer, String> {
        let config = pull::Config {
            durable_name: Some(queue.to_owned()),
            filter_subject: filter.to_owned(),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.host.pace.ack,
            max_deliver: DELIVERIES,
            max_ack_pending: 100_000,
            inactive_threshold: REMEMBERED,
            ..pull::Config::default()
        };
        self.host.jobs.get_or_create_consumer(queue, config).await.map_err(|e| e.to_string())
    }
}

/// Whether what is under way came to its end before its time was over or somebody was in a hurry (SIGINT).
async fn finished_within(grace: Duration, benches: &mut JoinSet<()>) -> bool {
    let finished = async { while benches.join_next().await.is_some() {} };
    tokio::select! {
        () = finished => true,
        _ = tokio::signal::ctrl_c() => false,
        () = tokio::time::sleep(grace) => false,
    }
}

async fn told_to_end() {
    let (Ok(mut polite), Ok(mut hangup)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = polite.recv() => {}
        _ = hangup.recv() => {}
    }
}

fn eprint(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
