//! What does a model behind an OpenAI-compatible endpoint say?
//!
//! One service (`retry.rs`) sends each request, reads the whole answer and decides what to do about a bad one; async-openai says the rest of the
//! protocol. async-openai writes bodies that it cannot read to the log at error level (target `async_openai`): programs that keep a
//! log filter that target out. Here it is given none to write: it only ever gets answers that were read before.

#[cfg(feature = "batch-api")]
mod batched;
mod connection;
mod key;
mod retry;
mod wait;

#[cfg(feature = "batch-api")]
pub use batched::{Batched, Batching};
pub use key::Key;

use super::chat::{self, Completion, Samplings};
use super::price::PriceTable;
use super::{Answer, AskError, Call, Llm, Reply};
use async_openai::error::OpenAIError;
use connection::Connection;
use retry::{Kind, Patience, Retrying};
use serde_json::Value;
use std::sync::{Arc, atomic::AtomicU32, atomic::Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How to reach an endpoint, and how patient to be with it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Up to and without `/chat/completions`; mostly ends in `/v1`.
    pub base_url: String,
    /// None for an endpoint that asks for none.
    pub key: Option<Key>,
    /// Model, temperature, token limit and reasoning effort, for each role.
    pub samplings: Samplings,
    /// What tokens cost.
    pub prices: PriceTable,
    /// The limit on one request, from the connection to the answer's last byte.
    pub request_timeout: Duration,
    /// The limit on one call, from its first request on, with all retries and the waiting between them.
    pub deadline: Duration,
    /// How often a request is sent again, at most.
    pub retries: u32,
    /// The wait before the first retry where the endpoint names none; then twice as long each time, up to half a minute, less a random part.
    pub first_wait: Duration,
    /// How long an endpoint that is down (nobody answers, or a gateway says so) is waited for, whatever the number of
    /// retries; zero for not at all.
    pub patience: Duration,
    /// How many requests may be under way at once.
    pub in_flight: usize,
}

impl Options {
    /// `OpenAI`'s own address.
    pub const OPENAI: &'static str = "https://api.openai.com/v1";

    /// These models at this address: ten minutes a request, half an hour a call, six retries, four requests at once.
    #[must_use]
    pub fn new(base_url: impl Into<String>, key: Option<Key>, samplings: Samplings) -> Self {
        Self {
            base_url: base_url.into(),
            key,
            samplings,
            prices: PriceTable::embedded(),
            request_timeout: Duration::from_mins(10),
            deadline: Duration::from_mins(30),
            retries: 6,
            first_wait: Duration::from_millis(500),
            patience: Duration::ZERO,
            in_flight: 4,
        }
    }
}

/// A model behind an OpenAI-compatible endpoint.
pub struct OpenAi {
    connection: Arc<Connection>,
    samplings: Samplings,
    prices: PriceTable,
    patience: Patience,
    in_flight: Arc<Semaphore>,
}

impl OpenAi {
    /// Connects to nothing yet.
    ///
    /// # Errors
    ///
    /// If the address is none, or no TLS client can be made here.
    pub fn new(options: Options) -> Result<Self, AskError> {
        let patience = Patience::of(&options);
        Ok(Self {
            connection: Arc::new(Connection::new(&options.base_url, options.key, options.request_timeout)?),
            samplings: options.samplings,
            prices: options.prices,
            patience,
            in_flight: Arc::new(Semaphore::new(options.in_flight.max(1))),
        })
    }

    async fn complete(&self, body: Value, model: &str, sent: &Arc<AtomicU32>) -> Result<Completion, AskError> {
        let service = Retrying {
            connection: self.connection.clone(),
            model: model.into(),
            patience: self.patience,
            in_flight: self.in_flight.clone(),
            sent: sent.clone(),
            kind: Kind::COMPLETION,
        };
        let client = self.connection.client().with_http_service(service);
        let answer: Value = client.chat().create_byot(body).await.map_err(|e| self.ask_error(e))?;
        Completion::read(&answer).map_err(AskError::Unreachable)
    }

    fn ask_error(&self, error: OpenAIError) -> AskError {
        match error {
            OpenAIError::Boxed(inner) => match inner.downcast::<AskError>() {
                Ok(error) => *error,
                Err(other) => AskError::Unreachable(self.connection.scrub(&other.to_string())),
            },
            other => AskError::Unreachable(self.connection.scrub(&other.to_string())),
        }
    }

    async fn exchange(&self, call: Call) -> Result<Reply, AskError> {
        let since = Instant::now();
        let sampling = self.samplings.of(call.id.role);
        let sent = Arc::new(AtomicU32::new(0));
        let completion = self.complete(chat::body(&call, sampling), &sampling.model, &sent).await?;
        if completion.finish_reason.as_deref() == Some("length") {
            tracing::warn!(call = %call.id, "the reply ends at the limit on its tokens: raise the limit if it cannot be read");
        }
        let model = completion.model.unwrap_or_else(|| sampling.model.clone());
        let usd = completion.usage.and_then(|usage| self.prices.usd(&model, &usage));
        Ok(Reply {
            text: completion.text,
            model,
            usage: completion.usage,
            usd,
            latency_ms: since.elapsed().as_millis() as u64,
            requests: sent.load(Ordering::Relaxed),
        })
    }
}

impl Llm for OpenAi {
    fn describe(&self) -> String {
        format!("{} at {}", self.samplings.models().join(", "), self.connection.place())
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        Box::pin(self.exchange(call))
    }
}
