//! What is done about an answer that is none?

use super::{Options, connection::Connection, wait};
use crate::llm::{AskError, chat::Completion};
use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use jiff::Timestamp;
use reqwest::{Response, StatusCode};
use serde_json::Value;
use std::pin::Pin;
use std::sync::{Arc, atomic::AtomicU32, atomic::Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::{sync::Semaphore, time::Instant};
use tower::Service;

const LONGEST_DEADLINE: Duration = Duration::from_hours(365 * 24);
pub(super) const LARGEST_ANSWER: usize = 32 << 20;
const LARGEST_COMPLAINT: usize = 64 << 10;

/// Retries of which nothing is said but in the log.
const UNREMARKABLE: u32 = 3;
/// How long and how often.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub(super) request_timeout: Duration,
    pub(super) deadline: Duration,
    pub(super) retries: u32,
    pub(super) first_wait: Duration,
    /// How long an endpoint that is down is waited for, whatever the number of retries.
    pub(super) while_down: Duration,
}

impl Patience {
    pub(super) fn of(options: &Options) -> Self {
        Self {
            request_timeout: options.request_timeout,
            deadline: options.deadline,
            retries: options.retries,
            first_wait: options.first_wait,
            while_down: options.patience,
        }
    }
}

/// What a whole answer is.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// In bytes.
    pub(super) largest: usize,
    /// What is wrong with a text that is none.
    pub(super) read: fn(&str) -> Result<(), String>,
}

impl Kind {
    /// A chat completion.
    pub(super) const COMPLETION: Self =
        Self { largest: LARGEST_ANSWER, read: |text| Completion::read(&json(text)?).map(drop) };
}

/// A text as JSON.
pub(super) fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|e| format!("its answer is not JSON, or is cut off: {e}"))
}

/// Sends a request until it has a whole, readable answer, or a reason to give up.
#[derive(Clone)]
pub(super) struct Retrying {
    pub(super) connection: Arc<Connection>,
    pub(super) model: String,
    pub(super) patience: Patience,
    pub(super) in_flight: Arc<Semaphore>,
    pub(super) sent: Arc<AtomicU32>,
    pub(super) kind: Kind,
}

/// What came in an answer's place.
pub(super) enum Trouble {
    /// Asking again may help, and after this wait if the endpoint said so. `down`: nobody is there to answer.
    Passing { what: String, wait: Option<Duration>, down: bool },
    /// Asking again will not help.
    Lasting(String),
}

impl Trouble {
    fn passing(what: impl Into<String>) -> Self {
        Self::Passing { what: what.into(), wait: None, down: false }
    }

    fn is_down(&self) -> bool {
        matches!(self, Self::Passing { down: true, .. })
    }

    fn down(what: impl Into<String>) -> Self {
        Self::Passing { what: what.into(), wait: None, down: true }
    }
}

impl Service<HttpRequestFactory> for Retrying {
    type Response = Response;
    type Error = OpenAIError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, OpenAIError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequestFactory) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let text = this.send(request).await.map_err(|e| OpenAIError::Boxed(Box::new(e)))?;
            Ok(http::Response::new(text).into())
        })
    }
}

impl Retrying {
    pub(super) async fn send(&self, request: HttpRequestFactory) -> Result<String, AskError> {
        let (mut until, mut down) = (None, None);
        for retry in 1.. {
            let trouble = match self.once(&request, &mut until).await {
                Ok(text) => return Ok(text),
                Err(trouble) => trouble,
            };
            let left = until.map_or(self.patience.deadline, |until: Instant| until - Instant::now());
            down = trouble.is_down().then(|| down.unwrap_or_else(Instant::now));
            let wait = self.wait(trouble, retry, left, down.map(|since: Instant| since.elapsed()))?;
            tokio::time::sleep(wait).await;
        }
        Err(self.gave_up("nothing", "no more retries"))
    }

    /// The wait before this retry, or the end of it.
    fn wait(&self, trouble: Trouble, retry: u32, left: Duration, down: Option<Duration>) -> Result<Duration, AskError> {
        let (what, asked_for) = match trouble {
            Trouble::Lasting(why) => return Err(AskError::Refused(why)),
            Trouble::Passing { what, wait, .. } => (what, wait),
        };
        let patient = self.patience.while_down;
        let patience_left = down.map_or(Duration::ZERO, |so_long| patient.saturating_sub(so_long));
        if retry > self.patience.retries && patience_left.is_zero() {
            return Err(self.gave_up(&what, "no retry is left"));
        }
        let wait = asked_for.unwrap_or_else(|| wait::own(self.patience.first_wait, retry));
        // The last try comes when patience ends, not before.
        let wait = if patience_left.is_zero() { wait } else { wait.min(patience_left) };
        if wait >= left {
            let asked = if asked_for.is_some() { "it asks for a wait of" } else { "the next wait would be" };
            return Err(self.gave_up(&what, &format!("{asked} {wait:.1?}, and {left:.1?} are left of the deadline")));
        }
        let place = self.connection.place();
        if let Some(so_long) = down.filter(|_| retry > 1 && !patient.is_zero()) {
            let (so_long, most, wait) = (so_long.as_secs(), patient.as_secs(), wait.as_secs_f64());
            tracing::warn!(
                "{place} does not answer: waiting for {so_long} s of at most {most} s, try {retry} ({what}); the next in {wait:.1} s"
            );
        } else if retry > UNREMARKABLE {
            tracing::warn!(place, what, ?wait, retry, "still no answer: asking again");
        } else {
            tracing::info!(place, what, ?wait, retry, "asking again");
        }
        Ok(wait.mul_f64(rand::random_range(1.0..=1.1)).min(left))
    }

    fn gave_up(&self, what: &str, why: &str) -> AskError {
        let (place, sent) = (self.connection.place(), self.sent.load(Ordering::Relaxed));
        let times = if sent == 1 { "request" } else { "requests" };
        AskError::Unreachable(format!(
            "no answer from {place} after {sent} {times}: {what}; {why}; resume when the endpoint answers again"
        ))
    }

    /// Sends once. The deadline begins with the first request that may go out.
    async fn once(&self, request: &HttpRequestFactory, until: &mut Option<Instant>) -> Result<String, Trouble> {
        let _permit =
            self.in_flight.acquire().await.map_err(|_| Trouble::Lasting("no request may be sent any more".into()))?;
        let until = *until.get_or_insert_with(|| Instant::now() + self.patience.deadline.min(LONGEST_DEADLINE));
        let limit = self.patience.request_timeout.min(until - Instant::now());
        if limit.is_zero() {
            return Err(Trouble::passing("no whole answer in time"));
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        match tokio::time::timeout(limit, self.attempt(request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Trouble::passing(format!("no whole answer within {limit:.1?}"))),
        }
    }

    async fn attempt(&self, request: &HttpRequestFactory) -> Result<String, Trouble> {
        let response = self.connection.send(request).await.map_err(|e| self.unsent(e))?;
        let (status, wait) = (response.status(), wait::asked_for(response.headers(), Timestamp::now()));
        if !status.is_success() {
            let body = body(response, LARGEST_COMPLAINT).await.unwrap_or_default();
            return Err(self.complaint(status, wait, &body));
        }
        let text = body(response, self.kind.largest).await.map_err(Trouble::passing)?;
        let text = self.connection.scrub_reply(text);
        match (self.kind.read)(&text) {
            Ok(()) => Ok(text),
            Err(why) => Err(Trouble::passing(format!("{why}; it said: {}", self.excerpt(&text)))),
        }
    }

    fn unsent(&self, error: OpenAIError) -> Trouble {
        match error {
            OpenAIError::Reqwest(e) if e.is_builder() => Trouble::Lasting(format!(
                "no request can be made for {}: {}",
                self.connection.place(),
                causes(&e.without_url())
            )),
            OpenAIError::Reqwest(e) => Trouble::down(self.connection.scrub(&causes(&e.without_url()))),
            other => Trouble::passing(self.connection.scrub(&other.to_string())),
        }
    }

    pub(super) fn complaint(&self, status: StatusCode, wait: Option<Duration>, body: &str) -> Trouble {
        let said = self.excerpt(body);
        let spent = spent(body);
        let passing = status.is_server_error() || matches!(status.as_u16(), 408 | 409 | 429);
        if passing && !spent {
            let down = matches!(status.as_u16(), 502..=504);
            return Trouble::Passing { what: format!("status {status}: {said}"), wait, down };
        }
        let (place, model) = (self.connection.place(), &self.model);
        let advice = match status.as_u16() {
            _ if spent => "the account has no quota left: check its plan and billing".into(),
            401 => "check the key (OPENAI_API_KEY), and that it belongs to this endpoint".into(),
            403 => format!("check that the key may use the model {model}"),
            404 => {
                format!("check the address (OPENAI_BASE_URL), which mostly ends in /v1, and the model's name, {model}")
            }
            300..=399 => "it sends elsewhere: give the address that it sends to".into(),
            _ => format!("check the model's name, {model}, and its temperature, token limit and reasoning effort"),
        };
        Trouble::Lasting(format!("{place} refused with status {status}: {said}; {advice}"))
    }

    /// A text from the endpoint in one line: its error message, if it has one, without secrets.
    pub(super) fn excerpt(&self, body: &str) -> String {
        let json: Option<Value> = serde_json::from_str(body).ok();
        let message = json.as_ref().and_then(|v| {
            ["/error/message", "/error", "/message", "/detail"].iter().find_map(|path| v.pointer(path)?.as_str())
        });
        let text = message.unwrap_or(body).trim();
        if text.is_empty() {
            return "(no text)".into();
        }
        if text.starts_with('<') {
            return "(an HTML page)".into();
        }
        let line = self.connection.scrub(&text.split_whitespace().collect::<Vec<_>>().join(" "));
        if line.chars().count() <= 300 { line } else { line.chars().take(300).chain("...".chars()).collect() }
    }
}

fn spent(body: &str) -> bool {
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    let is_spent = |path: &&str| {
        json.pointer(path).is_some_and(|v| v == "insufficient_quota" || v == "billing_hard_limit_reached")
    };
    ["/error/code", "/error/type"].iter().any(is_spent)
}

async fn body(mut response: Response, limit: usize) -> Result<String, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) =
        response.chunk().await.map_err(|e| format!("its answer is cut off: {}", causes(&e.without_url())))?
    {
        if bytes.len() + chunk.len() > limit {
            return Err(format!("its answer has more than {limit} bytes"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// An error with what lies beneath it, in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !line.contains(&cause_text) {
            line = format!("{line}: {cause_text}");
        }
        next = cause.source();
    }
    line
}
