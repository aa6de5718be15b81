//! A script, a recorded run and a resumed run in a model's place.

use kernelbench::Hash;
use prompts::Prompt;
use std::{collections::HashMap, sync::Arc};
use warpsmith_agents::llm::{
    AskError, Call, CallId, Llm, Purpose, Reply, Role,
    remembering::Remembering,
    replay::{RecordedAnswer, Replay},
    scripted::{Entry, Scripted},
};

fn call(role: Role, purpose: Purpose, round: u32, attempt: u32, said: &str) -> Call {
    Call {
        id: CallId { task: "silu".into(), round, role, purpose, part: String::new(), attempt },
        prompt: Prompt::new("system", said),
    }
}

fn recorded(role: Role, purpose: Purpose, round: u32, reply: &str) -> RecordedAnswer {
    let call = call(role, purpose, round, 1, "as recorded");
    RecordedAnswer {
        prompt: call.prompt_json(),
        id: call.id,
        reply: reply.into(),
        model: "somebody".into(),
        usage: None,
        usd: Some(0.5),
    }
}

fn three_rounds(strict: bool) -> Replay {
    let answers = vec![
        recorded(Role::Coder, Purpose::Seed, 1, "first"),
        recorded(Role::Judge, Purpose::Diagnose, 2, "a fix"),
        recorded(Role::Coder, Purpose::Fix, 2, "second"),
        recorded(Role::Planner, Purpose::Plan, 3, "a plan"),
        recorded(Role::Planner, Purpose::Suggest, 3, "suggestions"),
        recorded(Role::Coder, Purpose::Apply, 3, "third"),
    ];
    Replay::new("the record", answers, strict)
}

#[tokio::test]
async fn a_script_gives_each_reply_once_and_then_says_that_it_ends() {
    let script = Scripted::new([Entry::new(Role::Coder, "late").round(2), Entry::new(Role::Coder, "any")]);
    let first = script.ask(call(Role::Coder, Purpose::Seed, 1, 1, "")).await.unwrap();
    let second = script.ask(call(Role::Coder, Purpose::Fix, 2, 1, "")).await.unwrap();
    let third = script.ask(call(Role::Coder, Purpose::Fix, 2, 2, "")).await.unwrap_err();
    assert_eq!((first.text.as_str(), second.text.as_str()), ("any", "late"));
    assert!(matches!(&third, AskError::RecordEnds(why) if why.contains("coder (fix) in round 2")), "{third}");
    assert_eq!(script.calls(), 3);
}

#[tokio::test]
async fn a_script_reads_the_same_from_toml_and_from_lines_of_json() {
    let dir = tempfile::tempdir().unwrap();
    let (toml, jsonl) = (dir.path().join("s.toml"), dir.path().join("s.jsonl"));
    std::fs::write(&toml, "[[entry]]\nrole = 'judge'\npurpose = 'advise'\nround = 4\nreply = '''{}'''\n").unwrap();
    std::fs::write(&jsonl, "{\"role\":\"judge\",\"purpose\":\"advise\",\"round\":4,\"reply\":\"{}\"}\n\n").unwrap();
    for path in [toml, jsonl] {
        let script = Scripted::read(&path).unwrap();
        assert!(script.ask(call(Role::Judge, Purpose::Diagnose, 4, 1, "")).await.is_err());
        assert_eq!(script.ask(call(Role::Judge, Purpose::Advise, 4, 1, "")).await.unwrap().text, "{}");
    }
}

#[test]
fn a_wrong_script_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    std::fs::write(&path, "{\"role\":\"coder\",\"reply\":\"\"}\n{\"role\":\"boss\",\"reply\":\"\"}\n").unwrap();
    let error = Scripted::read(&path).err().unwrap().to_string();
    assert!(error.contains("s.jsonl") && error.contains("line 2") && error.contains("boss"), "{error}");
}

#[tokio::test]
async fn an_answered_call_is_not_asked_again_after_a_resume() {
    let script = Arc::new(Scripted::new([Entry::new(Role::Coder, "asked anew")]));
    let known = call(Role::Coder, Purpose::Seed, 1, 1, "hello");
    let reply = Reply {
        text: "remembered".into(),
        model: "m".into(),
        usage: None,
        usd: Some(0.25),
        latency_ms: 7,
        requests: 1,
    };
    let hash = Hash::of(known.prompt_json().as_bytes());
    let llm = Remembering::new(script.clone(), HashMap::from([(known.id.clone(), (hash, reply.clone()))]));
    assert_eq!(llm.ask(known.clone()).await.unwrap(), reply);
    assert_eq!(script.calls(), 0);
    let again = Call { id: CallId { attempt: 2, ..known.id }, ..known };
    assert_eq!(llm.ask(again).await.unwrap().text, "asked anew");
}

#[tokio::test]
async fn a_recorded_candidate_fits_whatever_the_coder_is_asked_for() {
    let record = three_rounds(false);
    let reply = record.ask(call(Role::Coder, Purpose::Optimize, 2, 1, "as recorded")).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.model.as_str(), reply.usd), ("second", "somebody", Some(0.5)));
    assert_eq!(record.differences(), 0);
}

#[tokio::test]
async fn a_recorded_fix_does_not_answer_a_call_for_an_optimization() {
    let error = three_rounds(false).ask(call(Role::Judge, Purpose::Advise, 2, 1, "")).await.unwrap_err();
    assert!(matches!(&error, AskError::NoFit(why) if why.contains("advise") && why.contains("diagnose")), "{error:?}");
}

#[tokio::test]
async fn two_recorded_purposes_of_one_role_in_one_round_are_told_apart() {
    let record = three_rounds(false);
    let reply = record.ask(call(Role::Planner, Purpose::Suggest, 3, 1, "")).await.unwrap();
    assert_eq!(reply.text, "suggestions");
}

#[tokio::test]
async fn a_gap_in_the_record_is_no_fit_and_only_its_end_is_the_end() {
    let record = three_rounds(false);
    for (role, purpose, round, attempt) in [
        (Role::Tester, Purpose::Shapes, 0, 1),
        (Role::Judge, Purpose::Advise, 3, 1),
        (Role::Coder, Purpose::Apply, 3, 2),
    ] {
        let error = record.ask(call(role, purpose, round, attempt, "")).await.unwrap_err();
        assert!(matches!(error, AskError::NoFit(_)), "{error:?}");
    }
    let error = record.ask(call(Role::Judge, Purpose::Advise, 4, 1, "")).await.unwrap_err();
    assert!(matches!(&error, AskError::RecordEnds(why) if why.contains("after round 3")), "{error:?}");
}

#[tokio::test]
async fn a_task_that_the_record_does_not_hold_is_told_what_it_holds() {
    let mut other = call(Role::Coder, Purpose::Seed, 1, 1, "");
    other.id.task = "gemm".into();
    let error = three_rounds(false).ask(other).await.unwrap_err();
    assert!(
        matches!(&error, AskError::RecordEnds(why) if why.contains("gemm") && why.contains("holds silu")),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_prompt_that_differs_is_counted_and_in_strict_mode_refused_at_its_first_differing_line() {
    let changed = call(Role::Coder, Purpose::Seed, 1, 1, "as changed");
    let lenient = three_rounds(false);
    lenient.ask(changed.clone()).await.unwrap();
    assert_eq!(lenient.differences(), 1);
    let error = three_rounds(true).ask(changed).await.unwrap_err();
    assert!(
        matches!(&error, AskError::Differs(why) if why.contains("line 2: recorded `as recorded`, here `as changed`")),
        "{error:?}"
    );
}
