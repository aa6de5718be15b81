//! Was this asked before the program stopped? Then it is not asked again.

use super::{Answer, Call, CallId, Llm, Reply};
use kernelbench::Hash;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A model in front of which the record of a resumed run answers first.
///
/// A call is known by its id. That its prompt differs (a template was changed in between) is warned of, and the recorded reply still stands:
/// an answered call is never paid for twice.
pub struct Remembering {
    inner: Arc<dyn Llm>,
    known: Mutex<HashMap<CallId, (Hash, Reply)>>,
    before: Mutex<HashMap<CallId, (Hash, Reply)>>,
}

impl Remembering {
    /// Answers the known calls itself and leaves the others to `inner`. The hash is that of the prompt as JSON ([`Call::prompt_json`]).
    #[must_use]
    pub fn new(inner: Arc<dyn Llm>, known: HashMap<CallId, (Hash, Reply)>) -> Self {
        Self { inner, known: Mutex::new(known), before: Mutex::default() }
    }

    /// Answers these too, where the very same prompt is sent: answers of a record from behind a place where it was damaged,
    /// which may have been given after something that comes out otherwise now.
    pub fn learn_where_the_prompt_is_the_same(&self, before: HashMap<CallId, (Hash, Reply)>) {
        self.before.lock().unwrap_or_else(PoisonError::into_inner).extend(before);
    }

    /// Answers these too.
    pub fn learn(&self, known: HashMap<CallId, (Hash, Reply)>) {
        self.lock().extend(known);
    }

    /// No longer answers for this task: it will not ask again.
    pub fn forget(&self, task: &str) {
        self.lock().retain(|call, _| call.task != task);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallId, (Hash, Reply)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Llm for Remembering {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        let known = self.lock().get(&call.id).cloned();
        let prompt_now = Hash::of(call.prompt_json().as_bytes());
        let Some((prompt, reply)) = known else {
            let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).get(&call.id).cloned();
            return match before.filter(|(prompt, _)| *prompt == prompt_now) {
                Some((_, reply)) => Box::pin(std::future::ready(Ok(reply))),
                None => self.inner.ask(call),
            };
        };
        if prompt != prompt_now {
            tracing::warn!(call = %call.id, "the prompt is not the one that was answered before the run stopped; the recorded reply is used");
        }
        Box::pin(std::future::ready(Ok(reply)))
    }
}
