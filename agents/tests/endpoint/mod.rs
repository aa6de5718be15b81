//! A scripted OpenAI-compatible endpoint on 127.0.0.1, which counts what it is asked.
//!
//! It runs on threads of its own and needs nothing but the standard library and `serde_json`, so any test can include this file by its path.
#![allow(dead_code, clippy::allow_attributes, clippy::unwrap_used, reason = "each test uses the part that it needs")]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// What it does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// A good completion with this text.
    Say(String),
    /// A whole answer: status, further header lines, body.
    Answer(u16, Vec<String>, String),
    /// A good completion, of which the second half is missing.
    Truncate,
    /// Nothing, for ever.
    Hang,
    /// The head of an answer, and then nothing, for ever.
    HangInBody,
    /// The connection is closed without a byte.
    Close,
}

impl Act {
    /// An answer with an error object, as `OpenAI` makes them.
    pub(crate) fn error(status: u16, code: &str, message: &str) -> Self {
        Self::Answer(status, vec![], json!({"error": {"message": message, "type": code, "code": code}}).to_string())
    }

    /// The same with one header more.
    pub(crate) fn header(self, line: &str) -> Self {
        match self {
            Self::Answer(status, mut lines, body) => {
                lines.push(line.into());
                Self::Answer(status, lines, body)
            }
            other => other,
        }
    }
}

/// One request that came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Its path.
    pub(crate) path: String,
    /// Its `Authorization` header.
    pub(crate) authorization: Option<String>,
    /// Its body, where that is JSON.
    pub(crate) body: Value,
    /// Its body as it is.
    pub(crate) text: String,
}

impl Request {
    /// Everything that was said, system text included.
    pub(crate) fn said(&self) -> String {
        let messages = self.body["messages"].as_array().into_iter().flatten();
        messages.filter_map(|m| m["content"].as_str()).collect::<Vec<_>>().join("\n")
    }
}

type Respond = dyn Fn(usize, &Request) -> Act + Send + Sync;

/// The endpoint. It ends when this is dropped.
pub(crate) struct Endpoint {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    respond: Box<Respond>,
    requests: Mutex<Vec<Request>>,
    held: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
}

impl Endpoint {
    /// Does these, one per request; the last for ever.
    pub(crate) fn acting(acts: impl IntoIterator<Item = Act>) -> Self {
        let acts: Vec<Act> = acts.into_iter().collect();
        Self::start(move |n, _| acts[n.min(acts.len() - 1)].clone())
    }

    /// Does what this says for the n-th request (from 0).
    pub(crate) fn start(respond: impl Fn(usize, &Request) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            respond: Box::new(respond),
            requests: Mutex::default(),
            held: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.ended.load(Ordering::SeqCst) {
                    return;
                }
                let serving = serving.clone();
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        Self { address, shared }
    }

    /// What to give as the base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The requests that came so far, in order.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        self.shared.held.lock().unwrap().clear();
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let request = read(&stream)?;
        let n = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(request.clone());
            requests.len() - 1
        };
        let act = (self.respond)(n, &request);
        let hangs = matches!(act, Act::Hang | Act::HangInBody);
        let _ = stream.write_all(&bytes(act));
        if hangs {
            self.held.lock().unwrap().push(stream);
        }
        Some(())
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        lines
            .iter()
            .filter_map(|line| line.split_once(':'))
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.trim())
    };
    let mut body = vec![0; header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        path: lines.first()?.split(' ').nth(1)?.to_owned(),
        authorization: header("authorization").map(str::to_owned),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        text: String::from_utf8_lossy(&body).into_owned(),
    })
}

fn bytes(act: Act) -> Vec<u8> {
    let good = |text: &str| answer(200, &[], &completion(text));
    match act {
        Act::Say(text) => good(&text),
        Act::Answer(status, headers, body) => answer(status, &headers, &body),
        Act::Truncate => {
            let whole = good("this answer is cut off");
            whole[..whole.len() - 40].to_vec()
        }
        Act::Hang | Act::Close => Vec::new(),
        Act::HangInBody => good("this answer stops")[..90].to_vec(),
    }
}

/// A completion of this text, with tokens counted.
pub(crate) fn completion(text: &str) -> String {
    json!({
        "id": "c1", "object": "chat.completion", "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100,
            "prompt_tokens_details": {"cached_tokens": 400}, "completion_tokens_details": {"reasoning_tokens": 60}},
    })
    .to_string()
}

fn answer(status: u16, headers: &[String], body: &str) -> Vec<u8> {
    let length = format!("content-length: {}", body.len());
    let head = [&[format!("HTTP/1.1 {status} X"), length, "connection: close".into()], headers].concat().join("\r\n");
    format!("{head}\r\n\r\n{body}").into_bytes()
}
