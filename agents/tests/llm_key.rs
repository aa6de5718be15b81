//! A key is told to its endpoint and to nobody else. Alone in its file, because it listens to everything that the process traces.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod endpoint;

use endpoint::{Act, Endpoint};
use prompts::Prompt;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use warpsmith_agents::llm::{
    Call, CallId, Llm, Purpose, Role,
    chat::{Sampling, Samplings},
    openai::{Key, OpenAi, Options},
};

const SECRET: &str = "hunter2-hunter2-hunter2";

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn capture_everything() -> Captured {
    let captured = Captured::default();
    let writer = captured.clone();
    let level = tracing::Level::TRACE;
    let subscriber = tracing_subscriber::fmt().with_max_level(level).with_writer(move || writer.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    captured
}

async fn told_by(act: Act) -> String {
    let endpoint = Endpoint::acting([act]);
    let samplings = Samplings::all(Sampling::model("gpt-4o"));
    let options = Options {
        retries: 2,
        first_wait: Duration::from_millis(1),
        ..Options::new(endpoint.url(), Some(Key::new(SECRET).unwrap()), samplings)
    };
    let printed = format!("{options:?}");
    let llm = OpenAi::new(options).unwrap();
    let id = CallId {
        task: "silu".into(),
        round: 1,
        role: Role::Coder,
        purpose: Purpose::Seed,
        part: String::new(),
        attempt: 1,
    };
    let outcome = llm.ask(Call { id, prompt: Prompt::new("be brief", "hello") }).await;
    assert!(endpoint.requests()[0].authorization.as_ref().unwrap().contains(SECRET));
    format!("{outcome:?} {printed} {}", llm.describe())
}

#[tokio::test]
async fn the_key_is_in_no_error_no_reply_and_no_trace() {
    let captured = capture_everything();
    let echo = format!("your key {SECRET} and sk-proj-abc123 are wrong");
    let mut told = String::new();
    for act in [
        Act::error(401, "invalid_api_key", &echo),
        Act::Answer(404, vec![], echo.clone()),
        Act::Answer(429, vec![], echo.clone()),
        Act::error(500, "server_error", &echo),
        Act::Answer(200, vec![], echo.clone()),
        Act::Say(echo),
    ] {
        writeln!(told, "{}", told_by(act).await).unwrap();
    }
    let traced = String::from_utf8_lossy(&captured.0.lock().unwrap()).into_owned();
    assert!(traced.contains("asking again"), "{traced}");
    assert!(told.contains("your key *** and *** are wrong"), "{told}");
    for text in [&told, &traced] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert!(!traced.contains("sk-proj"), "{traced}");
}
