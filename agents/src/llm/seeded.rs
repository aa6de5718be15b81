//! What if every task's first candidate is given? For variants that are to differ in what follows.

use super::{Answer, Call, Llm, Purpose, Reply, Usage};
use std::{collections::HashMap, sync::Arc};

/// A model in front of which the first candidates of another run answer: no model is asked for those, and nothing is paid.
pub struct Seeded {
    inner: Arc<dyn Llm>,
    source: String,
    seeds: Seeds,
}

/// Replies by task and attempt, each with who gave it.
pub type Seeds = HashMap<(String, u32), (String, String)>;

impl Seeded {
    /// Answers the Coder's first call of these tasks itself and leaves all others to `inner`; `source` says where the seeds
    /// come from.
    #[must_use]
    pub fn new(inner: Arc<dyn Llm>, source: impl Into<String>, seeds: Seeds) -> Self {
        Self { inner, source: source.into(), seeds }
    }

    fn seed(&self, call: &Call) -> Option<Reply> {
        if call.id.purpose != Purpose::Seed || call.id.round != 1 {
            return None;
        }
        let (text, model) = self.seeds.get(&(call.id.task.clone(), call.id.attempt))?.clone();
        Some(Reply { text, model, usage: Some(Usage::default()), usd: Some(0.0), latency_ms: 0, requests: 0 })
    }
}

impl Llm for Seeded {
    fn describe(&self) -> String {
        format!("{}; the first candidates are those of {}", self.inner.describe(), self.source)
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        match self.seed(&call) {
            Some(reply) => Box::pin(std::future::ready(Ok(reply))),
            None => self.inner.ask(call),
        }
    }
}
