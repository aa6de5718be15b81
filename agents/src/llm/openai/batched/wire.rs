//! How is a batch sent, found, looked at and fetched?

use super::lines::Line;
use crate::llm::AskError;
use crate::llm::openai::connection::Connection;
use crate::llm::openai::retry::{self, Kind, Patience, Retrying, Trouble};
use crate::llm::openai::wait;
use async_openai::middleware::HttpRequestFactory;
use reqwest::StatusCode;
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use std::sync::{Arc, atomic::AtomicU32};
use tokio::sync::Semaphore;

/// What is asked of each line.
pub(super) const ENDPOINT: &str = "/v1/chat/completions";
const LARGEST_FILE: usize = 256 << 20;
const AT_ONCE: usize = 4;
/// Where a complaint would name the model.
const WHICH: &str = "of the batch";

const OBJECT: Kind = Kind { largest: retry::LARGEST_ANSWER, read: |text| retry::json(text).map(drop) };
const FILE: Kind = Kind { largest: LARGEST_FILE, read: |_| Ok(()) };

/// The endpoint, as its Batch API has it.
pub(super) struct Wire {
    connection: Arc<Connection>,
    pub(super) patience: Patience,
    in_flight: Arc<Semaphore>,
}

/// A batch that has ended.
pub(super) struct Ended {
    /// The lines of its output and of its errors, as far as there are any.
    pub(super) files: Vec<String>,
    /// Why it was not worked on at all.
    pub(super) failure: Option<Failure>,
}

/// Why a batch was not worked on at all.
pub(super) struct Failure {
    /// In the endpoint's words.
    pub(super) why: String,
    /// Whether other batches are in its way.
    pub(super) crowded: bool,
}

impl Wire {
    pub(super) fn new(connection: Connection, patience: Patience) -> Self {
        Self { connection: Arc::new(connection), patience, in_flight: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    pub(super) fn place(&self) -> &str {
        self.connection.place()
    }

    /// Sends a file of questions to this model, and gives its id.
    pub(super) async fn upload(&self, lines: String, model: &str) -> Result<String, AskError> {
        let request = self.connection.request("/files", move |http, url| {
            let file = Part::text(lines.clone()).file_name("batch.jsonl");
            http.post(url).multipart(Form::new().text("purpose", "batch").part("file", file))
        });
        id(&object(&self.service(OBJECT, self.patience, model).send(request).await?))
    }

    /// Makes a batch of this file, and gives its id. Where it is not known whether there is one already, it looks first:
    /// a file must not be paid for twice.
    pub(super) async fn create(&self, file: &str, mut look_first: bool) -> Result<String, AskError> {
        let once = Patience { retries: 0, while_down: std::time::Duration::ZERO, ..self.patience };
        let body = json!({"input_file_id": file, "endpoint": ENDPOINT, "completion_window": "24h"});
        let request = self.connection.request("/batches", move |http, url| http.post(url).json(&body));
        for retry in 1.. {
            if look_first && let Some(batch) = self.find(file).await? {
                return Ok(batch);
            }
            match self.service(OBJECT, once, WHICH).send(request.clone()).await {
                Err(AskError::Unreachable(why)) if retry <= self.patience.retries => {
                    tracing::warn!(why, "looking whether the batch was made all the same");
                }
                made => return id(&object(&made?)),
            }
            look_first = true;
            tokio::time::sleep(wait::own(self.patience.first_wait, retry)).await;
        }
        Err(AskError::Unreachable("no batch could be made".into()))
    }

    /// The batch of this file among the latest hundred.
    async fn find(&self, file: &str) -> Result<Option<String>, AskError> {
        let batches = object(&self.get("/batches?limit=100", OBJECT).await?);
        let all = batches.get("data").and_then(Value::as_array).into_iter().flatten();
        all.filter(|batch| batch.get("input_file_id").is_some_and(|id| id == file)).map(id).next().transpose()
    }

    /// Looks at a batch, and fetches what it holds if it has ended.
    pub(super) async fn look(&self, batch: &str) -> Result<Option<Ended>, AskError> {
        let batch = object(&self.get(&format!("/batches/{}", plain(batch)?), OBJECT).await?);
        let status = batch.get("status").and_then(Value::as_str).unwrap_or_default();
        match status {
            "failed" => return Ok(Some(Ended { files: vec![], failure: Some(self.failure(&batch)) })),
            "completed" | "expired" | "cancelled" => {}
            _ => return Ok(None),
        }
        let mut files = Vec::new();
        for key in ["output_file_id", "error_file_id"] {
            if let Some(file) = batch.get(key).and_then(Value::as_str).filter(|id| !id.is_empty()) {
                files.push(self.get(&format!("/files/{}/content", plain(file)?), FILE).await?);
            }
        }
        tracing::info!(status, "a batch has ended");
        Ok(Some(Ended { files, failure: None }))
    }

    fn failure(&self, batch: &Value) -> Failure {
        let first = batch.pointer("/errors/data/0").unwrap_or(&Value::Null);
        let crowded = first.get("code").is_some_and(|code| code == "token_limit_exceeded");
        Failure { why: self.service(OBJECT, self.patience, WHICH).excerpt(&first.to_string()), crowded }
    }

    /// What a line's error means.
    pub(super) fn complaint(&self, status: u16, body: &str) -> Line {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        match self.service(OBJECT, self.patience, WHICH).complaint(status, None, body) {
            Trouble::Passing { what, .. } => Line::Failed(what),
            Trouble::Lasting(why) => Line::Refused(why),
        }
    }

    async fn get(&self, path: &str, kind: Kind) -> Result<String, AskError> {
        let request: HttpRequestFactory = self.connection.request(path, |http, url| http.get(url));
        self.service(kind, self.patience, WHICH).send(request).await
    }

    fn service(&self, kind: Kind, patience: Patience, model: &str) -> Retrying {
        let (connection, in_flight) = (self.connection.clone(), self.in_flight.clone());
        Retrying { connection, model: model.into(), patience, in_flight, sent: Arc::new(AtomicU32::new(0)), kind }
    }
}

fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn id(object: &Value) -> Result<String, AskError> {
    plain(object.get("id").and_then(Value::as_str).unwrap_or_default()).map(str::to_owned)
}

/// An id that may stand in a path.
fn plain(id: &str) -> Result<&str, AskError> {
    let fits = (1..=200).contains(&id.len()) && id.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    fits.then_some(id).ok_or_else(|| {
        AskError::Refused("the endpoint gave an id that is none (letters, digits, - and _ were expected): does it have the Batch API?".into())
    })
}
