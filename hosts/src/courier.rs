//! The courier: it carries an orchestrator's jobs to workers, and what they found back.
//!
//! It publishes a job under its name, and again whenever nobody can be seen to be at it: a job that waits or is under way is
//! not taken in twice. What comes back counts once, for whoever waits for it, and is then wiped from the server.

mod roll;
mod routes;
mod state;

use crate::{
    identity::is_signed_by,
    look,
    message::{BLOBS, FOUND, Facts, KEY, SIGNATURE, Stowed, Taken, Told},
    server::{Blobs, Server},
};
use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, DeliverPolicy, pull},
    kv::{self, Operation},
    stream::Stream,
};
use futures::StreamExt;
use kernelbench::{Elsewhere, Hash};
use metrics::Machine;
use state::{Missing, State};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::runtime::Runtime;
use warpsmith::{
    exit::Trouble,
    hosts::{Address, Gathered, Wanted},
};

/// How long workers are waited for when a run begins.
const BEGINNING: Duration = Duration::from_secs(6);

/// An orchestrator's end of the message system.
pub(crate) struct Courier {
    server: Server,
    wanted: Wanted,
    class: String,
    jobs: Stream,
    told: Stream,
    workers: kv::Store,
    blobs: Blobs,
    found: Blobs,
    state: Mutex<State>,
}

/// Finds the workers that a run wants, and gives the workshop that they are.
///
/// # Errors
///
/// Where the server cannot be reached, lets nobody in, or has no such workers: in one sentence.
pub fn gather(address: &Address, wanted: &Wanted) -> Result<Gathered, Trouble> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| Trouble::machine(format!("cannot start threads: {e}")))?;
    let (courier, machine, devices) = runtime.block_on(Courier::begin(address, wanted))?;
    let words = vec![format!("hosts      {}: {devices} devices of class {}", courier.server.url, courier.class)];
    // It carries as long as the program lives: a runtime may not end within another.
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    runtime.spawn(courier.clone().listen());
    runtime.spawn(courier.clone().watch());
    runtime.spawn(courier.clone().write_roll());
    let carry = move |job: kernelbench::Job| -> kernelbench::Step<'static, _> {
        let carried = runtime.spawn(courier.clone().carry(job));
        Box::pin(async move {
            carried.await.unwrap_or_else(|e| Err(kernelbench::Fault::Machine(format!("the courier broke: {e}"))))
        })
    };
    Ok(Gathered { workshop: Arc::new(Elsewhere::new(machine, Box::new(carry))), devices, words })
}

impl Courier {
    async fn begin(address: &Address, wanted: &Wanted) -> Result<(Arc<Self>, Machine, usize), Trouble> {
        let server = Server::connect(address, &wanted.run).await?;
        server.set_up().await?;
        let present = awaited(&server, wanted).await?;
        let (class, devices) = chosen(&server, wanted, &present)?;
        let machine = present.iter().find_map(|worker| worker.machines.get(&class).cloned());
        let machine = machine.ok_or_else(|| Trouble::machine(format!("{class}: its workers do not say what it is")))?;
        let jobs = server.js.get_stream(crate::message::JOBS).await;
        let jobs = jobs.map_err(|e| Trouble::machine(format!("{}: the stream of jobs: {e}", server.url)))?;
        let (told, workers) = (server.run(&wanted.run).await?, server.workers().await?);
        let (blobs, found) = (server.blobs(BLOBS).await?, server.blobs(FOUND).await?);
        let mut state = State::default();
        for worker in present {
            state.heard(worker);
        }
        let (wanted, state) = (wanted.clone(), Mutex::new(state));
        let courier = Self { server, wanted, class, jobs, told, workers, blobs, found, state };
        Ok((Arc::new(courier), machine, devices))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what workers tell, for ever. A server that went away has it all told again: what is known is known.
    async fn listen(self: Arc<Self>) {
        loop {
            if let Err(why) = self.listen_once().await {
                tracing::warn!("what workers tell cannot be heard: {why}");
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn listen_once(&self) -> Result<(), String> {
        let config = pull::Config {
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::None,
            inactive_threshold: Duration::from_mins(1),
            ..pull::Config::default()
        };
        let consumer = self.told.create_consumer(config).await.map_err(|e| e.to_string())?;
        let stream = consumer.stream().max_messages_per_batch(500).heartbeat(Duration::from_secs(2));
        let stream = stream.expires(Duration::from_secs(10)).messages().await;
        let mut messages = stream.map_err(|e| e.to_string())?;
        while let Some(message) = messages.next().await {
            self.take_in(&message.map_err(|e| e.to_string())?).await;
        }
        Ok(())
    }

    async fn take_in(&self, message: &jetstream::Message) {
        let mut tokens = message.subject.as_str().split('.').skip(2);
        let (Some(kind), Some(id)) = (tokens.next(), tokens.next()) else { return };
        let Ok(id) = serde_json::from_value::<Hash>(id.into()) else { return };
        if kind == "taken" {
            if let Ok(taken) = serde_json::from_slice::<Taken>(&message.payload) {
                self.state().taken(&id, taken);
            }
            return;
        }
        match self.believed(&id, message).await {
            Ok(told) => {
                let wiped = self.state().told(&id, told);
                if wiped {
                    self.wipe(&id).await;
                }
            }
            Err(why) => {
                self.state().tally.refused += 1;
                tracing::warn!(job = id.short(), "what a worker said is not believed: {why}");
            }
        }
    }

    /// What a worker says came of a job, where its signature is right.
    async fn believed(&self, id: &Hash, message: &jetstream::Message) -> Result<Told, String> {
        let header =
            |name: &str| message.headers.as_ref().and_then(|all| all.get(name)).map(async_nats::HeaderValue::as_str);
        let (key, signature) = (header(KEY).unwrap_or_default(), header(SIGNATURE).unwrap_or_default());
        if !is_signed_by(key, id, &message.payload, signature) {
            return Err("it is not signed by the key that it names".to_owned());
        }
        if !self.wanted.trusted.is_empty() && !self.wanted.trusted.iter().any(|trusted| trusted == key) {
            return Err(format!("{key} is not among the trusted keys (hosts.trusted)"));
        }
        let stowed: Stowed<Told> = serde_json::from_slice(&message.payload).map_err(|e| e.to_string())?;
        let mut told = match stowed {
            Stowed::Here(told) => told,
            Stowed::Blob(hash) => {
                let content = self.found.get(&hash).await?;
                serde_json::from_slice(&content).map_err(|e| e.to_string())?
            }
        };
        told.done.hand.key = Some(key.to_owned());
        Ok(told)
    }

    /// Wipes all that was told of a job, which has counted.
    async fn wipe(&self, id: &Hash) {
        let subject = format!("runs.{}.*.{id}", self.wanted.run);
        if let Err(why) = self.told.purge().filter(subject).await {
            tracing::warn!(job = id.short(), "what was told of it is still on the server: {why}");
        }
    }

    /// Takes in which workers there are, for ever.
    async fn watch(self: Arc<Self>) {
        loop {
            if let Err(why) = self.watch_once().await {
                tracing::warn!("the workers cannot be watched: {why}");
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn watch_once(&self) -> Result<(), String> {
        let mut watch = self.workers.watch("worker.*").await.map_err(|e| e.to_string())?;
        loop {
            // A consumer of a server that was away may be gone without a word.
            let silence = self.wanted.pace.ack.max(Duration::from_secs(5));
            let entry = match tokio::time::timeout(silence, watch.next()).await {
                Ok(Some(entry)) => entry.map_err(|e| e.to_string())?,
                Ok(None) | Err(_) => return Ok(()),
            };
            match entry.operation {
                Operation::Put => {
                    if let Ok(facts) = serde_json::from_slice::<Facts>(&entry.value) {
                        self.state().heard(facts);
                    }
                }
                Operation::Delete | Operation::Purge => {
                    self.state().left(entry.key.trim_start_matches("worker."));
                }
            }
        }
    }
}

/// The workers that there are, once there is one of those wanted, or nobody has come for a while.
async fn awaited(server: &Server, wanted: &Wanted) -> Result<Vec<Facts>, Trouble> {
    let until = tokio::time::Instant::now() + BEGINNING;
    loop {
        let present = look::present(server).await?;
        if chosen(server, wanted, &present).is_ok() || tokio::time::Instant::now() > until {
            return Ok(present);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The class of workers for a run, and how many devices it has.
fn chosen(server: &Server, wanted: &Wanted, present: &[Facts]) -> Result<(String, usize), Trouble> {
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    for place in present.iter().flat_map(|worker| worker.slots.values()) {
        place.lanes.get(wanted.lane).into_iter().for_each(|class| *classes.entry(class).or_default() += 1);
    }
    let named = |class: &&str| wanted.class.as_ref().is_none_or(|named| class.starts_with(named.as_str()));
    let most = classes.iter().filter(|(class, _)| named(class)).max_by_key(|(_, devices)| **devices);
    if let Some((class, devices)) = most {
        return Ok(((*class).to_owned(), *devices));
    }
    let (url, lane) = (&server.url, wanted.lane);
    let those = match (classes.is_empty(), &wanted.class) {
        (false, Some(class)) => {
            let there: Vec<&str> = classes.into_keys().collect();
            format!("no worker of class {class} is there for {lane}; there are: {}", there.join(", "))
        }
        _ if present.is_empty() => "no worker is there".to_owned(),
        _ => format!("none of the {} workers that are there works on {lane}", present.len()),
    };
    Err(Trouble::machine(format!(
        "{url}: {those}; start one on each host with `warpsmith worker --hosts URL`, and look with `warpsmith doctor --hosts \
         URL`"
    )))
}
