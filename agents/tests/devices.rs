//! A search on several devices: each configuration is examined once, one at a time on each, and a device that fails is given up.
use crate::story;

use kernelbench::{Absent, Found, Simulated, Workshop};
use prompts::{Catalogue, Prompts};
use std::{collections::BTreeSet, sync::Arc};
use warpsmith_agents::crew::{Crew, Place};
use warpsmith_agents::event::Event;
use warpsmith_agents::llm::scripted::{Entry, Scripted};
use warpsmith_agents::llm::{Purpose, Role};
use warpsmith_agents::log::MemoryLog;
use warpsmith_agents::planner::{Job, no_limit, work};
use warpsmith_agents::policy::Policy;
use warpsmith_agents::trajectory::Trajectory;

/// One transformation, with a parameter of these values.
fn words(values: &[String]) -> Prompts {
    let text = format!(
        "name = \"Words\"\nsummary = \"Changes it.\"\nbackends = [\"cpu\"]\ntries = 1\n[parameter]\nWORD = {values:?}\n\
         [[pass]]\naim = \"Change it.\"\n[[pass.call]]\nregion = \"device\"\ntext = \"Do it.\"\n"
    );
    Prompts::embedded().transforming(Catalogue::embedded().with([("words.toml".to_owned(), text)]).unwrap())
}

/// What comes of these values on these workshops, from where the log ends.
async fn searched(values: &[String], workshops: &[Arc<dyn Workshop>], log: &MemoryLog) -> Trajectory {
    let place =
        |(at, workshop): (usize, &Arc<dyn Workshop>)| Place::of_one(workshop.clone()).named(format!("cuda:{at}"));
    let mut places = workshops.iter().enumerate().map(place);
    let reply = "```cpp\n// region: device\n// simulate: {{WORD}}\nstatic void part() {}\n```\n";
    let model = Scripted::new([Entry::new(Role::Coder, reply).round(1).purpose(Purpose::Transform)]);
    let llm = Arc::new(story::remembering(log, Arc::new(model)));
    let crew =
        Crew::at(places.next().unwrap(), llm, Arc::new(words(values))).await.searching_on(places.collect()).await;
    let so_far: Trajectory = log.events().into_iter().collect();
    let policy = Policy { sequence: Some(vec!["Words".into()]), samples: Some(1), ..story::policy("peak") };
    let job = Job { task: story::task_with_regions(), policy, so_far, log: Box::new(log.clone()), limit: no_limit() };
    let story = work(job, &crew).await.unwrap();
    crew.stop().await;
    story
}

fn simulated(many: usize) -> (Vec<Arc<Simulated>>, Vec<Arc<dyn Workshop>>) {
    let all: Vec<_> = (0..many).map(|_| Arc::new(Simulated::new())).collect();
    let workshops = all.iter().map(|workshop| workshop.clone() as Arc<dyn Workshop>).collect();
    (all, workshops)
}

/// The device of each configuration.
fn devices(log: &MemoryLog) -> Vec<String> {
    let device = |pair: &[Event]| match pair {
        [Event::Spent { lease: Some(lease), .. }, Event::Tried { .. }] => Some(lease.device.clone()),
        _ => None,
    };
    log.events().windows(2).filter_map(device).collect()
}

fn times(us: std::ops::RangeInclusive<u32>) -> Vec<String> {
    us.map(|us| format!("us={us} run_ms=20")).collect()
}

#[tokio::test(start_paused = true)]
async fn configurations_are_timed_one_at_a_time_on_each_of_several_devices_and_all_else_on_the_first() {
    let (whole, (each, workshops)) = (MemoryLog::default(), simulated(3));
    let story = searched(&times(10..=16), &workshops, &whole).await;
    assert_eq!(story.workflow.head().unwrap().kept[0]["WORD"].to_string(), "us=10 run_ms=20");
    let on = |at: usize| devices(&whole).iter().filter(|device| **device == format!("cuda:{at}")).count();
    assert_eq!((devices(&whole).len(), [0, 1, 2].map(|at| (2..=3).contains(&on(at)))), (7, [true; 3]));
    assert!(each.iter().all(|workshop| workshop.most_running() == 1));
    assert_eq!([1, 2].map(|at: usize| each[at].builds()), [on(1), on(2)], "nothing but configurations");
    for kept in 0..whole.events().len() {
        let log = whole.killed_after(kept);
        searched(&times(10..=16), &simulated(3).1, &log).await;
        assert_eq!(devices(&log).len(), 7, "killed after {kept}: each is timed once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_fails_is_given_up_and_what_it_had_is_examined_elsewhere() {
    let (log, (each, mut workshops)) = (MemoryLog::default(), simulated(2));
    workshops[1] = Arc::new(Absent::new(each[1].machine().clone()));
    let story = searched(&times(10..=16), &workshops, &log).await;
    assert_eq!(devices(&log), ["cuda:0"; 7].map(str::to_owned));
    let tried: BTreeSet<String> =
        story.rounds[1].tried.iter().map(|tried| tried.bindings["WORD"].to_string()).collect();
    assert_eq!(tried.len(), 7);
    assert_eq!(story.workflow.head().unwrap().kept[0]["WORD"].to_string(), "us=10 run_ms=20");
}

#[tokio::test(start_paused = true)]
async fn of_several_wrong_ones_the_first_in_order_is_named_whichever_was_done_first_and_whoever_goes_on() {
    // Two that are wrong, the earlier of them slower; one that is drawn and checked first is right.
    let slow_first = |values: &[String]| {
        let log = MemoryLog::default();
        let values = values.to_vec();
        async move {
            let story = searched(&values, &simulated(2).1, &log).await;
            (story, log)
        }
    };
    let mut values: Vec<String> = (0..12).map(|at| format!("us={} run_ms=20", 40 + at)).collect();
    let (story, _) = slow_first(&values).await;
    let order: Vec<String> = story.rounds[1].tried.iter().map(|tried| tried.bindings["WORD"].to_string()).collect();
    let at = |word: &String| values.iter().position(|value| value == word).unwrap();
    let (fourth, fifth) = (at(&order[3]), at(&order[4]));
    (values[fourth], values[fifth]) = ("wrong run_ms=90".to_owned(), "wrong run_ms=1".to_owned());
    let (story, log) = slow_first(&values).await;
    let failed: Vec<String> = story.rounds[1]
        .tried
        .iter()
        .filter(|tried| matches!(tried.found, Found::Failed(_)))
        .map(|tried| tried.bindings["WORD"].to_string())
        .collect();
    assert_eq!(failed, [values[fifth].clone(), values[fourth].clone()], "the later one was done first");
    let last_two = story.rounds[1].tried.iter().rev().take(2).all(|tried| matches!(tried.found, Found::Failed(_)));
    assert!(last_two, "nothing begins behind one that is wrong");
    let named = |log: &MemoryLog| {
        log.events()
            .into_iter()
            .filter_map(|event| if let Event::Evaluated { candidate, .. } = event { Some(candidate) } else { None })
            .next_back()
    };
    let wrong =
        story.rounds[1].tried.iter().find(|tried| tried.bindings["WORD"].to_string() == values[fourth]).unwrap();
    assert_eq!(named(&log).as_ref(), Some(&wrong.candidate));
    // Whoever goes on behind the first of the two that was noted names the same, and so does one device from the start.
    let noted = |event: &Event| matches!(event, Event::Tried { tried } if matches!(tried.found, Found::Failed(_)));
    let first = log.events().iter().position(noted).unwrap();
    let (cut, alone) = (log.killed_after(first + 1), MemoryLog::default());
    searched(&values, &simulated(1).1, &cut).await;
    let story = searched(&values, &simulated(1).1, &alone).await;
    assert_eq!(named(&alone), named(&log));
    let last = story.rounds[1].tried.last().unwrap();
    assert_eq!(last.bindings["WORD"].to_string(), values[fourth], "nothing begins behind it");
    assert!(cut.events().iter().any(|event| matches!(event, Event::Ended { .. })));
}
