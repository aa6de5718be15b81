//! What does an endpoint say that answers by the file, within a day and for less?
//!
//! Questions that come within a few seconds become one batch of the endpoint's Batch API for each model. What a batch leaves unanswered goes
//! into a later one. The journal knows of each batch before the endpoint does, so that a killed run waits for it instead of paying again.

mod journal;
mod lines;
mod passage;
mod wire;

use super::{Options, connection::Connection, retry::Patience};
use crate::llm::chat::{self, Completion, Samplings};
use crate::llm::price::PriceTable;
use crate::llm::{Answer, AskError, Call, Llm, Reply};
use journal::Journal;
use kernelbench::Hash;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use wire::Wire;

/// The endpoint's own limit is 200 MB.
const LARGEST_UPLOAD: usize = 100 << 20;

/// How questions are gathered, and how patiently answers are looked for.
#[derive(Clone, Debug)]
pub struct Batching {
    /// The file that remembers which batches were begun. It is made with the first.
    pub journal: PathBuf,
    /// How long the first question of a batch waits for others.
    pub window: Duration,
    /// So many do not wait any longer.
    pub most: usize,
    /// The pause after the first look at a batch; each further one is longer by half.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// How long a batch may take. The endpoint's own word is 24 hours.
    pub longest: Duration,
}

impl Batching {
    /// Gathers for five seconds or up to 1,000 questions, looks after ten seconds and then at least every two minutes, for 26 hours.
    #[must_use]
    pub fn new(journal: impl Into<PathBuf>) -> Self {
        Self {
            journal: journal.into(),
            window: Duration::from_secs(5),
            most: 1000,
            first_pause: Duration::from_secs(10),
            longest_pause: Duration::from_mins(2),
            longest: Duration::from_hours(26),
        }
    }
}

/// A model behind an endpoint's Batch API. The deadline of [`Options`] is how long the endpoint may be out of reach.
pub struct Batched(Arc<Shared>);

struct Shared {
    wire: Wire,
    journal: Journal,
    batching: Batching,
    samplings: Samplings,
    prices: PriceTable,
    gathered: Mutex<Vec<Asked>>,
    full: Notify,
    /// Held while a batch is sought that may have been begun.
    seeking: tokio::sync::Mutex<()>,
}

/// The answer, and how many batches the question was in.
type Outcome = Result<(Completion, u32), AskError>;

/// A question on its way.
struct Asked {
    custom_id: String,
    model: String,
    line: String,
    hash: Hash,
    since: Instant,
    batches: u32,
    answer: oneshot::Sender<Outcome>,
}

/// Where questions find their answers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Whence {
    /// In the batch of this uploaded file, which an earlier process sent.
    Recorded(String),
    /// In a new batch, for this model.
    New(String),
}

impl Batched {
    /// Connects to nothing yet.
    ///
    /// # Errors
    ///
    /// If the address is none, the journal cannot be read, or no TLS client can be made here.
    pub fn new(options: Options, batching: Batching) -> Result<Self, AskError> {
        let patience = Patience::of(&options);
        let connection = Connection::new(&options.base_url, options.key, options.request_timeout)?;
        let journal = Journal::open(&batching.journal, connection.place())?;
        Ok(Self(Arc::new(Shared {
            wire: Wire::new(connection, patience),
            journal,
            batching,
            samplings: options.samplings,
            prices: options.prices,
            gathered: Mutex::default(),
            full: Notify::new(),
            seeking: tokio::sync::Mutex::default(),
        })))
    }
}

impl Llm for Batched {
    fn describe(&self) -> String {
        let (models, place) = (self.0.samplings.models().join(", "), self.0.wire.place());
        format!("{models} at {place}, in batches at {} of the list price", self.0.prices.batched())
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        Box::pin(self.0.exchange(call))
    }
}

impl Shared {
    async fn exchange(self: &Arc<Self>, call: Call) -> Result<Reply, AskError> {
        let since = Instant::now();
        let (asked, answer) = self.asked(&call);
        let wanted = asked.model.clone();
        self.gather([asked]);
        let gone = |_| AskError::Unreachable("what waited for the batch has stopped; resume".into());
        let (completion, batches) = answer.await.map_err(gone)??;
        let model = completion.model.unwrap_or(wanted);
        let whole = completion.usage.and_then(|usage| self.prices.usd(&model, &usage));
        Ok(Reply {
            text: completion.text,
            model,
            usage: completion.usage,
            usd: whole.map(|usd| usd * self.prices.batched()),
            latency_ms: since.elapsed().as_millis() as u64,
            requests: batches,
        })
    }

    fn asked(&self, call: &Call) -> (Asked, oneshot::Receiver<Outcome>) {
        let (sampling, custom_id) = (self.samplings.of(call.id.role), call.id.to_string());
        let body = chat::body(call, sampling);
        let hash = Hash::of(body.to_string().as_bytes());
        let line = json!({"custom_id": custom_id, "method": "POST", "url": wire::ENDPOINT, "body": body}).to_string();
        let (answer, receiver) = oneshot::channel();
        let model = sampling.model.clone();
        (Asked { custom_id, model, line, hash, since: Instant::now(), batches: 0, answer }, receiver)
    }

    /// Puts questions to those that wait; the first of them starts the window.
    fn gather(self: &Arc<Self>, asks: impl IntoIterator<Item = Asked>) {
        let mut gathered = self.lock();
        let begins = gathered.is_empty();
        gathered.extend(asks);
        if gathered.len() >= self.batching.most {
            self.full.notify_one();
        }
        if begins && !gathered.is_empty() {
            tokio::spawn(self.clone().wait_for_others());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait_for_others(self: Arc<Self>) {
        tokio::select! {
            () = tokio::time::sleep(self.batching.window) => {}
            () = self.full.notified() => {}
        }
        let asks = std::mem::take(&mut *self.lock());
        for (whence, asks) in self.sorted(asks) {
            tokio::spawn(self.clone().work(whence, asks));
        }
    }

    /// By where they find their answers; a file holds one model's questions and is not too long.
    fn sorted(&self, asks: Vec<Asked>) -> Vec<(Whence, Vec<Asked>)> {
        let mut kinds: BTreeMap<Whence, Vec<Vec<Asked>>> = BTreeMap::new();
        for asked in asks.into_iter().filter(|asked| !asked.answer.is_closed()) {
            let recorded = self.journal.take(&asked.custom_id, &asked.hash);
            let files =
                kinds.entry(recorded.map_or_else(|| Whence::New(asked.model.clone()), Whence::Recorded)).or_default();
            let bytes = |file: &[Asked]| file.iter().map(|other| other.line.len() + 1).sum::<usize>();
            match files.last_mut() {
                Some(file) if file.len() < self.batching.most && bytes(file) + asked.line.len() < LARGEST_UPLOAD => {
                    file.push(asked);
                }
                _ => files.push(vec![asked]),
            }
        }
        kinds
            .into_iter()
            .flat_map(|(whence, files)| files.into_iter().map(move |file| (whence.clone(), file)))
            .collect()
    }
}
