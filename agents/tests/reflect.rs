//! What rounds taught is written down after each, shown to the Coder of those that follow, and asked for once, whatever happens.

use crate::story::{self, OPTIMIZATION, code, go_on, policy, remembering, replay};
use kernelbench::Simulated;
use prompts::Prompts;
use std::sync::Arc;
use warpsmith_agents::crew::Crew;
use warpsmith_agents::event::{End, Event};
use warpsmith_agents::llm::scripted::{Entry, Scripted};
use warpsmith_agents::llm::{Purpose, Role};
use warpsmith_agents::log::{Log, MemoryLog};
use warpsmith_agents::planner::{Job, Limit, work};
use warpsmith_agents::policy::{Policy, Reflect};
use warpsmith_agents::trajectory::Trajectory;

const LESSON: &str =
    r#"{"reflections": [{"insight": "Load whole vectors.", "evidence": "Round 1: 1.11x.", "applies": "Always."}]}"#;
const NOTES: &str = "```markdown\n# Notes\n- Load whole vectors.\n```";

fn with(reflect: Reflect) -> Policy {
    Policy { rounds: 3, reflect: Some(reflect), ..policy("cudaforge") }
}

/// Three kernels, the second of which is wrong, and what the Planner says after each.
fn script(reflections: [&str; 3]) -> Vec<Entry> {
    let kernels = [code("us=90"), code("wrong"), code("us=60")];
    let coder = (1..).zip(kernels).map(|(round, text)| Entry::new(Role::Coder, &text).round(round));
    let judge = [Entry::new(Role::Judge, OPTIMIZATION).round(2), Entry::new(Role::Judge, story::FIX).round(3)];
    let planner = (1..).zip(reflections);
    let planner = planner.map(|(round, text)| Entry::new(Role::Planner, text).round(round).purpose(Purpose::Reflect));
    coder.chain(judge).chain(planner).collect()
}

async fn run(reflect: Reflect, reflections: [&str; 3]) -> (Trajectory, Arc<Scripted>, MemoryLog) {
    let (log, llm) = (MemoryLog::default(), Arc::new(Scripted::new(script(reflections))));
    let story = go_on(Arc::new(Simulated::new()), llm.clone(), with(reflect), &log).await.unwrap();
    (story, llm, log)
}

/// The last turn of a role's call in a round.
fn said(llm: &Scripted, role: Role, round: u32) -> String {
    let call = llm.asked().into_iter().find(|call| (call.id.role, call.id.round) == (role, round)).unwrap();
    call.prompt.turns.last().unwrap().text.clone()
}

#[tokio::test]
async fn what_a_round_taught_is_shown_to_the_coder_of_those_that_follow_and_to_who_writes_down_the_next() {
    let second = LESSON.replace("Load whole vectors.", "Mind the tail.");
    let (story, llm, _) = run(Reflect::Lessons, [LESSON, &second, LESSON]).await;
    assert_eq!(
        story.reflected().map(|one| (one.round, one.lessons.len())).collect::<Vec<_>>(),
        [(1, 1), (2, 1), (3, 1)]
    );
    assert!(!said(&llm, Role::Coder, 1).contains("earlier rounds taught"));
    let [two, three] = [2, 3].map(|round| said(&llm, Role::Coder, round));
    assert!(
        two.contains("# What earlier rounds taught") && two.contains("- Load whole vectors. Seen: Round 1: 1.11x.")
    );
    assert!(
        three.contains("Load whole vectors.") && three.contains("Mind the tail.") && !two.contains("Mind the tail.")
    );
    let asked = said(&llm, Role::Planner, 2);
    assert!(
        asked.contains("round 2, optimize") && asked.contains("512 of 1024") && asked.contains("Load whole"),
        "{asked}"
    );
    assert!(!said(&llm, Role::Judge, 2).contains("Load whole"), "the Judge is told by its own means");
}

#[tokio::test]
async fn notes_are_written_anew_after_each_round_and_the_last_are_shown() {
    let anew = NOTES.replace("Load whole vectors.", "Mind the tail.");
    let (story, llm, _) = run(Reflect::Skill, [NOTES, "no notes", "no notes"]).await;
    assert_eq!(story.reflected().map(|one| one.skill.is_some()).collect::<Vec<_>>(), [true, false]);
    assert!(
        said(&llm, Role::Coder, 3).contains("- Load whole vectors."),
        "what cannot be read is left out, the notes stay"
    );
    let (story, llm, log) = run(Reflect::Skill, [NOTES, &anew, NOTES]).await;
    let [two, three] = [2, 3].map(|round| said(&llm, Role::Coder, round));
    assert!(two.contains("# Notes of earlier rounds") && two.contains("- Load whole vectors."), "{two}");
    assert!(three.contains("- Mind the tail.") && !three.contains("Load whole vectors."), "{three}");
    assert!(
        said(&llm, Role::Planner, 1).contains("(nothing yet)") && said(&llm, Role::Planner, 2).contains("- Load whole")
    );
    assert_eq!(
        log.fetch(story.reflected().nth(1).unwrap().skill.as_ref().unwrap()).unwrap(),
        "# Notes\n- Mind the tail.\n"
    );
    assert_eq!((story.end, story.written()), (Some(End::OutOfRounds), 3));
}

#[tokio::test]
async fn killed_after_any_event_it_is_asked_once_and_a_record_makes_the_run_again() {
    let (_, _, whole) = run(Reflect::Lessons, [LESSON; 3]).await;
    let essence = |log: &MemoryLog| {
        let kept =
            |event: &Event| !matches!(event, Event::Asked { .. } | Event::Spent { .. } | Event::Certified { .. });
        log.events().into_iter().filter(kept).collect::<Vec<_>>()
    };
    for kept in 0..whole.events().len() {
        let log = whole.killed_after(kept);
        let llm = Arc::new(Scripted::new(script([LESSON; 3])));
        let llm = Arc::new(remembering(&log, llm));
        go_on(Arc::new(Simulated::new()), llm, with(Reflect::Lessons), &log).await.unwrap();
        assert!(essence(&log) == essence(&whole), "killed after {kept}");
    }
    let again = MemoryLog::default();
    go_on(Arc::new(Simulated::new()), Arc::new(replay(&whole, true)), with(Reflect::Lessons), &again).await.unwrap();
    let wrote = |log: &MemoryLog| {
        let kept = |event: &Event| matches!(event, Event::Wrote { .. } | Event::Reflected(_));
        log.events().into_iter().filter(kept).collect::<Vec<_>>()
    };
    assert!(wrote(&again) == wrote(&whole) && wrote(&whole).len() == 6, "{:?}", wrote(&again));
}

#[tokio::test]
async fn where_a_limit_is_reached_nobody_is_asked_and_when_the_run_is_given_more_it_is_made_up_for() {
    // In the midst of the rounds, and after the last of all, whose end it is not.
    for (reached, end) in [(2, End::Tokens), (3, End::OutOfRounds)] {
        let (log, llm) = (MemoryLog::default(), Arc::new(Scripted::new(script([LESSON; 3]))));
        let crew = Crew::spawn(Arc::new(Simulated::new()), llm.clone(), Arc::new(Prompts::embedded())).await;
        let limit: Limit = Arc::new(move |so_far| (so_far.written() >= reached).then_some(End::Tokens));
        let policy = || with(Reflect::Lessons);
        let job = Job {
            task: story::task(),
            policy: policy(),
            so_far: Trajectory::default(),
            log: Box::new(log.clone()),
            limit,
        };
        let told = work(job, &crew).await.unwrap();
        crew.stop().await;
        assert_eq!(
            told.reflected().map(|one| one.round).collect::<Vec<_>>(),
            (1..reached).collect::<Vec<_>>(),
            "none of the last"
        );
        assert_eq!((told.end, told.certified().is_some()), (Some(end), true));
        let ended = log.events().iter().position(|event| matches!(event, Event::Certified { .. })).unwrap();
        let log = log.killed_after(ended);
        let llm = Arc::new(remembering(&log, llm));
        let told = go_on(Arc::new(Simulated::new()), llm, policy(), &log).await.unwrap();
        assert_eq!(told.reflected().map(|one| one.round).collect::<Vec<_>>(), [1, 2, 3]);
    }
}

#[tokio::test]
async fn what_the_last_round_taught_holds_nothing_up_and_notes_are_not_written_for_nobody() {
    let (story, llm, _) = run(Reflect::Skill, [NOTES; 3]).await;
    let asked = llm.asked().iter().filter(|call| call.id.purpose == Purpose::Reflect).count();
    assert_eq!((asked, story.reflected().count()), (2, 2));
    let log = MemoryLog::default();
    let without_the_last = script([LESSON; 3]).into_iter().take(7);
    let llm = Arc::new(Scripted::new(without_the_last));
    let story = go_on(Arc::new(Simulated::new()), llm, with(Reflect::Lessons), &log).await.unwrap();
    let lessons: Vec<usize> = story.reflected().map(|one| one.lessons.len()).collect();
    assert_eq!((lessons, story.certified().is_some(), story.end), (vec![1, 1, 0], true, Some(End::OutOfRounds)));
}

#[test]
fn a_workflow_and_a_search_write_nothing_down() {
    let text = Policy::embedded("peak-x1-85").unwrap();
    let why = Policy::parse(&format!("reflect = \"lessons\"\n{text}")).unwrap_err().to_string();
    assert!(why.contains("reflect: of a workflow of transformations and of a search nothing is written down"), "{why}");
}
