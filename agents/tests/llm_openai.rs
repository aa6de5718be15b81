//! An endpoint that misbehaves: each misbehaviour is survived, or ends with one clear sentence.

use crate::endpoint::{Act, Endpoint, completion};
use prompts::Prompt;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use warpsmith_agents::llm::{
    AskError, Call, CallId, Llm, Purpose, Reply, Role, Usage,
    chat::{Sampling, Samplings},
    openai::{Key, OpenAi, Options},
};

const SECRET: &str = "hunter2-hunter2-hunter2";

fn call(role: Role) -> Call {
    let id = CallId { task: "silu".into(), round: 1, role, purpose: Purpose::Seed, part: String::new(), attempt: 1 };
    Call { id, prompt: Prompt::new("be brief", "hello") }
}

fn options(url: &str) -> Options {
    let samplings = Samplings::all(Sampling::model("gpt-4o"));
    Options {
        request_timeout: Duration::from_secs(10),
        deadline: Duration::from_secs(20),
        retries: 3,
        first_wait: Duration::from_millis(1),
        ..Options::new(url, Some(Key::new(SECRET).unwrap()), samplings)
    }
}

async fn ask(endpoint: &Endpoint) -> Result<Reply, AskError> {
    OpenAi::new(options(&endpoint.url())).unwrap().ask(call(Role::Coder)).await
}

fn say(text: &str) -> Act {
    Act::Say(text.into())
}

fn html(status: u16) -> Act {
    Act::Answer(status, vec!["content-type: text/html".into()], "<html><body>nginx</body></html>".into())
}

/// One sentence: one line, the place, what happened, what to do.
fn assert_clear(error: &AskError, endpoint: &Endpoint, parts: &[&str]) {
    let said = error.to_string();
    assert!(!said.contains('\n') && said.len() < 700, "{said}");
    assert!(said.contains(&endpoint.url()), "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
}

#[tokio::test]
async fn an_answer_comes_with_its_model_tokens_and_price() {
    let endpoint = Endpoint::acting([say("hi")]);
    let reply = ask(&endpoint).await.unwrap();
    let usage = Usage { input_tokens: 1000, cached_tokens: 400, output_tokens: 100, reasoning_tokens: 60 };
    assert_eq!((reply.text.as_str(), reply.model.as_str()), ("hi", "gpt-4o-2024-08-06"));
    assert_eq!((reply.usage, reply.requests), (Some(usage), 1));
    assert!((reply.usd.unwrap() - 0.003).abs() < 1e-9, "{:?}", reply.usd);
}

#[tokio::test]
async fn each_role_asks_its_own_model_and_sends_only_what_is_set() {
    let endpoint = Endpoint::acting([say("hi")]);
    let judge = Sampling {
        temperature: Some(0.5),
        max_completion_tokens: Some(99),
        reasoning_effort: Some("low".into()),
        ..Sampling::model("o3")
    };
    let samplings = Samplings::all(Sampling::model("o4-mini")).with(Role::Judge, judge);
    let llm = OpenAi::new(Options { samplings, ..options(&endpoint.url()) }).unwrap();
    llm.ask(call(Role::Coder)).await.unwrap();
    llm.ask(call(Role::Judge)).await.unwrap();
    let messages = json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]);
    let expected = [
        json!({"model": "o4-mini", "messages": messages}),
        json!({"model": "o3", "messages": messages, "temperature": 0.5, "max_completion_tokens": 99, "reasoning_effort": "low"}),
    ];
    let requests = endpoint.requests();
    assert_eq!(requests.iter().map(|r| r.body.clone()).collect::<Vec<_>>(), expected);
    assert_eq!(requests[0].path, "/v1/chat/completions");
    assert_eq!(requests[0].authorization.as_deref(), Some("Bearer hunter2-hunter2-hunter2"));
}

#[tokio::test]
async fn an_endpoint_without_a_key_is_shown_none() {
    let endpoint = Endpoint::acting([say("hi")]);
    OpenAi::new(Options { key: None, ..options(&endpoint.url()) }).unwrap().ask(call(Role::Coder)).await.unwrap();
    assert_eq!(endpoint.requests()[0].authorization, None);
}

#[tokio::test]
async fn what_passes_is_survived() {
    let detail = Act::Answer(429, vec![], json!({"detail": "slow down"}).to_string());
    let error_in_200 = Act::Answer(200, vec![], json!({"error": {"message": "upstream"}}).to_string());
    for act in [
        Act::error(429, "rate_limit_exceeded", "too fast"),
        detail,
        Act::Answer(429, vec![], "slow down".into()),
        Act::error(500, "server_error", "ouch"),
        html(502),
        Act::error(408, "timeout", "late"),
        Act::error(409, "conflict", "locked"),
        Act::Truncate,
        Act::Answer(200, vec![], "{\"choices\": [{\"mess".into()),
        error_in_200,
        Act::Close,
    ] {
        let endpoint = Endpoint::acting([act.clone(), say("at last")]);
        let reply = ask(&endpoint).await.unwrap_or_else(|e| panic!("{act:?}: {e}"));
        assert_eq!((reply.text.as_str(), reply.requests), ("at last", 2), "{act:?}");
        assert_eq!(endpoint.requests().len(), 2, "{act:?}");
    }
}

#[tokio::test]
async fn a_hang_is_survived_whether_before_the_answer_or_within_it() {
    let request_timeout = Duration::from_millis(300);
    for act in [Act::Hang, Act::HangInBody] {
        let endpoint = Endpoint::acting([act, say("at last")]);
        let llm = OpenAi::new(Options { request_timeout, retries: 50, ..options(&endpoint.url()) }).unwrap();
        let reply = llm.ask(call(Role::Coder)).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.requests as usize), ("at last", endpoint.requests().len()));
        assert!(reply.requests > 1);
    }
}

#[tokio::test]
async fn what_does_not_pass_ends_after_the_retries_with_one_sentence() {
    for (act, part) in [
        (Act::error(429, "rate_limit_exceeded", "too fast"), "too fast"),
        (Act::error(500, "server_error", "ouch"), "status 500"),
        (html(503), "an HTML page"),
        (Act::Truncate, "cut off"),
        (Act::Close, "error sending request"),
    ] {
        let endpoint = Endpoint::acting([act]);
        let error = ask(&endpoint).await.unwrap_err();
        assert!(matches!(error, AskError::Unreachable(_)), "{error:?}");
        assert_clear(&error, &endpoint, &["after 4 requests", part, "no retry is left", "resume"]);
        assert_eq!(endpoint.requests().len(), 4);
    }
}

#[tokio::test]
async fn a_hang_ends_at_the_deadline() {
    let endpoint = Endpoint::acting([Act::Hang]);
    let (request_timeout, deadline) = (Duration::from_millis(100), Duration::from_millis(350));
    let options = Options { request_timeout, deadline, retries: 1000, ..options(&endpoint.url()) };
    let llm = OpenAi::new(options).unwrap();
    let error = llm.ask(call(Role::Coder)).await.unwrap_err();
    assert_clear(&error, &endpoint, &["no whole answer", "left of the deadline"]);
}

#[tokio::test]
async fn a_refusal_is_not_asked_again_and_says_what_to_do() {
    for (act, parts) in [
        (Act::error(400, "invalid_request", "no such option"), ["no such option", "reasoning effort"]),
        (Act::error(401, "invalid_api_key", "wrong key"), ["wrong key", "OPENAI_API_KEY"]),
        (Act::error(403, "forbidden", "not for you"), ["not for you", "may use the model gpt-4o"]),
        (Act::error(404, "model_not_found", "no such model"), ["no such model", "/v1"]),
        (html(404), ["an HTML page", "OPENAI_BASE_URL"]),
        (Act::error(429, "insufficient_quota", "you are broke"), ["you are broke", "billing"]),
        (html(301).header("location: http://127.0.0.1:1/elsewhere"), ["status 301", "elsewhere"]),
    ] {
        let endpoint = Endpoint::acting([act]);
        let error = ask(&endpoint).await.unwrap_err();
        assert!(matches!(error, AskError::Refused(_)), "{error:?}");
        assert_clear(&error, &endpoint, &parts);
        assert_eq!(endpoint.requests().len(), 1);
    }
}

#[tokio::test]
async fn nobody_at_the_address_ends_with_one_sentence() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let llm = OpenAi::new(options(&format!("http://{gone}/v1"))).unwrap();
    let error = llm.ask(call(Role::Coder)).await.unwrap_err().to_string();
    assert!(error.contains(&gone.to_string()) && error.contains("refused") && error.contains("4 requests"), "{error}");
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_before_anything_is_sent() {
    for address in ["", "api.openai.com/v1", "ftp://x/v1", "http://me:secret@x/v1", "http://x/v1?key=secret"] {
        let error = OpenAi::new(options(address)).err().unwrap().to_string();
        assert!(error.contains("https://api.openai.com/v1 was expected") && !error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn the_wait_that_the_endpoint_asks_for_is_kept() {
    for header in ["Retry-After: 0.02", "retry-after-ms: 20", "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"] {
        let endpoint = Endpoint::acting([Act::error(429, "rate_limit_exceeded", "").header(header), say("hi")]);
        let first_wait = Duration::from_hours(1);
        let llm = OpenAi::new(Options { first_wait, ..options(&endpoint.url()) }).unwrap();
        assert_eq!(llm.ask(call(Role::Coder)).await.unwrap().requests, 2, "{header}");
    }
}

#[tokio::test]
async fn a_wait_past_the_deadline_is_not_begun() {
    let endpoint = Endpoint::acting([Act::error(429, "rate_limit_exceeded", "later").header("Retry-After: 3600")]);
    let error = tokio::time::timeout(Duration::from_secs(10), ask(&endpoint)).await.unwrap().unwrap_err();
    assert!(matches!(error, AskError::Unreachable(_)), "{error:?}");
    assert_clear(&error, &endpoint, &["after 1 request:", "later", "wait of 3600.0s", "left of the deadline"]);
}

#[tokio::test]
async fn a_strange_but_whole_answer_is_a_reply() {
    let null = json!({"choices": [{"finish_reason": "length", "message": {"content": null}}]});
    let parts = json!({"choices": [{"finish_reason": "new", "message": {"content": [{"type": "text", "text": "a"}, {"text": "b"}]}}]});
    let prose = "I would rather talk about the weather.";
    let bodies = [
        (null.to_string(), ""),
        (parts.to_string(), "ab"),
        (completion(""), ""),
        (completion(r#"{"fix": 1} {"fix": 2}"#), r#"{"fix": 1} {"fix": 2}"#),
        (completion(prose), prose),
    ];
    for (body, text) in bodies {
        let reply = ask(&Endpoint::acting([Act::Answer(200, vec![], body)])).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.requests), (text, 1));
    }
}

#[tokio::test]
async fn no_more_requests_are_under_way_than_allowed() {
    let under_way = Arc::new(Mutex::new((0, 0)));
    let seen = under_way.clone();
    let endpoint = Endpoint::start(move |_, _| {
        {
            let mut count = seen.lock().unwrap();
            count.0 += 1;
            count.1 = count.1.max(count.0);
        }
        std::thread::sleep(Duration::from_millis(10));
        seen.lock().unwrap().0 -= 1;
        say("hi")
    });
    let request_timeout = Duration::from_secs(20);
    let llm = Arc::new(OpenAi::new(Options { in_flight: 2, request_timeout, ..options(&endpoint.url()) }).unwrap());
    let asks: Vec<_> =
        (0..8).map(|_| llm.clone()).map(|llm| tokio::spawn(async move { llm.ask(call(Role::Coder)).await })).collect();
    for ask in asks {
        ask.await.unwrap().unwrap();
    }
    assert_eq!((endpoint.requests().len(), under_way.lock().unwrap().1), (8, 2));
}
