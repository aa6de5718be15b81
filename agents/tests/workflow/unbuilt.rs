//! Searches in which configurations do not build.

use super::{answered, device, entry, essence, policy, request, task_with_regions, transformation};
use kernelbench::{Found, Simulated, load};
use prompts::{Catalogue, Prompts};
use std::sync::Arc;
use warpsmith_agents::crew::Crew;
use warpsmith_agents::event::Event;
use warpsmith_agents::lease::Work;
use warpsmith_agents::llm::remembering::Remembering;
use warpsmith_agents::llm::scripted::Scripted;
use warpsmith_agents::log::MemoryLog;
use warpsmith_agents::planner::{Job, Request, no_limit, transform, work};
use warpsmith_agents::policy::Policy;
use warpsmith_agents::trajectory::Trajectory;
use warpsmith_agents::workflow::TuningPlan;

#[tokio::test]
async fn a_search_over_more_than_was_kept_leaves_out_what_does_not_build_and_fails_for_what_is_wrong() {
    for (head, tail, found) in [("buil", "d-error", true), ("wro", "ng", false)] {
        let parameter = |name: &str, values: [&str; 2]| format!("[parameter]\n{name} = {values:?}");
        let own = [
            transformation("Pick", &parameter("A", ["us=1", head])),
            transformation("Also", &parameter("B", ["0", tail])),
        ];
        let prompts = Prompts::embedded().transforming(Catalogue::embedded().with(own).unwrap());
        let model = Arc::new(Scripted::new([entry(1, &device("{{A}}5")), entry(2, &device("{{A}}{{B}}"))]));
        let crew = Crew::spawn(Arc::new(Simulated::new()), model, Arc::new(prompts)).await;
        let (so_far, log) = (Trajectory::default(), MemoryLog::default());
        let job = Job {
            task: task_with_regions(),
            policy: Policy { keep: Some(1), ..policy(&[]) },
            so_far,
            log: Box::new(log.clone()),
            limit: no_limit(),
        };
        let again = Request::tune(None, TuningPlan::default());
        let story = transform(job, vec![request("Pick"), request("Also"), again], &crew).await.unwrap();
        crew.stop().await;
        let names: Vec<_> = story.workflow.checkpoints.iter().map(|at| at.name.as_str()).collect();
        assert_eq!(names, if found { vec!["c0", "c1", "c2", "c3"] } else { vec!["c0", "c1", "c2"] });
        let last = story.rounds.last().unwrap();
        assert_eq!((last.checked.len(), last.tried.len()), if found { (4, 4) } else { (last.checked.len(), 0) });
        assert!(!found || last.checked.iter().filter(|(_, failure)| failure.is_some()).count() == 1);
        let off_the_device =
            |event: &Event| matches!(event, Event::Spent { work, lease: None, .. } if *work != Work::Build);
        assert!(!log.events().iter().any(off_the_device), "what did not build ahead was built once more");
    }
}

/// A transformation with words to choose from, of which two that are not drawn do not build.
fn with_two_unbuilt() -> (String, String) {
    let words = |unbuilt: [u32; 2]| {
        let word = |at| if unbuilt.contains(&at) { format!("\"build-error us={at}\"") } else { format!("\"us={at}\"") };
        format!("WORD = [{}]", (1..=8).map(word).collect::<Vec<_>>().join(", "))
    };
    let is_drawn = |words: &String| {
        let space = load::parameters(&words.parse().unwrap()).unwrap();
        let drawn = kernelbench::spread(space.configurations().unwrap(), 2, 0, "validation");
        drawn.iter().any(|at| at["WORD"].to_string().starts_with("build"))
    };
    let pairs = (1..8).map(|first| words([first, first + 1]));
    let words = pairs.into_iter().find(|words| !is_drawn(words)).unwrap();
    transformation("Words", &format!("tries = 1\n[parameter]\n{words}"))
}

/// Goes on with a sequence of that transformation; every answer is the same.
async fn search_on(log: &MemoryLog) {
    let prompts = Prompts::embedded().transforming(Catalogue::embedded().with([with_two_unbuilt()]).unwrap());
    let known = answered(log);
    let model = Arc::new(Scripted::new([entry(1, &device("{{WORD}}"))].into_iter().skip(known.len())));
    let llm = Arc::new(Remembering::new(model, known));
    let crew = Crew::spawn(Arc::new(Simulated::new()), llm, Arc::new(prompts)).await;
    let job = Job {
        task: task_with_regions(),
        policy: Policy { samples: Some(2), ..policy(&["Words"]) },
        so_far: log.events().into_iter().collect(),
        log: Box::new(log.clone()),
        limit: no_limit(),
    };
    work(job, &crew).await.unwrap();
    crew.stop().await;
}

#[tokio::test]
async fn a_search_that_finds_two_that_do_not_build_ends_alike_wherever_it_was_killed() {
    let whole = MemoryLog::default();
    search_on(&whole).await;
    let tried = |event: &Event| matches!(event, Event::Tried { tried } if matches!(tried.found, Found::Failed(_)));
    assert_eq!(essence(&whole).iter().filter(|event| tried(event)).count(), 1, "the first of them fails the step");
    for kept in 0..whole.events().len() {
        let log = whole.killed_after(kept);
        search_on(&log).await;
        assert_eq!(essence(&log).len(), essence(&whole).len(), "killed after {kept}");
        assert!(essence(&log) == essence(&whole), "killed after {kept}");
    }
}
