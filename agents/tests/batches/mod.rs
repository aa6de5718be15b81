//! A scripted Batch API on top of the scripted endpoint.
#![allow(dead_code, clippy::allow_attributes, clippy::unwrap_used, reason = "each test uses the part that it needs")]

use crate::endpoint::{Act, Endpoint, Request, completion};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// How a batch stands when it is looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stage {
    pub(crate) status: &'static str,
    pub(crate) output: Vec<Value>,
    pub(crate) errors: Vec<Value>,
    /// Why it failed as a whole: code and message.
    pub(crate) failure: Option<(&'static str, &'static str)>,
}

impl Stage {
    /// Still worked on.
    pub(crate) fn going() -> Self {
        Self { status: "in_progress", ..Self::default() }
    }

    /// Ended with these lines.
    pub(crate) fn ended(status: &'static str, output: Vec<Value>, errors: Vec<Value>) -> Self {
        Self { status, output, errors, failure: None }
    }

    /// Completed, each line answered with this text.
    pub(crate) fn all(lines: &[Value], text: impl Fn(&Value) -> String) -> Self {
        Self::ended("completed", lines.iter().map(|line| answer(line, &text(line))).collect(), vec![])
    }
}

/// The n-th batch (from 0), looked at for the n-th time (from 0), with these lines of input.
type Stages = dyn Fn(usize, usize, &[Value]) -> Stage + Send + Sync;

/// The endpoint.
pub(crate) struct Batches {
    pub(crate) endpoint: Endpoint,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    files: Vec<Vec<Value>>,
    /// The file that each batch was made of, how often it was looked at, and how it stood last.
    batches: Vec<(usize, usize, Stage)>,
}

impl Batches {
    pub(crate) fn start(stages: impl Fn(usize, usize, &[Value]) -> Stage + Send + Sync + 'static) -> Self {
        Self::meeting(|_| None, stages)
    }

    /// The same, where `instead` may answer first. What it answers to is done all the same.
    pub(crate) fn meeting(
        instead: impl Fn(&Request) -> Option<Act> + Send + Sync + 'static,
        stages: impl Fn(usize, usize, &[Value]) -> Stage + Send + Sync + 'static,
    ) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let (own, stages): (_, Box<Stages>) = (state.clone(), Box::new(stages));
        let endpoint = Endpoint::start(move |_, request| {
            let act = own.lock().unwrap().answer(request, &*stages);
            instead(request).unwrap_or(act)
        });
        Self { endpoint, state }
    }

    /// The lines of each file that was sent.
    pub(crate) fn files(&self) -> Vec<Vec<Value>> {
        self.state.lock().unwrap().files.clone()
    }

    /// Has these files, as if they had been sent.
    pub(crate) fn keep(&self, files: Vec<Vec<Value>>) {
        self.state.lock().unwrap().files = files;
    }

    /// How many batches were made.
    pub(crate) fn made(&self) -> usize {
        self.state.lock().unwrap().batches.len()
    }

    /// The `custom_id`s of each file that was sent.
    pub(crate) fn asked(&self) -> Vec<Vec<String>> {
        let id = |line: &Value| line["custom_id"].as_str().unwrap().to_owned();
        self.files().iter().map(|lines| lines.iter().map(id).collect()).collect()
    }

    /// The paths that were asked for, in order.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.endpoint.requests().into_iter().map(|request| request.path).collect()
    }
}

impl State {
    fn answer(&mut self, request: &Request, stages: &Stages) -> Act {
        let path = request.path.strip_prefix("/v1/").unwrap();
        match path.split('/').collect::<Vec<_>>()[..] {
            ["files"] => {
                self.files.push(request.text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect());
                say(&json!({"id": format!("file-{}", self.files.len() - 1), "object": "file"}))
            }
            ["batches"] => {
                let file = request.body["input_file_id"].as_str().unwrap();
                self.batches.push((number(file), 0, Stage::default()));
                say(&self.object(self.batches.len() - 1))
            }
            ["batches?limit=100"] => {
                say(&json!({"data": (0..self.batches.len()).map(|n| self.object(n)).collect::<Vec<_>>()}))
            }
            ["batches", id] if number(id) < self.batches.len() => {
                let n = number(id);
                let (file, looks, _) = self.batches[n];
                self.batches[n] = (file, looks + 1, stages(n, looks, &self.files[file]));
                say(&self.object(n))
            }
            ["files", id, "content"] => {
                let stage = &self.batches[number(id)].2;
                let lines = if id.starts_with("output") { &stage.output } else { &stage.errors };
                Act::Answer(200, vec![], lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"))
            }
            _ => Act::error(404, "not_found", "no such thing"),
        }
    }

    fn object(&self, n: usize) -> Value {
        let (file, _, stage) = &self.batches[n];
        let id =
            |kind: &str, lines: &[Value]| if lines.is_empty() { Value::Null } else { json!(format!("{kind}-{n}")) };
        json!({
            "id": format!("batch_{n}"), "object": "batch", "status": stage.status,
            "input_file_id": format!("file-{file}"),
            "output_file_id": id("output", &stage.output), "error_file_id": id("errors", &stage.errors),
            "errors": stage.failure.map(|(code, message)| json!({"data": [{"code": code, "message": message}]})),
        })
    }
}

fn number(id: &str) -> usize {
    id.rsplit(['-', '_']).next().unwrap().parse().unwrap()
}

fn say(body: &Value) -> Act {
    Act::Answer(200, vec![], body.to_string())
}

/// A good line of output.
pub(crate) fn answer(line: &Value, text: &str) -> Value {
    let body: Value = serde_json::from_str(&completion(text)).unwrap();
    json!({"id": "r", "custom_id": line["custom_id"], "response": {"status_code": 200, "body": body}, "error": null})
}

/// A line whose request failed.
pub(crate) fn failed(line: &Value, status: u16, code: &str) -> Value {
    let body = json!({"error": {"message": format!("because of {code}"), "code": code}});
    json!({"id": "r", "custom_id": line["custom_id"], "response": {"status_code": status, "body": body}, "error": null})
}

/// A line whose turn did not come.
pub(crate) fn no_turn(line: &Value) -> Value {
    let error = json!({"code": "batch_expired", "message": "This request could not be executed in time."});
    json!({"id": "r", "custom_id": line["custom_id"], "response": null, "error": error})
}
