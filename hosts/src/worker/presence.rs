//! Presence: a worker says that it is there and what it does, and no two have one name.

use crate::{
    message::{Doing, Facts},
    server::Server,
};
use async_nats::jetstream::kv;
use kernelbench::Hash;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;
use warpsmith::exit::Trouble;

/// A worker's entry on the server.
pub(crate) struct Presence {
    store: kv::Store,
    key: String,
    state: Mutex<State>,
}

struct State {
    facts: Facts,
    revision: u64,
    began: HashMap<Hash, Instant>,
}

impl Presence {
    /// Says that it is there, once it is clear that nobody of this name is.
    ///
    /// # Errors
    ///
    /// Where somebody is, or the server does not take it in.
    pub(crate) async fn begin(server: &Server, facts: Facts, beat: Duration) -> Result<Self, Trouble> {
        let store = server.workers().await?;
        let key = format!("worker.{}", facts.name);
        let failed =
            |why: &dyn std::fmt::Display| Trouble::machine(format!("the worker cannot say that it is there: {why}"));
        let before = store.entry(&key).await.map_err(|e| failed(&e))?.filter(|e| e.operation == kv::Operation::Put);
        if let Some(before) = before {
            // One that was killed says nothing any more; one that lives writes again within a beat.
            tokio::time::sleep(beat + beat / 2).await;
            let after = store.entry(&key).await.map_err(|e| failed(&e))?;
            if after.is_some_and(|after| after.revision != before.revision && after.operation == kv::Operation::Put) {
                return Err(taken(&facts.name));
            }
        }
        let value = serde_json::to_vec(&facts).unwrap_or_default();
        let put = store.put(&key, value.into()).await;
        let revision = put.map_err(|e| Trouble::machine(server.stores_nothing(&e)))?;
        Ok(Self { store, key, state: Mutex::new(State { facts, revision, began: HashMap::new() }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it says of itself.
    pub(crate) fn facts(&self) -> Facts {
        self.state().facts.clone()
    }

    /// Notes that a device began a job.
    pub(crate) fn began(&self, slot: &str, id: &Hash, doing: Doing) {
        let mut state = self.state();
        state.began.insert(id.clone(), Instant::now());
        state.facts.slots.entry(slot.to_owned()).and_modify(|place| drop(place.doing.insert(id.clone(), doing)));
    }

    /// Notes that it ended.
    pub(crate) fn ended(&self, slot: &str, id: &Hash) {
        let mut state = self.state();
        state.began.remove(id);
        state.facts.slots.entry(slot.to_owned()).and_modify(|place| drop(place.doing.remove(id)));
    }

    /// Says that it is there still; that another has its name, where one has.
    pub(crate) async fn beat(&self) -> Option<Trouble> {
        let (value, revision) = {
            let mut state = self.state();
            let State { facts, began, .. } = &mut *state;
            for place in facts.slots.values_mut() {
                for (id, doing) in &mut place.doing {
                    doing.seconds = began.get(id).map_or(0, |at| at.elapsed().as_secs());
                }
            }
            (serde_json::to_vec(facts).unwrap_or_default(), state.revision)
        };
        match self.store.update(&self.key, value.clone().into(), revision).await {
            Ok(revision) => self.state().revision = revision,
            Err(why) => return self.mend(value, &why).await,
        }
        None
    }

    /// A server that broke may have an older entry than the last, or none: it is written anew, unless it is another's.
    async fn mend(&self, value: Vec<u8>, why: &kv::UpdateError) -> Option<Trouble> {
        let Ok(entry) = self.store.entry(&self.key).await else {
            tracing::warn!("the worker cannot say that it is there: {why}");
            return None;
        };
        let (name, process) = (self.facts().name, self.facts().process);
        let entry = entry.filter(|entry| entry.operation == kv::Operation::Put);
        let other = entry.and_then(|entry| serde_json::from_slice::<Facts>(&entry.value).ok());
        if other.is_some_and(|other| other.process != process) {
            return Some(taken(&name));
        }
        if let Ok(revision) = self.store.put(&self.key, value.into()).await {
            self.state().revision = revision;
        }
        None
    }

    /// Says that it leaves.
    pub(crate) async fn end(&self) {
        let revision = self.state().revision;
        let _ = self.store.delete_expect_revision(&self.key, Some(revision)).await;
    }
}

fn taken(name: &str) -> Trouble {
    Trouble::usage(format!("a worker called {name} is at work already: give this one another name with --name"))
}
