//! A Batch API, and all that may become of a batch: every question is answered once and paid for once, or ends with one clear sentence.

use crate::batches::{Batches, Stage, answer, failed, no_turn};
use crate::endpoint::{self, Act, Endpoint};
use prompts::Prompt;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use warpsmith_agents::llm::{
    AskError, Call, CallId, Llm, Purpose, Reply, Role,
    chat::{Sampling, Samplings},
    openai::{Batched, Batching, Key, Options},
};

const SECRET: &str = "hunter2-hunter2-hunter2";
const WAIT: Duration = Duration::from_millis(1);

fn call(task: &str, role: Role) -> Call {
    let id = CallId { task: task.into(), round: 1, role, purpose: Purpose::Seed, part: String::new(), attempt: 1 };
    Call { id, prompt: Prompt::new("be brief", format!("hello from {task}")) }
}

fn model(url: &str, folder: &Path) -> Arc<Batched> {
    let samplings = Samplings::all(Sampling::model("gpt-4o")).with(Role::Judge, Sampling::model("o3"));
    let options = Options {
        request_timeout: Duration::from_secs(5),
        deadline: Duration::from_secs(20),
        retries: 2,
        first_wait: WAIT,
        ..Options::new(url, Some(Key::new(SECRET).unwrap()), samplings)
    };
    let window = Duration::from_millis(100);
    let pauses =
        Batching { window, first_pause: WAIT, longest_pause: 2 * WAIT, ..Batching::new(folder.join("journal")) };
    Arc::new(Batched::new(options, pauses).unwrap())
}

async fn ask_all(llm: &Arc<Batched>, calls: Vec<Call>) -> Vec<Result<Reply, AskError>> {
    let ask = |call| {
        let llm = llm.clone();
        tokio::spawn(async move { llm.ask(call).await })
    };
    let asks: Vec<_> = calls.into_iter().map(ask).collect();
    let mut replies = vec![];
    for ask in asks {
        replies.push(tokio::time::timeout(Duration::from_secs(20), ask).await.unwrap().unwrap());
    }
    replies
}

/// What tasks a and b are answered by this endpoint, begun with no journal.
async fn two(batches: &Batches) -> [Result<Reply, AskError>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let llm = model(&batches.endpoint.url(), folder.path());
    ask_all(&llm, vec![call("a", Role::Coder), call("b", Role::Coder)]).await.try_into().unwrap()
}

fn texts(replies: &[Result<Reply, AskError>]) -> Vec<&str> {
    replies.iter().map(|reply| reply.as_ref().unwrap().text.as_str()).collect()
}

fn echo(line: &Value) -> String {
    format!("to {}", line["custom_id"].as_str().unwrap())
}

fn of<'a>(lines: &'a [Value], task: &str) -> &'a Value {
    lines.iter().find(|line| line["custom_id"].as_str().unwrap().starts_with(task)).unwrap()
}

const A: &str = "a.round-1.coder.seed.1";
const B: &str = "b.round-1.coder.seed.1";

#[tokio::test]
async fn two_tasks_meet_in_one_batch_at_half_the_price() {
    let batches = Batches::start(|_, looks, lines| if looks < 3 { Stage::going() } else { Stage::all(lines, echo) });
    let replies = two(&batches).await;
    assert_eq!(texts(&replies), [format!("to {A}"), format!("to {B}")]);
    let reply = replies[0].as_ref().unwrap();
    assert_eq!((reply.model.as_str(), reply.requests), ("gpt-4o-2024-08-06", 1));
    assert!((reply.usd.unwrap() - 0.0015).abs() < 1e-9, "{:?}", reply.usd);
    let looks = std::iter::repeat_n("/v1/batches/batch_0", 4);
    let paths: Vec<_> =
        ["/v1/files", "/v1/batches"].into_iter().chain(looks).chain(["/v1/files/output-0/content"]).collect();
    assert_eq!(batches.paths(), paths);
    let requests = batches.endpoint.requests();
    assert!(requests.iter().all(|r| r.authorization.as_deref() == Some("Bearer hunter2-hunter2-hunter2")));
    assert!(requests[0].text.contains("name=\"purpose\"\r\n\r\nbatch\r\n"), "{}", requests[0].text);
    let asked = json!({"input_file_id": "file-0", "endpoint": "/v1/chat/completions", "completion_window": "24h"});
    assert_eq!(requests[1].body, asked);
    let messages = json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello from a"}]);
    let body = json!({"model": "gpt-4o", "messages": messages});
    let line = json!({"custom_id": A, "method": "POST", "url": "/v1/chat/completions", "body": body});
    assert_eq!(of(&batches.files()[0], "a"), &line);
}

#[tokio::test]
async fn each_model_has_a_batch_of_its_own() {
    let batches = Batches::start(|_, _, lines| Stage::all(lines, |line| line["body"]["model"].to_string()));
    let folder = tempfile::tempdir().unwrap();
    let llm = model(&batches.endpoint.url(), folder.path());
    let replies = ask_all(&llm, vec![call("a", Role::Coder), call("a", Role::Judge)]).await;
    assert_eq!((texts(&replies), batches.made()), (vec!["\"gpt-4o\"", "\"o3\""], 2));
    assert!(llm.describe().ends_with("in batches at 0.5 of the list price"), "{}", llm.describe());
}

#[tokio::test]
async fn a_line_that_failed_is_asked_once_more_where_that_may_help_and_the_others_are_not() {
    for (status, code) in [(500, "server_error"), (429, "rate_limit_exceeded")] {
        let batches = Batches::start(move |n, _, lines| match n {
            0 => Stage::ended(
                "completed",
                vec![answer(of(lines, "a"), "hi")],
                vec![failed(of(lines, "b"), status, code)],
            ),
            _ => Stage::all(lines, echo),
        });
        let replies = two(&batches).await;
        assert_eq!(texts(&replies), ["hi".to_owned(), format!("to {B}")]);
        assert_eq!(replies[1].as_ref().unwrap().requests, 2);
        assert_eq!((batches.asked()[1].clone(), batches.made()), (vec![B.to_owned()], 2));
    }
}

#[tokio::test]
async fn a_line_that_fails_again_or_for_good_is_that_question_s_error() {
    let batches = Batches::start(|_, _, lines| {
        let wrong = |line: &Value| match line["custom_id"].as_str() {
            Some(A) => failed(line, 400, "invalid_value"),
            _ => failed(line, 500, "server_error"),
        };
        Stage::ended("completed", vec![], lines.iter().map(wrong).collect())
    });
    let [a, b] = two(&batches).await;
    assert!(matches!(&a, Err(AskError::Refused(why)) if why.contains("because of invalid_value")), "{a:?}");
    assert!(
        matches!(&b, Err(AskError::Unreachable(why)) if why.contains("because of server_error") && why.contains("2 batches")),
        "{b:?}"
    );
    assert_eq!(batches.asked()[1..], [vec![B.to_owned()]]);
}

#[tokio::test]
async fn of_a_batch_that_expired_or_was_cancelled_what_is_there_is_used_and_the_rest_is_asked_again() {
    for (status, says_so) in [("expired", true), ("cancelled", false), ("completed", false)] {
        let batches = Batches::start(move |n, _, lines| match n {
            0 => {
                let errors = if says_so { vec![no_turn(of(lines, "b"))] } else { vec![] };
                Stage::ended(status, vec![answer(of(lines, "a"), "in time")], errors)
            }
            _ => Stage::all(lines, echo),
        });
        let replies = two(&batches).await;
        assert_eq!(texts(&replies), ["in time".to_owned(), format!("to {B}")], "{status}");
        assert_eq!(batches.asked()[1..], [vec![B.to_owned()]], "{status}");
    }
    let batches = Batches::start(|_, _, lines| Stage::ended("expired", vec![], lines.iter().map(no_turn).collect()));
    let [a, _] = two(&batches).await;
    assert!(matches!(&a, Err(AskError::Unreachable(why)) if why.contains("before its turn")), "{a:?}");
    assert_eq!(batches.made(), 3);
}

#[tokio::test]
async fn an_answer_to_what_nobody_asked_and_lines_that_are_none_are_ignored() {
    let batches = Batches::start(|_, _, lines| {
        let stranger = answer(&json!({"custom_id": "somebody"}), "else");
        let mut output = vec![stranger, json!("no line"), json!({"custom_id": 3})];
        output.extend(lines.iter().map(|line| answer(line, &echo(line))));
        Stage::ended("completed", output, vec![])
    });
    assert_eq!(texts(&two(&batches).await), [format!("to {A}"), format!("to {B}")]);
}

#[tokio::test]
async fn a_refusal_is_told_to_all_at_once_in_one_sentence() {
    let endpoint = Endpoint::acting([Act::error(401, "invalid_api_key", "wrong key hunter2-hunter2-hunter2")]);
    let folder = tempfile::tempdir().unwrap();
    let llm = model(&endpoint.url(), folder.path());
    for reply in ask_all(&llm, vec![call("a", Role::Coder), call("b", Role::Coder)]).await {
        let why = reply.unwrap_err().to_string();
        assert!(why.contains("status 401") && why.contains("OPENAI_API_KEY") && !why.contains("hunter2"), "{why}");
        assert!(!why.contains('\n'), "{why}");
    }
    assert_eq!(endpoint.requests().len(), 1);
    assert!(!folder.path().join("journal").exists());
}

#[tokio::test]
async fn a_batch_that_failed_is_an_error_in_its_words_unless_there_was_no_room_for_it() {
    let fails = |code, message| Stage { status: "failed", failure: Some((code, message)), ..Stage::default() };
    let batches = Batches::start(move |_, _, _| fails("invalid_json_line", "line 1 is wrong"));
    let [a, _] = two(&batches).await;
    assert!(matches!(&a, Err(AskError::Refused(why)) if why.contains("line 1 is wrong")), "{a:?}");
    let batches = Batches::start(move |n, _, lines| match n {
        0..5 => fails("token_limit_exceeded", "enqueued too much"),
        _ => Stage::all(lines, echo),
    });
    assert_eq!(texts(&two(&batches).await), [format!("to {A}"), format!("to {B}")]);
}

#[tokio::test]
async fn a_batch_of_which_no_word_came_back_is_not_made_twice() {
    let first = AtomicBool::new(true);
    let lost = move |request: &endpoint::Request| {
        (request.path == "/v1/batches" && first.swap(false, Ordering::SeqCst)).then_some(Act::Close)
    };
    let batches = Batches::meeting(lost, |_, _, lines| Stage::all(lines, echo));
    assert_eq!(texts(&two(&batches).await), [format!("to {A}"), format!("to {B}")]);
    assert_eq!((batches.files().len(), batches.made()), (1, 1));
}

/// Asks a and b, and is gone before there is an answer, once this many batches are there and this was asked for.
fn killed(batches: &Batches, folder: &Path, seen: &str) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let llm = model(&batches.endpoint.url(), folder);
    runtime.spawn(async move { ask_all(&llm, vec![call("a", Role::Coder), call("b", Role::Coder)]).await });
    while !batches.paths().iter().any(|path| path == seen) {
        std::thread::sleep(WAIT);
    }
    runtime.shutdown_timeout(Duration::from_secs(5));
}

#[test]
fn a_killed_run_waits_for_the_batch_that_it_began_and_sends_nothing_again() {
    let back = Arc::new(AtomicBool::new(false));
    let (later, gone) = (back.clone(), back.clone());
    // The word that the batch was made is lost, too, where it is killed before it: then it is found by its file.
    for seen in ["/v1/batches/batch_0", "/v1/batches"] {
        back.store(false, Ordering::SeqCst);
        let (later, gone) = (later.clone(), gone.clone());
        let hangs = move |request: &endpoint::Request| {
            (seen == "/v1/batches" && request.path == seen && !gone.load(Ordering::SeqCst)).then_some(Act::Hang)
        };
        let batches = Batches::meeting(hangs, move |_, _, lines| {
            if later.load(Ordering::SeqCst) { Stage::all(lines, echo) } else { Stage::going() }
        });
        let folder = tempfile::tempdir().unwrap();
        killed(&batches, folder.path(), seen);
        back.store(true, Ordering::SeqCst);
        let changed = Call { prompt: Prompt::new("be brief", "another question"), ..call("b", Role::Coder) };
        let llm = model(&batches.endpoint.url(), folder.path());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let replies = runtime.block_on(ask_all(&llm, vec![call("a", Role::Coder), call("b", Role::Coder)]));
        assert_eq!(texts(&replies), [format!("to {A}"), format!("to {B}")], "{seen}");
        assert_eq!((batches.files().len(), batches.made()), (1, 1), "{seen}: {:?}", batches.paths());
        let llm = model(&batches.endpoint.url(), folder.path());
        runtime.block_on(ask_all(&llm, vec![call("a", Role::Coder), changed]));
        assert_eq!(batches.asked()[1..], [vec![B.to_owned()]], "{seen}: only the changed question is sent");
    }
}

#[test]
fn a_file_that_was_sent_and_of_which_no_batch_was_made_is_used() {
    let batches = Batches::start(|_, _, lines| Stage::all(lines, echo));
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let asks = || vec![call("a", Role::Coder), call("b", Role::Coder)];
    runtime.block_on(ask_all(&model(&batches.endpoint.url(), folder.path()), asks()));
    let journal = folder.path().join("journal");
    let first = std::fs::read_to_string(&journal).unwrap().lines().next().unwrap().to_owned();
    std::fs::write(&journal, first + "\n").unwrap();
    let fresh = Batches::start(|_, _, lines| Stage::all(lines, echo));
    // The same file lies at an endpoint where no batch was made of it.
    let moved = std::fs::read_to_string(&journal).unwrap().replace(&batches.endpoint.url(), &fresh.endpoint.url());
    std::fs::write(&journal, moved).unwrap();
    fresh.keep(batches.files());
    let replies = runtime.block_on(ask_all(&model(&fresh.endpoint.url(), folder.path()), asks()));
    assert_eq!(texts(&replies), [format!("to {A}"), format!("to {B}")]);
    assert_eq!(fresh.paths()[..2], ["/v1/batches?limit=100", "/v1/batches"]);
    assert!(!fresh.paths().contains(&"/v1/files".to_owned()));
}

#[test]
fn what_a_recorded_batch_could_not_answer_is_asked_anew() {
    let fails = |n| Stage { status: "failed", failure: Some(("odd", n)), ..Stage::default() };
    let batches = Batches::start(move |n, looks, lines| match n {
        // An endpoint that changes its mind.
        0 if looks == 2 => fails("gone"),
        0 => Stage::ended("completed", vec![answer(of(lines, "a"), "hi")], vec![failed(of(lines, "b"), 400, "odd")]),
        _ => Stage::all(lines, echo),
    });
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let asks = || vec![call("a", Role::Coder), call("b", Role::Coder)];
    let first = runtime.block_on(ask_all(&model(&batches.endpoint.url(), folder.path()), asks()));
    assert!(matches!(&first[1], Err(AskError::Refused(_))), "{first:?}");
    let replies = runtime.block_on(ask_all(&model(&batches.endpoint.url(), folder.path()), asks()));
    assert_eq!(texts(&replies), ["hi".to_owned(), format!("to {B}")]);
    assert_eq!(batches.asked()[1..], [vec![B.to_owned()]]);
    // Of the recorded one that failed as a whole, all is: b is sought in the batch that it was in last, and a in the first.
    let replies = runtime.block_on(ask_all(&model(&batches.endpoint.url(), folder.path()), asks()));
    assert_eq!(texts(&replies), [format!("to {A}"), format!("to {B}")]);
    assert_eq!(batches.asked()[2..], [vec![A.to_owned()]]);
}
