//! A folder in a model's place: what is written, what is read, and what is not.
use prompts::Prompt;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use warpsmith_agents::llm::{
    AskError, Call, CallId, Llm, Purpose, Reply, Role,
    chat::{Sampling, Samplings},
    mailbox::Mailbox,
};

const ID: &str = "silu.round-2.judge.advise.1";

fn call(task: &str, said: &str) -> Call {
    let id = CallId {
        task: task.into(),
        round: 2,
        role: Role::Judge,
        purpose: Purpose::Advise,
        part: String::new(),
        attempt: 1,
    };
    Call { id, prompt: Prompt::new("be brief", said) }
}

fn mailbox(dir: &Path) -> Mailbox {
    Mailbox::new(dir, Samplings::all(Sampling::model("someone"))).poll(Duration::from_millis(5))
}

/// A folder in which the request for `call("silu", "why slow?")` was written.
async fn posted() -> (TempDir, Mailbox) {
    let dir = tempfile::tempdir().unwrap();
    let mailbox = mailbox(dir.path()).exit_when_waiting(true);
    let waiting = mailbox.ask(call("silu", "why slow?")).await.unwrap_err();
    assert!(matches!(&waiting, AskError::Waiting(file) if file.ends_with("advise.1.request.json")), "{waiting:?}");
    (dir, mailbox)
}

fn file(dir: &TempDir, ending: &str) -> PathBuf {
    dir.path().join(format!("{ID}.{ending}"))
}

fn batch_line(custom_id: &str, text: &str) -> Value {
    json!({"id": "b1", "custom_id": custom_id, "error": null, "response": {"status_code": 200, "body": {
        "model": "a-model", "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }}})
}

async fn answered(ending: &str, content: &str) -> Result<Reply, AskError> {
    let (dir, mailbox) = posted().await;
    std::fs::write(file(&dir, ending), content).unwrap();
    mailbox.ask(call("silu", "why slow?")).await
}

#[tokio::test]
async fn a_request_is_one_line_of_the_batch_format_and_is_left_as_it_is_when_asked_again() {
    let (dir, mailbox) = posted().await;
    let path = file(&dir, "request.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches('\n').count(), 1);
    let expected = json!({"custom_id": ID, "method": "POST", "url": "/v1/chat/completions", "body": {
        "model": "someone",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why slow?"}],
    }});
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    let before = std::fs::metadata(&path).unwrap().modified().unwrap();
    mailbox.ask(call("silu", "why slow?")).await.unwrap_err();
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), before);
}

#[tokio::test]
async fn a_plain_text_answers_in_the_name_of_who_answers() {
    let (dir, mailbox) = posted().await;
    std::fs::write(file(&dir, "reply.md"), "because").unwrap();
    let reply = mailbox.ask(call("silu", "why slow?")).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.model.as_str()), ("because", "mailbox"));
    std::fs::write(dir.path().join("ANSWERED_BY"), "\nGrace\n").unwrap();
    assert_eq!(mailbox.ask(call("silu", "why slow?")).await.unwrap().model, "Grace");
}

#[tokio::test]
async fn a_batch_output_line_answers_with_its_model_and_its_tokens() {
    let reply = answered("reply.json", &batch_line(ID, "because").to_string()).await.unwrap();
    let usage = reply.usage.unwrap();
    assert_eq!((reply.text.as_str(), reply.model.as_str()), ("because", "a-model"));
    assert_eq!((usage.input_tokens, usage.output_tokens), (7, 3));
}

#[tokio::test]
async fn an_empty_reply_is_a_reply_without_text() {
    assert_eq!(answered("reply.txt", "").await.unwrap().text, "");
    assert_eq!(answered("reply.json", &batch_line(ID, "").to_string()).await.unwrap().text, "");
}

#[tokio::test]
async fn a_reply_that_cannot_be_used_is_named_with_its_file() {
    let spent = json!({"custom_id": ID, "response": null, "error": {"code": "x", "message": "out of ink"}});
    let failed = json!({"custom_id": ID, "response": {"status_code": 500, "body": {"error": {"message": "ouch"}}}});
    for (content, why) in [
        ("{\"custom_id\":".to_owned(), "is not JSON"),
        (batch_line("silu.round-1.judge.advise.1", "").to_string(), "answers silu.round-1"),
        (spent.to_string(), "out of ink"),
        (failed.to_string(), "status 500 ouch"),
        (json!({"custom_id": ID, "response": {"status_code": 200, "body": {}}}).to_string(), "at least one choice"),
    ] {
        let error = answered("reply.json", &content).await.unwrap_err();
        assert!(
            matches!(&error, AskError::Refused(said) if said.contains(why) && said.contains("1.reply.json")),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_reply_to_an_older_question_is_moved_aside_and_not_used() {
    let (dir, mailbox) = posted().await;
    std::fs::write(file(&dir, "reply.txt"), "to the old question").unwrap();
    for n in 1..=2 {
        let asked = mailbox.ask(call("silu", &format!("question {n}"))).await;
        assert!(matches!(asked, Err(AskError::Waiting(_))), "{asked:?}");
        assert!(file(&dir, &format!("request.json.stale-{n}")).exists());
    }
    assert_eq!(std::fs::read_to_string(file(&dir, "reply.txt.stale-1")).unwrap(), "to the old question");
    let request = std::fs::read_to_string(file(&dir, "request.json")).unwrap();
    assert!(request.contains("question 2"));
}

#[tokio::test]
async fn no_name_leads_out_of_the_folder_and_no_two_names_meet() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    let mailbox = mailbox(&inner).prefix("a run/../../x").exit_when_waiting(true);
    let tasks = ["../../etc/passwd", "..", "/etc/x", "a/b", "a_b", "a\nb", "\u{0}", &"long".repeat(200)];
    for task in tasks {
        let waiting = mailbox.ask(call(task, "")).await.unwrap_err();
        assert!(matches!(waiting, AskError::Waiting(_)), "{waiting:?}");
    }
    let requests = std::fs::read_dir(&inner)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".request.json"));
    assert_eq!(requests.count(), tasks.len());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
