//! What if every task's first candidate is given? For variants that are to differ in what follows.

use super::{Answer, AskError, Call, CallId, Llm, Purpose, Reply, Usage};
use std::{collections::HashMap, sync::Arc};

/// A model in front of which the first candidates of another run answer: no model is asked for those, and nothing is paid.
pub struct Seeded {
    inner: Arc<dyn Llm>,
    source: String,
    seeds: Seeds,
}

/// Replies by task, purpose and attempt, each with who gave it: first candidates, and the approaches that they were written by. What
/// was looked up before is not among them.
pub type Seeds = HashMap<(String, Purpose, u32), (String, String)>;

/// Whether a call is for a first candidate, or for what it is written by.
#[must_use]
pub fn is_of_a_seed(call: &CallId) -> bool {
    call.round == 1 && [Purpose::Seed, Purpose::Approaches].contains(&call.purpose)
}

impl Seeded {
    /// Answers the Coder's first call of these tasks itself and leaves all others to `inner`; `source` says where the seeds
    /// come from.
    #[must_use]
    pub fn new(inner: Arc<dyn Llm>, source: impl Into<String>, seeds: Seeds) -> Self {
        Self { inner, source: source.into(), seeds }
    }

    /// The reply to a call for a first candidate. Where the candidate is given and was written without approaches, none fit.
    fn seed(&self, call: &Call) -> Option<Result<Reply, AskError>> {
        if !is_of_a_seed(&call.id) {
            return None;
        }
        let given = |purpose| self.seeds.get(&(call.id.task.clone(), purpose, call.id.attempt)).cloned();
        match given(call.id.purpose) {
            Some((text, model)) => Some(Ok(Reply {
                text,
                model,
                usage: Some(Usage::default()),
                usd: Some(0.0),
                latency_ms: 0,
                requests: 0,
            })),
            None if call.id.purpose == Purpose::Approaches && given(Purpose::Seed).is_some() => Some(Err(
                AskError::NoFit("the first candidate is given, and no approaches were ranked for it".to_owned()),
            )),
            None => None,
        }
    }
}

impl Llm for Seeded {
    fn describe(&self) -> String {
        format!("{}; the first candidates are those of {}", self.inner.describe(), self.source)
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        match self.seed(&call) {
            Some(reply) => Box::pin(std::future::ready(reply)),
            None => self.inner.ask(call),
        }
    }
}
