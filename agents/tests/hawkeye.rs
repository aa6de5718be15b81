//! Features in the loop: a scripted model on a simulated GPU goes through each case of accepting and taking back, and a run
//! goes on to the same end after every event.

use crate::story::{FIX, OPTIMIZATION, answered, code, go_on_with, policy, remembering, task};
use kernelbench::{Simulated, Task};
use metrics::Arch;
use std::sync::Arc;
use warpsmith_agents::event::{End, Event};
use warpsmith_agents::llm::Role;
use warpsmith_agents::llm::scripted::{Entry, Scripted};
use warpsmith_agents::log::MemoryLog;
use warpsmith_agents::policy::{Guidance, Policy};
use warpsmith_agents::trajectory::Trajectory;

/// What a kernel without features, one with wgmma, and one with roles too would read.
const PLAIN: &str = "sm__inst_executed_pipe_tensor_op_gmma.sum=0 smsp__inst_executed_op_tma_ld.sum=0 \
                     sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active=2";
const WGMMA: &str = "sm__inst_executed_pipe_tensor_op_gmma.sum=2048 smsp__inst_executed_op_tma_ld.sum=64 \
                     sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active=20";
const ROLES: &str = "sm__inst_executed_pipe_tensor_op_gmma.sum=2048 smsp__inst_executed_op_tma_ld.sum=64 \
                     sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active=60";

/// What the Planner ranks before the first candidate.
const APPROACHES: &str = r#"{"approaches": ["Tiles by wgmma.", "Split the sum.", "Recompute."]}"#;

fn product() -> Task {
    Task { summary: "A matrix product.".into(), ..task() }
}

fn hopper() -> Arc<Simulated> {
    Arc::new(Simulated::on(Arch::Cuda { major: 9, minor: 0 }))
}

/// A Judge's optimization that brings in these features.
fn naming(features: &str) -> String {
    OPTIMIZATION.replacen('{', &format!("{{\"features\": [{features}], "), 1)
}

/// What the Judge names, and what the candidate then does.
type Turn = (&'static str, String);

fn turns() -> Vec<Turn> {
    let does = |us: &str, counters: &str| format!("us={us} {counters}");
    vec![
        ("", does("100", PLAIN)),
        ("\"wgmma\", \"tma\"", does("50", WGMMA)),
        ("\"roles\"", does("50.3", ROLES)),
        ("\"roles\"", does("60", ROLES)),
        ("\"roles\", \"wgmma\"", "build-error".into()),
        ("fix", "wrong".into()),
        ("fix", "wrong".into()),
        ("fix", "crash".into()),
        ("\"roles\"", does("30", ROLES)),
        ("\"roles\"", "us=20".into()),
        ("", does("19.9", ROLES)),
    ]
}

fn script(turns: &[Turn]) -> Vec<Entry> {
    let mut script = vec![Entry::new(Role::Planner, APPROACHES)];
    for (at, (named, does)) in turns.iter().enumerate() {
        let round = at as u32 + 1;
        if round > 1 {
            let says = if *named == "fix" { FIX.to_owned() } else { naming(named) };
            script.push(Entry::new(Role::Judge, says).round(round));
        }
        script.push(Entry::new(Role::Coder, code(does)).round(round));
    }
    script
}

fn hawkeye(rounds: usize) -> Policy {
    Policy { rounds: rounds as u32, ..policy("hawkeye") }
}

async fn run(turns: &[Turn], policy: Policy) -> (Trajectory, Arc<Scripted>, MemoryLog) {
    let (log, llm) = (MemoryLog::default(), Arc::new(Scripted::new(script(turns))));
    let story = go_on_with(product(), hopper(), llm.clone(), policy, &log).await.unwrap();
    (story, llm, log)
}

/// What was said to a role in a round.
fn told(llm: &Scripted, role: Role, round: u32) -> String {
    let calls = llm.asked();
    let call = calls.iter().find(|call| call.id.role == role && call.id.round == round).unwrap();
    call.prompt.turns.iter().map(|turn| turn.text.as_str()).collect()
}

#[tokio::test]
async fn each_case_of_accepting_and_taking_back_is_gone_through_and_the_best_is_kept_apart() {
    let (story, llm, _) = run(&turns(), hawkeye(turns().len())).await;
    let weighed = |round: usize| story.rounds[round - 1].weighed.as_ref();
    let why = |round: usize| weighed(round).map(|weighed| (weighed.accepted, weighed.why.as_str()));
    let expected = [
        Some((true, "the first that is right")),
        Some((true, "faster, and the feature fired")),
        Some((true, "the feature fired, and it is hardly slower")),
        Some((false, "not faster, feature not fired")),
        None,
        None,
        None,
        None,
        Some((true, "faster, feature not fired: it is asked for again")),
        Some((true, "faster; its counters are unknown, so time decides")),
        Some((false, "not faster")),
    ];
    for (at, expected) in expected.into_iter().enumerate() {
        assert_eq!(why(at + 1), expected, "round {}", at + 1);
    }
    let steps: Vec<&str> = story.rounds.iter().map(|round| round.step.name()).collect();
    let mended = ["optimize", "fix", "fix", "fix", "optimize"];
    assert_eq!(steps[..4], ["seed", "optimize", "optimize", "optimize"]);
    assert_eq!(steps[4..9], mended);
    let base = |round: usize| story.rounds[round - 1].step.base().unwrap().clone();
    let candidate = |round: usize| story.rounds[round - 1].candidate.clone().unwrap();
    for round in [4, 5, 9] {
        assert_eq!(base(round), candidate(3), "what was taken back or given up is no base: round {round}");
    }
    assert_eq!((base(6), base(7), base(11)), (candidate(5), candidate(6), candidate(10)));
    assert_eq!(weighed(2).unwrap().shown[0].proof.target().unwrap().after, Some(2048.0));
    assert_eq!((weighed(2).unwrap().left, weighed(11).unwrap().left), (9, 0));
    assert!(told(&llm, Role::Judge, 10).contains("it was asked for before, and has not run yet"));
    assert_eq!(story.best().unwrap().round, 11, "the fastest is kept apart from what goes on");
    let was_tried =
        |round| told(&llm, Role::Judge, round).contains("made to candidates before it, and were taken back");
    assert!(!was_tried(4) && was_tried(10), "what was taken back in round 4 is told of the head of round 9");
}

#[tokio::test]
async fn the_coder_is_given_the_example_of_what_was_named_and_again_when_that_failed() {
    let (story, llm, _) = run(&turns(), hawkeye(turns().len())).await;
    assert!(told(&llm, Role::Judge, 2).contains("- wgmma: ") && told(&llm, Role::Judge, 2).contains("op_gmma.sum = 0"));
    assert!(told(&llm, Role::Coder, 2).contains("## wgmma") && told(&llm, Role::Coder, 2).contains("## tma"));
    for round in [5, 6, 7, 8] {
        let text = told(&llm, Role::Coder, round);
        assert!(text.contains("## roles") && !text.contains("## vector"), "round {round}");
    }
    assert!(!told(&llm, Role::Coder, 1).contains("# Features") && !told(&llm, Role::Coder, 11).contains("# Features"));
    let profiles = story.rounds.iter().filter(|round| round.counters.is_some()).count();
    assert_eq!(profiles, 7, "each candidate that passed was profiled once, in its own round");
    assert!(story.rounds.iter().all(|round| round.profile.is_none()));
}

#[tokio::test]
async fn the_first_candidate_carries_out_the_first_of_three_approaches_and_the_judge_knows_them_all() {
    let few = &turns()[..4];
    let (story, llm, _) = run(few, hawkeye(few.len())).await;
    assert_eq!(story.approaches().unwrap().items, ["Tiles by wgmma.", "Split the sum.", "Recompute."]);
    let ranked = ["- A: Tiles by wgmma.", "- B: Split the sum.", "- C: Recompute."];
    let (seed, judge) = (told(&llm, Role::Coder, 1), told(&llm, Role::Judge, 3));
    assert!(ranked.iter().all(|line| seed.contains(line) && judge.contains(line)), "{seed}\n{judge}");
    assert!(seed.contains("\nCarry out A, whole."), "{seed}");
    assert!(!told(&llm, Role::Planner, 1).contains("# Plan"), "nothing was ranked before");
    let asked = llm.asked().iter().filter(|call| call.id.role == Role::Planner).count();
    assert_eq!(asked, 1, "once, before the first candidate");
}

#[tokio::test]
async fn what_was_ranked_is_carried_out_in_its_order_where_first_candidates_fail_for_good() {
    // The first reply cannot be read, twice; then each first candidate and its three mends fail.
    let mut replies = vec![Entry::new(Role::Planner, APPROACHES)];
    replies.extend(["no code", "no code either"].map(|text| Entry::new(Role::Coder, text).round(1)));
    for round in 2..=15 {
        if ![2, 6, 10, 14].contains(&round) {
            replies.push(Entry::new(Role::Judge, FIX).round(round));
        }
        replies.push(Entry::new(Role::Coder, code("wrong")).round(round));
    }
    let (log, llm) = (MemoryLog::default(), Arc::new(Scripted::new(replies)));
    let story = go_on_with(product(), hopper(), llm.clone(), hawkeye(15), &log).await.unwrap();
    let steps: Vec<&str> = story.rounds.iter().map(|round| round.step.name()).collect();
    assert_eq!((steps[1], steps[5], steps[9], steps[13]), ("seed", "seed", "seed", "seed"), "{steps:?}");
    let told = |round| told(&llm, Role::Coder, round);
    assert!(told(2).contains("\nCarry out A, whole."), "nothing was written by it yet");
    assert!(told(6).contains("\nCandidates by A failed and were given up. Carry out B, whole."));
    assert!(told(10).contains("Candidates by A and B failed and were given up. Carry out C, whole."));
    assert!(!told(14).contains("# Plan"), "none is left");
    let ranked = log.events().iter().filter(|event| matches!(event, Event::Ranked { .. })).count();
    assert_eq!(ranked, 1);
}

#[tokio::test]
async fn without_approaches_that_can_be_read_the_coder_begins_as_it_likes() {
    let few = &turns()[..2];
    let mut replies = vec![Entry::new(Role::Planner, "A, then B."), Entry::new(Role::Planner, "{\"approaches\": []}")];
    replies.extend(script(few).into_iter().skip(1));
    let (log, llm) = (MemoryLog::default(), Arc::new(Scripted::new(replies)));
    let story = go_on_with(product(), hopper(), llm.clone(), hawkeye(few.len()), &log).await.unwrap();
    assert_eq!((story.approaches(), story.written()), (None, 2));
    assert_eq!(story.rounds[0].misread.len(), 2, "each with its reason");
    assert!(!told(&llm, Role::Coder, 1).contains("# Plan") && !told(&llm, Role::Judge, 2).contains("# Plan"));
}

#[tokio::test]
async fn names_alone_are_offered_without_examples_and_off_says_nothing_at_all() {
    let few = &turns()[..3];
    for (guidance, judge, coder) in
        [(Guidance::Guides, true, true), (Guidance::Names, true, false), (Guidance::Off, false, false)]
    {
        let policy = Policy { rounds: 3, features: Some(guidance), ..policy("cudaforge") };
        let (story, llm, _) = run(few, policy).await;
        assert_eq!(told(&llm, Role::Judge, 2).contains("# Features of this architecture"), judge, "{guidance:?}");
        assert_eq!(told(&llm, Role::Coder, 2).contains("# Features"), coder, "{guidance:?}");
        assert_eq!(story.rounds[1].weighed, None);
    }
    let silent = run(few, Policy { rounds: 3, features: None, ..policy("cudaforge") }).await;
    let off = run(few, Policy { rounds: 3, features: Some(Guidance::Off), ..policy("cudaforge") }).await;
    let prompts = |llm: &Scripted| llm.asked().into_iter().map(|call| call.prompt).collect::<Vec<_>>();
    assert_eq!(prompts(&silent.1), prompts(&off.1));
}

#[tokio::test]
async fn a_search_that_gains_nothing_ends() {
    let mut turns: Vec<Turn> = vec![("", "us=50".into())];
    turns.extend((0..9).map(|at| ("", format!("us=6{at}"))));
    let (story, ..) = run(&turns, Policy { stall: Some(4), ..hawkeye(50) }).await;
    assert_eq!((story.end, story.rounds.len()), (Some(End::Stalled), 5));
    assert!(story.certified().is_some());
}

#[tokio::test]
async fn killed_after_any_event_a_run_goes_on_to_the_same_end() {
    let (_, _, whole) = run(&turns(), hawkeye(turns().len())).await;
    let essence = |log: &MemoryLog| {
        let passing =
            |event: &Event| matches!(event, Event::Asked { .. } | Event::Spent { .. } | Event::Certified { .. });
        log.events().into_iter().filter(|event| !passing(event)).collect::<Vec<_>>()
    };
    for kept in 0..whole.events().len() {
        let log = whole.killed_after(kept);
        let known = answered(&log).len();
        let rest = script(&turns()).into_iter().skip(known);
        let llm = Arc::new(remembering(&log, Arc::new(Scripted::new(rest))));
        go_on_with(product(), hopper(), llm, hawkeye(turns().len()), &log).await.unwrap();
        assert_eq!(essence(&log), essence(&whole), "killed after {kept}");
    }
}
