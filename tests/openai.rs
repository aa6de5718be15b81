//! Does a run survive a model that misbehaves, or end with one clear sentence, and does its log name what happened?

use crate::endpoint::{Act, Endpoint, Request};
use crate::program::{KEY, TASK, Told, events, warpsmith};
use std::path::{Path, PathBuf};

const CANDIDATE: &str = "```cpp\n// simulate: us=50 build_ms=1 run_ms=1\nvoid silu_and_mul() {}\n```";
const ADVICE: &str =
    r#"{"bottleneck": "the loop", "optimization method": "less work", "modification plan": "do less"}"#;

/// A run of two rounds in which the request of this number (from 0) is answered like this; all are, where it is `None`.
struct Run {
    endpoint: Endpoint,
    _folder: tempfile::TempDir,
    path: PathBuf,
    told: Told,
}

impl Run {
    fn meeting(act: &Act, at: Option<usize>) -> Self {
        let act = act.clone();
        let endpoint =
            Endpoint::start(move |n, request| if at.is_none_or(|at| at == n) { act.clone() } else { good(request) });
        let folder = tempfile::tempdir().unwrap();
        let (settings, path) = (folder.path().join("settings.toml"), folder.path().join("run"));
        let text =
            "[model]\nretries = 1\npatience_s = 0\nrequest_timeout_s = 1\n[model.roles.judge]\nmodel = 'judge'\n";
        std::fs::write(&settings, text).unwrap();
        let (settings, out) = (settings.display().to_string(), path.display().to_string());
        let run = ["--config", &settings, "run", TASK, "--model", "openai:coder", "--simulate", "--shapes", "task"];
        let mut command = warpsmith(&[&run[..], &["--rounds", "2", "--repetitions", "5", "--out", &out]].concat());
        command.env("OPENAI_BASE_URL", endpoint.url()).env("OPENAI_API_KEY", KEY);
        let told = Told::of(command.output().unwrap());
        Self { endpoint, _folder: folder, path, told }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path.join("warpsmith.log")).unwrap()
    }

    /// The reasons that events of this kind give.
    fn reasons(&self, kind: &str) -> Vec<String> {
        let events = events(&self.path.display().to_string());
        let of_kind = events.iter().filter(|event| event["event"] == kind);
        of_kind.map(|event| event["why"].as_str().unwrap().to_owned()).collect()
    }
}

fn good(request: &Request) -> Act {
    Act::Say(if request.body["model"] == "judge" { ADVICE } else { CANDIDATE }.to_owned())
}

fn say(text: &str) -> Act {
    Act::Say(text.to_owned())
}

/// What an endpoint does instead of answering, and how the log calls it.
fn no_answers() -> [(Act, &'static str); 6] {
    [
        (Act::error(429, "rate_limit_exceeded", "too fast").header("Retry-After: 0.1"), "429"),
        (Act::error(500, "server_error", "ouch"), "500"),
        (Act::Truncate, "cut off"),
        (Act::Hang, "no whole answer within"),
        (Act::HangInBody, "no whole answer within"),
        (Act::Close, "error sending request"),
    ]
}

#[test]
fn an_endpoint_that_fails_once_is_survived_and_the_log_names_it() {
    for (act, name) in no_answers() {
        let run = Run::meeting(&act, Some(1));
        assert_eq!(run.told.code, Some(0), "{act:?}: {:?}", run.told);
        assert_eq!(run.endpoint.requests().len(), 4, "{act:?}: three questions, one of them asked twice");
        assert!(run.log().contains(name), "{act:?}: {}", run.log());
    }
}

#[test]
fn an_endpoint_that_always_fails_ends_the_run_with_one_sentence_that_its_record_holds() {
    for (act, name) in no_answers() {
        let run = Run::meeting(&act, None);
        let told = &run.told;
        assert_eq!(told.code, Some(4), "{act:?}: {told:?}");
        let said = told.err.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{act:?}: {told:?}"));
        assert!(said.contains("no answer from") && said.contains("after 2 requests"), "{said}");
        assert!(told.err.contains("to go on: warpsmith resume"), "{act:?}: {told:?}");
        assert!(matches!(&run.reasons("broke-off")[..], [why] if why.contains(name)), "{act:?}");
    }
}

/// What a model says instead of code or a verdict, which of the three requests it answers, and how the record calls it.
fn no_replies() -> [(Act, usize, &'static str); 6] {
    let python = "```python\ndef silu_and_mul(x):\n    return x\n```";
    [
        (say(""), 0, "it is empty"),
        (say(""), 1, "it is empty"),
        (say("I would use wider loads."), 0, "no fenced code block"),
        (say(python), 0, "Python; C++17 was asked for"),
        (
            say(&format!("{ADVICE}\n{ADVICE}").replacen("the loop", "another", 1)),
            1,
            "exactly one JSON object was asked for",
        ),
        (say("The loop is slow."), 1, "no JSON object"),
    ]
}

#[test]
fn a_reply_that_cannot_be_read_is_asked_for_once_more_and_the_record_names_it() {
    for (act, at, name) in no_replies() {
        let run = Run::meeting(&act, Some(at));
        assert_eq!(run.told.code, Some(0), "{act:?}: {:?}", run.told);
        assert!(
            matches!(&run.reasons("misread")[..], [why] if why.contains(name)),
            "{act:?}: {:?}",
            misread(&run.path)
        );
        assert!(run.reasons("unreadable").is_empty(), "{act:?}");
        assert!(run.log().contains(name), "{act:?}: {}", run.log());
    }
}

#[test]
fn a_model_that_never_says_anything_readable_costs_its_rounds_and_nothing_more() {
    for (act, _, name) in no_replies().into_iter().filter(|(_, at, _)| *at == 0) {
        let run = Run::meeting(&act, None);
        assert_eq!(run.told.code, Some(1), "{act:?}: {:?}", run.told);
        assert!(run.told.out.contains("no candidate was both correct and certified"), "{:?}", run.told);
        let reasons = run.reasons("unreadable");
        assert!(reasons.len() == 2 && reasons.iter().all(|why| why.contains(name)), "{act:?}: {reasons:?}");
    }
}

#[test]
fn an_endpoint_that_is_down_for_a_while_is_waited_for_with_a_line_that_counts() {
    assert_eq!(warpsmith::config::Config::default().model.patience_s, 600, "ten minutes, where nobody says otherwise");
    // Nobody listens there until the run has found that out a few times.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (settings, path) = (folder.path().join("settings.toml"), folder.path().join("run"));
    std::fs::write(&settings, "[model]\nretries = 0\npatience_s = 4\n[model.roles.judge]\nmodel = 'judge'\n").unwrap();
    let (settings, out) = (settings.display().to_string(), path.display().to_string());
    let run = ["--config", &settings, "run", TASK, "--model", "openai:coder", "--simulate", "--shapes", "task"];
    let mut command = warpsmith(&[&run[..], &["--rounds", "1", "--out", &out]].concat());
    let began = std::time::Instant::now();
    let told = Told::of(
        command.env("OPENAI_BASE_URL", format!("http://{free}/v1")).env("OPENAI_API_KEY", KEY).output().unwrap(),
    );
    let told = told.ended(4);
    assert!(began.elapsed() > std::time::Duration::from_secs(4), "it did not wait: {told:?}");
    assert!(
        told.err.contains("does not answer: waiting for") && told.err.contains("of at most 4 s, try 3"),
        "{told:?}"
    );
    // A gateway that says so for three requests, and no retry is allowed: patience alone goes on.
    let flaky =
        Endpoint::start(|n, request| if n < 3 { Act::error(503, "unavailable", "restarting") } else { good(request) });
    let mut resumed = warpsmith(&["resume", &out]);
    resumed.env("OPENAI_BASE_URL", flaky.url()).env("OPENAI_API_KEY", KEY);
    Told::of(resumed.output().unwrap()).ended(0);
}

fn misread(run: &Path) -> Vec<serde_json::Value> {
    events(&run.display().to_string()).into_iter().filter(|event| event["event"] == "misread").collect()
}
