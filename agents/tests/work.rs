//! The loop, on scripted replies and a simulated workshop.

use crate::story::{FIX, OPTIMIZATION, code, go_on, policy};
use kernelbench::{CertificateVerdict, Simulated};
use std::sync::Arc;

const SUGGESTIONS: &str = r#"{"suggestions": ["Hoist the division."]}"#;

/// The names of the events, in order, as they stand on disk.
fn names(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned();
    events.iter().map(name).collect()
}
use warpsmith_agents::event::{End, Event, Step};
use warpsmith_agents::llm::scripted::{Entry, Scripted};
use warpsmith_agents::llm::{AskError, Purpose, Role};
use warpsmith_agents::log::{Log, MemoryLog};
use warpsmith_agents::planner::BrokeOff;

fn coder(directive: &str) -> Entry {
    Entry::new(Role::Coder, code(directive))
}
fn judge(reply: &str) -> Entry {
    Entry::new(Role::Judge, reply)
}

fn steps(events: &[Event]) -> Vec<&'static str> {
    let step = |event: &Event| if let Event::Began { step, .. } = event { Some(step.name()) } else { None };
    events.iter().filter_map(step).collect()
}

async fn run(name: &str, rounds: u32, entries: impl IntoIterator<Item = Entry>) -> (MemoryLog, Arc<Scripted>) {
    let (log, llm) = (MemoryLog::default(), Arc::new(Scripted::new(entries)));
    let mut policy = policy(name);
    policy.rounds = rounds;
    go_on(Arc::new(Simulated::new()), llm.clone(), policy, &log).await.unwrap();
    (log, llm)
}

#[tokio::test]
async fn a_candidate_that_is_offered_again_is_named_and_its_samples_join_those_of_before() {
    let entries = [coder("us=80"), judge(OPTIMIZATION), coder("us=80"), judge(OPTIMIZATION), coder("us=40")];
    let (log, _) = run("cudaforge", 3, entries).await;
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    let timed = |round: usize| trajectory.rounds[round].evaluation.as_ref().unwrap().passed().unwrap();
    let samples = |round: usize| timed(round).cases[0].candidate.samples_ns().len();
    assert_eq!((samples(0), samples(1), samples(2)), (5, 10, 5));
    assert!(timed(1).labels[0].text.contains("of round 1: its samples are joined"), "{:?}", timed(1).labels);
    assert_eq!(timed(1).recompute(), Ok(()));
}

#[tokio::test]
async fn a_candidate_that_does_not_build_is_mended_then_made_faster_then_certified() {
    let entries = [coder("build-error"), judge(FIX), coder("us=80"), judge(OPTIMIZATION), coder("us=40")];
    let (log, _) = run("cudaforge", 3, entries).await;
    let expected = "opened suite-frozen spent prepared \
        began asked answered wrote spent evaluated \
        began asked answered judged asked answered wrote spent evaluated \
        began spent profiled asked answered judged asked answered wrote spent evaluated \
        spent certified ended";
    assert_eq!(names(&log.events()).join(" "), expected);
    assert_eq!(steps(&log.events()), ["seed", "fix", "optimize"]);
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    assert_eq!(trajectory.best().unwrap().round, 3);
    let certified = trajectory.certified().unwrap();
    let CertificateVerdict::Certified(timed) = &certified.verdict else { panic!("{certified:?}") };
    assert!(timed.speedup.interval.low > 2.0 && timed.speedup.interval.high < 3.0, "{}", timed.speedup);
}

#[tokio::test]
async fn a_slower_correct_candidate_is_still_the_next_base_and_the_fastest_one_wins() {
    let entries = [coder("us=40"), judge(OPTIMIZATION), coder("us=90"), judge(OPTIMIZATION), coder("us=80")];
    let (log, _) = run("cudaforge", 3, entries).await;
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    assert_eq!(trajectory.rounds[2].step.base(), trajectory.rounds[1].candidate.as_ref());
    assert_eq!(trajectory.best().unwrap().round, 1);
}

#[tokio::test]
async fn a_policy_that_reverts_goes_on_from_the_fastest() {
    let entries = [coder("us=40"), judge(OPTIMIZATION), coder("us=90"), judge(OPTIMIZATION), coder("us=30")];
    let (log, _) = run("accept-revert", 3, entries).await;
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    assert_eq!(trajectory.rounds[2].step.base(), trajectory.rounds[0].candidate.as_ref());
}

#[tokio::test]
async fn a_policy_that_remembers_begins_twice_tells_the_judge_what_failed_and_begins_anew_after_two_rounds_without_gain()
 {
    let entries = [
        coder("us=40"),
        coder("us=60"),
        judge(OPTIMIZATION),
        coder("us=90"),
        judge(OPTIMIZATION),
        coder("us=80"),
        coder("us=30"),
    ];
    let (log, llm) = run("warpsmith", 5, entries).await;
    assert_eq!(steps(&log.events()), ["seed", "seed", "optimize", "optimize", "seed"]);
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    for round in [2, 3] {
        assert_eq!(trajectory.rounds[round].step.base(), trajectory.rounds[0].candidate.as_ref());
    }
    let shows = |at: usize, words: &str| llm.asked()[at].prompt.turns.iter().any(|turn| turn.text.contains(words));
    let (fastest, tried) = ("# The fastest so far", "# What was tried");
    assert!(!shows(0, fastest) && shows(1, fastest) && shows(1, "us=40") && shows(6, fastest));
    assert!(!shows(2, tried) && shows(4, tried) && shows(4, "Result: correct"));
}

#[tokio::test]
async fn astra_starts_from_the_reference_advances_over_failures_and_keeps_one_record_more_than_rounds() {
    let suggest = || Entry::new(Role::Planner, SUGGESTIONS);
    let entries = [suggest(), coder("us=60"), suggest(), coder("wrong"), suggest(), coder("us=50")];
    let (log, llm) = run("astra", 3, entries).await;
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    assert_eq!(steps(&log.events()), ["baseline", "suggest", "suggest", "suggest"]);
    assert_eq!(trajectory.rounds[3].step.base(), trajectory.rounds[2].candidate.as_ref());
    // Profiled after the failure too: the record says why nothing was measured.
    assert!(trajectory.rounds[3].profile.as_ref().unwrap().is_err());
    assert!(llm.asked().iter().all(|call| call.id.role != Role::Judge));
}

#[tokio::test]
async fn a_role_that_is_off_gets_no_message() {
    let entries = || [coder("us=80"), coder("wrong"), coder("us=40"), judge(FIX), judge(OPTIMIZATION)];
    for (name, judged, profiled) in [
        ("self-refine", None, true),
        ("correction-only", Some(Purpose::Diagnose), false),
        ("optimization-only", Some(Purpose::Advise), true),
    ] {
        let entries = entries().into_iter().chain([coder("us=30")]);
        let (log, llm) = run(name, 4, entries).await;
        let to_judge: Vec<_> = llm.asked().iter().filter(|c| c.id.role == Role::Judge).map(|c| c.id.purpose).collect();
        assert!(to_judge.iter().all(|purpose| Some(*purpose) == judged), "{name}: {to_judge:?}");
        assert_eq!(to_judge.is_empty(), judged.is_none(), "{name}");
        assert_eq!(names(&log.events()).contains(&"profiled".to_owned()), profiled, "{name}");
    }
}

#[tokio::test]
async fn a_single_agent_sees_its_own_conversation_and_the_others_see_none() {
    let (_, llm) = run("single-agent", 3, [coder("us=80"), coder("us=70"), coder("us=60")]).await;
    let turns: Vec<usize> = llm.asked().iter().map(|call| call.prompt.turns.len()).collect();
    assert_eq!(turns, [1, 3, 5]);
    let (_, llm) = run("self-refine", 3, [coder("us=80"), coder("us=70"), coder("us=60")]).await;
    assert!(llm.asked().iter().all(|call| call.prompt.turns.len() == 1));
}

#[tokio::test]
async fn a_two_headed_verdict_is_asked_for_once_more_and_then_the_round_is_over() {
    let two = format!("{OPTIMIZATION}\n{}", OPTIMIZATION.replace("Memory traffic.", "Latency."));
    let entries = [coder("us=80"), judge(&two), judge(&two), judge(&two), judge(OPTIMIZATION), coder("us=40")];
    let (log, _) = run("cudaforge", 3, entries).await;
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    assert_eq!(trajectory.rounds[1].misread.len(), 2);
    assert!(trajectory.rounds[1].unreadable.is_some() && trajectory.rounds[1].candidate.is_none());
    // The round after it starts from the same base, and its first reply was two-headed as well.
    assert_eq!(trajectory.rounds[2].misread.len(), 1);
    assert_eq!(trajectory.best().unwrap().round, 3);
}

#[tokio::test]
async fn replies_without_code_cost_their_round_and_nothing_more() {
    let prose = |text: &str| Entry::new(Role::Coder, text);
    let entries = [prose(""), prose("I would vectorize it."), coder("us=50")];
    let (log, _) = run("cudaforge", 2, entries).await;
    assert_eq!(steps(&log.events()), ["seed", "seed"]);
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    assert_eq!(trajectory.best().unwrap().round, 2);
}

#[tokio::test]
async fn a_candidate_whose_certificate_is_refused_gives_way_to_the_next_best() {
    let entries = [coder("us=60"), judge(OPTIMIZATION), coder("us=30 refused")];
    let (log, _) = run("cudaforge", 2, entries).await;
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    assert_eq!(trajectory.certificates.len(), 2);
    assert_eq!(trajectory.certified().unwrap().candidate, trajectory.rounds[0].candidate.clone().unwrap());
}

#[tokio::test]
async fn nothing_correct_is_an_end_without_a_certificate() {
    let (log, _) = run("cudaforge", 1, [coder("wrong")]).await;
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    assert_eq!((trajectory.best(), trajectory.certificates.len()), (None, 0));
    assert_eq!(trajectory.end, Some(End::OutOfRounds));
}

#[tokio::test]
async fn a_verdict_that_does_not_fit_is_passed_over_and_the_coder_is_asked_all_the_same() {
    let no_fit = Entry::failing(Role::Judge, AskError::NoFit("a fix, where an optimization was asked for".into()));
    let (log, _) = run("cudaforge", 2, [coder("us=80"), no_fit, coder("us=40")]).await;
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    assert_eq!(trajectory.rounds[1].passed_over.len(), 1);
    assert_eq!(trajectory.best().unwrap().round, 2);
}

#[tokio::test]
async fn a_record_that_ends_ends_the_run_with_its_best_so_far() {
    let ends = Entry::failing(Role::Judge, AskError::RecordEnds("nothing after round 1".into()));
    let (log, _) = run("cudaforge", 5, [coder("us=80"), ends]).await;
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    assert_eq!(trajectory.end, Some(End::RecordEnds));
    assert!(trajectory.certified().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_fails_twice_breaks_the_run_off_and_loses_no_round() {
    let (log, llm) =
        (MemoryLog::default(), Arc::new(Scripted::new([coder("us=80"), judge(OPTIMIZATION), coder("fault")])));
    let result = go_on(Arc::new(Simulated::new()), llm, policy("cudaforge"), &log).await;
    assert!(matches!(result, Err(BrokeOff::Fault(_))), "{result:?}");
    let trajectory: warpsmith_agents::trajectory::Trajectory = log.events().into_iter().collect();
    assert_eq!(trajectory.finished().count(), 1);
    assert!(trajectory.broke_off.is_some());
    assert_eq!(names(&log.events()).last().unwrap(), "broke-off");
}

#[tokio::test]
async fn a_model_that_plans_proposes_and_the_policy_decides() {
    let plan = |reply: &str| Entry::new(Role::Planner, reply);
    let entries = [
        coder("us=40"),
        plan(r#"{"step": "restart", "why": "another idea"}"#),
        coder("us=60"),
        plan(r#"{"step": "best", "why": "the first was faster"}"#),
        judge(OPTIMIZATION),
        coder("us=30"),
    ];
    let (log, llm) = (MemoryLog::default(), Arc::new(Scripted::new(entries)));
    let mut policy = policy("cudaforge");
    (policy.rounds, policy.planner) = (3, warpsmith_agents::policy::Decider::Model);
    let trajectory = go_on(Arc::new(Simulated::new()), llm, policy, &log).await.unwrap();
    assert_eq!(steps(&log.events()), ["seed", "seed", "optimize"]);
    assert_eq!(trajectory.rounds[2].step.base(), trajectory.rounds[0].candidate.as_ref());
    assert!(trajectory.proposals.values().all(|(_, taken)| *taken));
}

#[tokio::test]
async fn a_run_that_its_planner_stopped_goes_on_when_it_is_given_more_and_asks_it_for_another_step() {
    let plan = |step: &str| Entry::new(Role::Planner, format!("{{\"step\": \"{step}\", \"why\": \"so\"}}"));
    let log = MemoryLog::default();
    let mut policy = policy("cudaforge");
    (policy.rounds, policy.planner) = (4, warpsmith_agents::policy::Decider::Model);
    let llm = Arc::new(Scripted::new([coder("us=40"), plan("stop")]));
    let stopped = go_on(Arc::new(Simulated::new()), llm, policy.clone(), &log).await.unwrap();
    assert_eq!((stopped.end, stopped.written()), (Some(End::Stopped), 1));
    log.clone().note(&Event::Extended { rounds: Some(2) }).unwrap();
    let llm = Arc::new(Scripted::new([plan("stop"), plan("restart"), coder("us=30")]));
    let whole = go_on(Arc::new(Simulated::new()), llm.clone(), policy, &log).await.unwrap();
    assert_eq!((whole.end, whole.written()), (Some(End::OutOfRounds), 2));
    assert_eq!(steps(&log.events()), ["seed", "seed"]);
    let asked = llm.asked();
    assert_eq!((asked[0].id.part.as_str(), asked[1].id.attempt), ("anyway", 2), "to stop is not open any more");
    assert!(!asked[0].prompt.turns[0].text.contains("- stop\n"), "{}", asked[0].prompt.turns[0].text);
}

#[tokio::test]
async fn shapes_are_asked_for_once_and_frozen_and_a_useless_proposal_gives_way_to_the_task() {
    let shapes = |reply: &str| Entry::new(Role::Tester, reply);
    for (reply, provenance) in [
        (r#"{"shapes": [{"n": 10}, {"n": 4096}, {"n": 7}]}"#, kernelbench::Provenance::Model),
        (r#"{"shapes": [{"n": 10}]}"#, kernelbench::Provenance::Task),
    ] {
        let entries = [shapes(reply), coder("us=80"), judge(OPTIMIZATION), coder("us=40")];
        let (log, llm) = (MemoryLog::default(), Arc::new(Scripted::new(entries)));
        let mut policy = policy("cudaforge");
        (policy.rounds, policy.shapes) = (2, warpsmith_agents::policy::Shapes::Model);
        let trajectory = go_on(Arc::new(Simulated::new()), llm.clone(), policy, &log).await.unwrap();
        let suite = trajectory.suite.unwrap();
        assert_eq!(suite.provenance, provenance);
        assert_eq!(suite.timed.len(), 1);
        assert_eq!(llm.asked().iter().filter(|call| call.id.role == Role::Tester).count(), 1);
        assert_eq!(names(&log.events()).iter().filter(|name| *name == "suite-frozen").count(), 1);
    }
}

#[test]
fn a_step_knows_its_base() {
    let base = kernelbench::Candidate::new("x").id();
    assert_eq!(Step::Fix { base: base.clone() }.base(), Some(&base));
    assert_eq!(Step::Seed.base(), None);
}
