//! What the Coder looks up before it writes: it is shown what it asks for, what it may not have is said, everything counts, and a
//! run that is killed goes on to the same end.

use crate::story::{OPTIMIZATION, answered, code, go_on_with, policy, remembering, replay, task};
use kernelbench::{Simulated, Task};
use metrics::Arch;
use std::sync::Arc;
use warpsmith_agents::event::{End, Event};
use warpsmith_agents::llm::Role;
use warpsmith_agents::llm::scripted::{Entry, Scripted};
use warpsmith_agents::log::{Log, MemoryLog};
use warpsmith_agents::policy::{Guidance, Policy};
use warpsmith_agents::trajectory::Trajectory;

const HEADER: &str = r#"{"look_up": "read_header", "name": "wgmma"}"#;
const FIRST: &str = r#"{"look_up": "query_replay", "name": "1"}"#;

fn hopper() -> Arc<Simulated> {
    Arc::new(Simulated::on(Arch::Cuda { major: 9, minor: 0 }))
}

fn product() -> Task {
    Task { summary: "A matrix product.".into(), ..task() }
}

fn with_lookups(rounds: u32, lookups: u32) -> Policy {
    Policy { rounds, lookups: Some(lookups), features: Some(Guidance::Guides), ..policy("cudaforge") }
}

/// The Coder's replies, each in its round, and the Judge's.
fn script(replies: &[(u32, &str)]) -> Vec<Entry> {
    let judge = (2..=9).map(|round| Entry::new(Role::Judge, OPTIMIZATION).round(round));
    let of = |(round, text): &(u32, &str)| Entry::new(Role::Coder, *text).round(*round);
    judge.chain(replies.iter().map(of)).collect()
}

async fn run(replies: &[(u32, &str)], policy: Policy) -> (Trajectory, Arc<Scripted>, MemoryLog) {
    let (log, llm) = (MemoryLog::default(), Arc::new(Scripted::new(script(replies))));
    let story = go_on_with(product(), hopper(), llm.clone(), policy, &log).await.unwrap();
    (story, llm, log)
}

/// What was said to the Coder, call by call, behind what stands before the first of its look-ups.
fn told(llm: &Scripted) -> Vec<(String, Vec<String>)> {
    let asked = llm.asked().into_iter().filter(|call| call.id.role == Role::Coder);
    asked.map(|call| (call.id.to_string(), call.prompt.turns.into_iter().map(|turn| turn.text).collect())).collect()
}

#[tokio::test]
async fn the_coder_is_shown_what_it_looks_up_and_writes_with_it() {
    let (first, second) = (code("us=90"), code("us=40"));
    let replies = [(1, first.as_str()), (2, HEADER), (2, FIRST), (2, second.as_str())];
    let (story, llm, log) = run(&replies, with_lookups(4, 4)).await;
    let told = told(&llm);
    let calls: Vec<&str> = told.iter().map(|(call, _)| call.rsplit_once("coder.").unwrap().1).collect();
    assert_eq!(calls, ["seed.1", "optimize.1", "optimize.after-1.1", "optimize.after-2.1"]);
    let [seed, optimize, ..] = told.as_slice() else { panic!("{told:?}") };
    assert!(seed.1[0].contains("- `read_header`: ") && !seed.1[0].contains("query_replay"), "no round is over yet");
    assert!(
        optimize.1[0].ends_with("- `query_replay`: an earlier round of this run, its kernel and what came of it: 1")
    );
    let turns = &told[3].1;
    assert_eq!((turns.len(), turns[0] == optimize.1[0]), (5, true), "what was offered first stays as it was");
    assert!(turns[2].contains("wgmma.mma_async") && turns[2].contains("Look up 1 more"), "{}", turns[2]);
    assert!(turns[4].contains("round 1, seed, kernel ") && turns[4].contains("us=90"), "{}", turns[4]);
    let looked_up = &story.rounds[1].looked_up;
    assert_eq!(looked_up.iter().map(|one| one.lookup.name.as_str()).collect::<Vec<_>>(), ["wgmma", "1"]);
    assert!(log.fetch(&looked_up[0].found).unwrap().contains("wgmma.mma_async"));
    assert_eq!((story.end, story.written(), story.spent()), (Some(End::OutOfRounds), 2, 4), "both count");
}

#[tokio::test]
async fn what_is_looked_up_again_does_not_count_again() {
    let codes: Vec<String> = (0..4).map(|at| code(&format!("us={}", 90 - at))).collect();
    let replies =
        [(1, HEADER), (1, codes[0].as_str()), (2, HEADER), (2, codes[1].as_str()), (3, HEADER), (3, codes[2].as_str())];
    let (story, ..) = run(&replies, with_lookups(4, 1)).await;
    assert_eq!((story.written(), story.spent(), story.end), (3, 4, Some(End::OutOfRounds)));
}

#[tokio::test]
async fn what_is_not_there_or_no_longer_allowed_is_refused_like_any_reply_that_cannot_be_read() {
    let (kernel, nothing) = (code("us=90"), r#"{"look_up": "read_header", "name": "tcgen05"}"#);
    let (story, llm, _) = run(&[(1, nothing), (1, HEADER), (1, HEADER), (1, &kernel)], with_lookups(2, 1)).await;
    let why: Vec<&str> = story.rounds[0].misread.iter().map(|(_, why)| why.as_str()).collect();
    assert!(why[0].contains("read_header has no `tcgen05`; it has "), "{why:?}");
    assert!(why[1].contains("nothing more can be looked up"), "{why:?}");
    assert_eq!((why.len(), story.rounds[0].looked_up.len()), (2, 1));
    assert!(told(&llm)[1].1.last().unwrap().contains("read_header has no `tcgen05`"));
    assert!(story.rounds[0].candidate.is_some());
    let (stubborn, ..) = run(&[(1, HEADER), (1, HEADER), (1, HEADER)], with_lookups(2, 1)).await;
    assert!(stubborn.rounds[0].unreadable.is_some(), "it is asked once more, and then the round is over");
}

#[tokio::test]
async fn the_rounds_that_are_left_bound_what_is_looked_up_and_one_is_kept_for_the_kernel() {
    let kernel = code("us=90");
    let (story, llm, _) = run(&[(1, HEADER), (1, &kernel)], with_lookups(2, 4)).await;
    assert!(told(&llm)[0].1[0].contains("one at a time and at most 1."), "{:?}", told(&llm)[0]);
    assert!(told(&llm)[1].1[2].contains("Nothing more can be looked up now"));
    assert_eq!((story.spent(), story.written(), story.end), (2, 1, Some(End::OutOfRounds)));
    let (_, llm, _) = run(&[(1, &kernel)], with_lookups(1, 4)).await;
    assert!(!told(&llm)[0].1[0].contains("# Look-ups"), "none is left beside the kernel's own");
}

#[tokio::test]
async fn examples_of_features_are_there_where_guides_are_shown_and_not_where_names_alone_are() {
    let kernels = ["us=90", "us=80"].map(code);
    for guidance in [Guidance::Guides, Guidance::Names, Guidance::Off] {
        let policy = Policy { features: Some(guidance), ..with_lookups(3, 2) };
        let (_, llm, _) = run(&[(1, &kernels[0]), (2, &kernels[1])], policy).await;
        let second = told(&llm)[1].1[0].clone();
        assert!(second.contains("`query_replay`"));
        assert_eq!(second.contains("`read_validation_test`"), guidance == Guidance::Guides, "{guidance:?}");
    }
}

#[tokio::test]
async fn a_record_with_look_ups_answers_a_policy_that_has_none_with_what_was_written_behind_them() {
    let (first, second) = (code("us=90"), code("us=40"));
    let replies = [(1, first.as_str()), (2, HEADER), (2, FIRST), (2, second.as_str())];
    let (whole, _, log) = run(&replies, with_lookups(4, 2)).await;
    let llm = Arc::new(replay(&log, false));
    let policy = Policy { lookups: None, ..with_lookups(2, 0) };
    let again = go_on_with(product(), hopper(), llm, policy, &MemoryLog::default()).await.unwrap();
    assert_eq!(again.rounds[1].candidate, whole.rounds[1].candidate);
    assert!(again.rounds[1].candidate.is_some() && again.rounds[1].looked_up.is_empty());
}

#[test]
fn what_looks_nothing_up_says_so_of_a_policy_that_would() {
    let told = Policy::parse(&format!("lookups = 2\n{}", Policy::embedded("peak").unwrap())).unwrap_err().to_string();
    assert!(told.contains("lookups: a workflow of transformations and a search look nothing up"), "{told}");
}

#[tokio::test]
async fn without_look_ups_a_prompt_says_nothing_of_them_and_such_a_reply_is_no_kernel() {
    let kernel = code("us=90");
    let policy = Policy { lookups: None, ..with_lookups(1, 0) };
    for policy in [policy.clone(), Policy { lookups: Some(0), ..policy }] {
        let (story, llm, _) = run(&[(1, HEADER), (1, &kernel)], policy).await;
        assert!(!told(&llm)[0].1[0].contains("# Look-ups"));
        assert_eq!(story.rounds[0].misread[0].1, "it holds no fenced code block");
    }
}

#[tokio::test]
async fn killed_after_any_event_a_run_goes_on_to_the_same_end_with_the_same_prompts() {
    let [first, second, third] = ["us=90", "us=40", "us=30"].map(code);
    let replies =
        [(1, HEADER), (1, first.as_str()), (2, FIRST), (2, HEADER), (2, second.as_str()), (3, third.as_str())];
    let policy = || with_lookups(5, 2);
    let (_, _, whole) = run(&replies, policy()).await;
    let essence = |log: &MemoryLog| {
        let passing =
            |event: &Event| matches!(event, Event::Asked { .. } | Event::Spent { .. } | Event::Certified { .. });
        log.events().into_iter().filter(|event| !passing(event)).collect::<Vec<_>>()
    };
    assert_eq!(whole.events().iter().filter(|event| matches!(event, Event::LookedUp(_))).count(), 3);
    for kept in 0..whole.events().len() {
        let log = whole.killed_after(kept);
        let coder = answered(&log).iter().filter(|(call, ..)| call.role == Role::Coder).count();
        let llm = Arc::new(remembering(&log, Arc::new(Scripted::new(script(&replies[coder..])))));
        go_on_with(product(), hopper(), llm, policy(), &log).await.unwrap();
        assert_eq!(essence(&log), essence(&whole), "killed after {kept}");
    }
}
