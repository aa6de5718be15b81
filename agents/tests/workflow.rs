//! Workflows: transformations applied one after another, on scripted replies and a simulated workshop.
#[path = "workflow/unbuilt.rs"]
mod unbuilt;

use crate::story::{self, task_with_regions};
use kernelbench::{Found, Hash, Simulated, Tuner, load, region};
use prompts::{Catalogue, Prompts};
use std::{collections::HashMap, sync::Arc};
use warpsmith_agents::crew::Crew;
use warpsmith_agents::event::{End, Event};
use warpsmith_agents::llm::by_hand::{ByHand, Person, Wish};
use warpsmith_agents::llm::remembering::Remembering;
use warpsmith_agents::llm::scripted::{Entry, Scripted};
use warpsmith_agents::llm::{Call, CallId, Llm, Purpose, Reply, Role};
use warpsmith_agents::log::{Log, MemoryLog};
use warpsmith_agents::planner::{BrokeOff, Job, Request, no_limit, transform, work};
use warpsmith_agents::policy::{Decider, Policy};
use warpsmith_agents::trajectory::Trajectory;
use warpsmith_agents::workflow::TuningPlan;

/// A transformation of one call, in the device region, with perhaps a parameter.
fn transformation(name: &str, more: &str) -> (String, String) {
    let text = format!(
        "name = \"{name}\"\nsummary = \"Changes it.\"\nbackends = [\"cpu\"]\n{more}\n[[pass]]\naim = \"Change it.\"\n\
         [[pass.call]]\nregion = \"device\"\ntext = \"Do it.\"\n"
    );
    (format!("{name}.toml"), text)
}

fn prompts() -> Prompts {
    let own = [
        transformation("Shape", ""),
        transformation("Tile", "[parameter.TILE]\nvalues = [4, 1, 2, 3]"),
        transformation("Stage", "needs = [\"TILE\"]\n[parameter.STAGES]\nvalues = [1, 2]"),
        transformation("Slow", "tries = 3"),
        transformation("Roles", "arch = [\"sm_90\"]"),
    ];
    Prompts::embedded().transforming(Catalogue::embedded().with(own).unwrap())
}

fn policy(sequence: &[&str]) -> Policy {
    let sequence = Some(sequence.iter().map(ToString::to_string).collect());
    Policy { sequence, keep: Some(2), ..story::policy("peak") }
}

fn device(directive: &str) -> String {
    format!("```cpp\n// region: device\n// simulate: {directive}\nstatic void part() {{}}\n```\n")
}

fn entry(round: u32, reply: &str) -> Entry {
    Entry::new(Role::Coder, reply).round(round).purpose(Purpose::Transform)
}

/// Shape; Tile, whose second value is no configuration and whose third is slower; Slow, which fails twice; Stage.
fn script() -> Vec<Entry> {
    let host = "```cpp\n// region: device\nstatic void part() {}\n// region: host\nextern \"C\" void twice() {}\n```\n";
    vec![
        entry(1, &device("us=90")),
        entry(2, &device("us={{TILE}}0")),
        entry(3, &device("build-error {{TILE}}")),
        entry(4, host),
        entry(4, host),
        entry(5, &device("us={{TILE}}1")),
        entry(6, &device("us={{TILE}}{{STAGES}}")),
    ]
}

const SEQUENCE: [&str; 4] = ["Shape", "Tile", "Slow", "Stage"];

async fn go_on(llm: Arc<dyn Llm>, log: &MemoryLog, request: Option<Request>) -> Result<Trajectory, BrokeOff> {
    let crew = Crew::spawn(Arc::new(Simulated::new()), llm, Arc::new(prompts())).await;
    let so_far: Trajectory = log.events().into_iter().collect();
    let sequence: &[&str] = if request.is_some() { &[] } else { &SEQUENCE };
    let job = Job {
        task: task_with_regions(),
        policy: policy(sequence),
        so_far,
        log: Box::new(log.clone()),
        limit: no_limit(),
    };
    let result = match request {
        Some(request) => transform(job, vec![request], &crew).await,
        None => work(job, &crew).await,
    };
    crew.stop().await;
    result
}

async fn unbroken() -> (Trajectory, MemoryLog) {
    let log = MemoryLog::default();
    let story = go_on(Arc::new(Scripted::new(script())), &log, None).await.unwrap();
    (story, log)
}

fn request(name: &str) -> Request {
    Request {
        transformation: name.into(),
        from: None,
        say: None,
        tries: None,
        tuning: TuningPlan::default(),
        trial: false,
    }
}

#[tokio::test]
async fn a_sequence_makes_a_checkpoint_of_each_step_and_a_slower_one_is_kept() {
    let (story, _) = unbroken().await;
    let workflow = &story.workflow;
    let names: Vec<&str> = workflow.checkpoints.iter().map(|at| at.name.as_str()).collect();
    assert_eq!(names, ["c0", "c1", "c2", "c3", "c4"]);
    assert_eq!(workflow.path(workflow.head().unwrap()), SEQUENCE);
    let ratio = |at: usize| story.evaluation(&workflow.checkpoints[at].bound).unwrap().passed().unwrap().speedup.ratio;
    assert!(
        ratio(2) > ratio(1) && ratio(3) < ratio(2),
        "Slow is slower than Tile and stays: {} {}",
        ratio(2),
        ratio(3)
    );
    assert_eq!(story.end, Some(End::SequenceEnds));
    assert!(story.certified().is_some());
}

#[tokio::test]
async fn fail_fail_pass_moves_the_head_once_and_the_last_try_sees_how_the_one_before_failed() {
    let model = Arc::new(Scripted::new(script()));
    let log = MemoryLog::default();
    let story = go_on(model.clone(), &log, None).await.unwrap();
    let slow: Vec<_> = story.rounds.iter().filter(|round| (3..=5).contains(&round.number)).collect();
    assert!(slow[0].evaluation.as_ref().unwrap().passed().is_none());
    assert!(
        slow[1].unreadable.as_ref().unwrap().1.contains("it changes the region host, and only device was asked for")
    );
    assert_eq!(story.workflow.checkpoints.iter().filter(|at| at.round >= 3 && at.round <= 5).count(), 1);
    let said = |round: u32| {
        let call = model.asked().into_iter().find(|call| call.id.round == round).unwrap();
        assert_eq!(call.id.part, "1.device");
        call.prompt.turns[0].text.clone()
    };
    assert!(!said(3).contains("# The last try"));
    assert!(said(5).contains("simulate: build-error"), "what was refused came to nothing: the try before is shown");
    assert!(said(4).contains("# The last try") && said(4).contains("simulate: build-error {{TILE}}"), "{}", said(4));
}

#[tokio::test]
async fn the_fastest_bindings_are_kept_and_times_the_new_parameter_are_what_is_tuned_next() {
    let (story, _) = unbroken().await;
    let tile = &story.workflow.checkpoints[2];
    assert_eq!(tile.kept.len(), 2, "of four, the policy keeps two: {:?}", tile.kept);
    assert!(tile.kept.iter().all(|at| ["1", "2"].contains(&at["TILE"].to_string().as_str())), "{:?}", tile.kept);
    let stage = story.rounds.last().unwrap();
    assert_eq!(stage.tried.len(), 4, "two kept, times two stages");
    assert_eq!(stage.checked.len(), 4, "fewer than sixteen: all of them");
    assert!(stage.tried.iter().all(|tried| matches!(tried.found, Found::Ratio(_))));
}

#[tokio::test]
async fn every_other_region_stays_as_it_is_byte_for_byte() {
    let (story, log) = unbroken().await;
    let initial = region::regions(task_with_regions().reference()).unwrap();
    for at in &story.workflow.checkpoints {
        let context = kernelbench::Candidate::of_canonical(&log.fetch(&at.context).unwrap());
        for part in initial.iter().filter(|part| part.region != "device") {
            assert_eq!(context.region(&part.region), Some(part.text.as_str()), "{}", at.name);
        }
        assert_eq!(Hash::of(log.fetch(&at.id).unwrap().as_bytes()), at.id, "named by its content");
    }
}

#[tokio::test]
async fn where_every_try_fails_the_head_stays_and_the_sequence_stops() {
    let mut entries = script();
    entries.truncate(5);
    entries.push(entry(5, &device("wrong {{TILE}}")));
    let log = MemoryLog::default();
    let story = go_on(Arc::new(Scripted::new(entries)), &log, None).await.unwrap();
    assert_eq!((story.workflow.head().unwrap().name.as_str(), story.end), ("c2", Some(End::Stuck)));
    // A hand is lent, and the sequence goes on.
    let lent = [device("us={{TILE}}2"), device("us={{TILE}}{{STAGES}}")].map(|text| Entry::new(Role::Coder, text));
    let model: Arc<Scripted> = Arc::new(Scripted::new(lent));
    let story = go_on(model.clone(), &log, Some(request("Slow"))).await.unwrap();
    assert_eq!((story.workflow.head().unwrap().name.as_str(), story.end), ("c3", None));
    let story = go_on(model, &log, None).await.unwrap();
    assert_eq!(story.workflow.path(story.workflow.head().unwrap()), SEQUENCE);
}

/// A transformation with twenty words to choose from, of which this one is wrong, and its parameters.
fn with_wrong_word(wrong: u32) -> ((String, String), kernelbench::Space) {
    let word = |at: u32| if at == wrong { format!("\"wrong us={at}\"") } else { format!("\"us={at}\"") };
    let words = format!("WORD = [{}]", (1..=20).map(word).collect::<Vec<_>>().join(", "));
    let space = load::parameters(&words.parse().unwrap()).unwrap();
    (transformation("Words", &format!("[parameter]\n{words}")), space)
}

#[tokio::test]
async fn a_wrong_configuration_that_only_tuning_finds_fails_the_step() {
    let log = MemoryLog::default();
    let own = (1..=20).map(with_wrong_word).find(|(_, space)| {
        let drawn = kernelbench::spread(space.configurations().unwrap(), 16, 0, "validation");
        drawn.iter().all(|at| !at["WORD"].to_string().starts_with("wrong"))
    });
    let catalogue = Catalogue::embedded().with([own.unwrap().0]).unwrap();
    let crew = Crew::spawn(
        Arc::new(Simulated::new()),
        Arc::new(Scripted::new((1..=3).map(|round| entry(round, &device("{{WORD}}"))))),
        Arc::new(Prompts::embedded().transforming(catalogue)),
    )
    .await;
    let job = Job {
        task: task_with_regions(),
        policy: policy(&[]),
        so_far: Trajectory::default(),
        log: Box::new(log.clone()),
        limit: no_limit(),
    };
    let story = transform(job, vec![request("Words")], &crew).await.unwrap();
    crew.stop().await;
    assert_eq!(story.workflow.checkpoints.len(), 1, "c0 alone");
    let last = story.rounds.last().unwrap();
    assert!(last.evaluation.as_ref().unwrap().passed().is_none());
    assert!(last.checked.len() == 16 && last.checked.iter().all(|(_, failure)| failure.is_none()));
    assert!(last.tried.iter().any(|tried| matches!(tried.found, Found::Failed(_))), "{last:?}");
}

#[tokio::test]
async fn an_invalid_configuration_is_pruned_and_one_that_has_no_other_fails() {
    for (words, kept) in [("[\"invalid\", \"us=10\", \"us=20\"]", 2), ("[\"invalid us=1\", \"invalid us=2\"]", 0)] {
        let own = [transformation("Words", &format!("tries = 1\n[parameter]\nWORD = {words}"))];
        let prompts = Prompts::embedded().transforming(Catalogue::embedded().with(own).unwrap());
        let model = Arc::new(Scripted::new([entry(1, &device("{{WORD}}"))]));
        let crew = Crew::spawn(Arc::new(Simulated::new()), model, Arc::new(prompts)).await;
        let log = Box::new(MemoryLog::default());
        let job = Job {
            task: task_with_regions(),
            policy: policy(&[]),
            so_far: Trajectory::default(),
            log,
            limit: no_limit(),
        };
        let story = transform(job, vec![request("Words")], &crew).await.unwrap();
        crew.stop().await;
        let head = story.workflow.head().unwrap();
        assert_eq!((head.name == "c1", head.kept.len() == kept), (kept > 0, kept > 0), "{words}: {story:#?}");
    }
}

#[tokio::test]
async fn a_transformation_that_does_not_fit_is_refused_before_anything_is_asked() {
    let log = MemoryLog::default();
    let model = Arc::new(Scripted::new([]));
    for (name, why) in [
        ("Stage", "Stage builds on the tuning parameter TILE, which the context does not have (it has none)"),
        ("Split-K", "Split-K is for cuda, hip, hlsl; this context is for cpu"),
        ("Roles", "Roles is for sm_90; this machine is simulated"),
        ("Tyle", "there is no transformation \"Tyle\"; the nearest are Tile"),
    ] {
        let refused = go_on(model.clone(), &log, Some(request(name))).await.unwrap_err();
        assert!(refused.to_string().starts_with(why), "{refused}");
    }
    assert_eq!(model.calls(), 0);
    let ordered = log.events().iter().any(|event| matches!(event, Event::Ordered(_) | Event::BrokeOff { .. }));
    assert!(!ordered, "nothing is noted of what was refused");
}

fn answered(log: &MemoryLog) -> HashMap<CallId, (Hash, Reply)> {
    let reply = |text| Reply { text, model: "scripted".into(), usage: None, usd: None, latency_ms: 0, requests: 1 };
    let answered = |event| match event {
        Event::Answered { call, prompt, reply: text, .. } => Some((call, (prompt, reply(log.fetch(&text).unwrap())))),
        _ => None,
    };
    log.events().into_iter().filter_map(answered).collect()
}

/// What happened, without the places where it was broken off, and without the hash over all that stands before a
/// certificate, which has these in it.
fn essence(log: &MemoryLog) -> Vec<Event> {
    let lasting = |event| match event {
        Event::Asked { .. } | Event::Misread { .. } | Event::Spent { .. } => None,
        Event::Certified { certificate, .. } => Some(Event::Certified { certificate, evidence: None }),
        other => Some(other),
    };
    log.events().into_iter().filter_map(lasting).collect()
}

#[tokio::test]
async fn killed_after_any_event_a_workflow_goes_on_to_the_same_end_and_repeats_nothing_finished() {
    let (_, whole) = unbroken().await;
    for kept in 0..whole.events().len() {
        let log = whole.killed_after(kept);
        let known = answered(&log);
        let model = Arc::new(Scripted::new(script().into_iter().skip(known.len())));
        let asked_before = known.len();
        let llm = Arc::new(Remembering::new(model.clone(), known));
        go_on(llm, &log, None).await.unwrap();
        // Each check, each timing and each answer stands there once, in the same place.
        assert_eq!(essence(&log), essence(&whole), "killed after {kept}");
        assert_eq!(asked_before + model.calls(), script().len(), "killed after {kept}");
    }
}

#[tokio::test]
async fn a_transformation_that_was_broken_off_anywhere_is_dropped_where_a_person_goes_back() {
    let by_hand = async |replies: Vec<Entry>, log: &MemoryLog, request: Request| {
        let crew = Crew::spawn(Arc::new(Simulated::new()), Arc::new(Scripted::new(replies)), Arc::new(prompts())).await;
        let so_far: Trajectory = log.events().into_iter().collect();
        let job = Job {
            task: task_with_regions(),
            policy: policy(&[]),
            so_far,
            log: Box::new(log.clone()),
            limit: no_limit(),
        };
        let story = transform(job, vec![request], &crew).await.unwrap();
        crew.stop().await;
        story
    };
    let tile = || device("us={{TILE}}");
    // With one try, the last event before the checkpoint leaves no try open.
    for tries in [None, Some(1)] {
        let whole = MemoryLog::default();
        by_hand(vec![entry(1, &tile())], &whole, Request { tries, ..request("Tile") }).await;
        let at = |kind: fn(&Event) -> bool| whole.events().iter().rposition(kind).unwrap();
        let (ordered, made) =
            (at(|event| matches!(event, Event::Ordered(_))), at(|event| matches!(event, Event::Checkpointed(_))));
        let initial = whole.events().iter().find_map(|event| match event {
            Event::Checkpointed(checkpoint) => Some(checkpoint.id.clone()),
            _ => None,
        });
        let initial = initial.unwrap();
        assert!(made > ordered + 5, "it is broken off at several places");
        for kept in ordered + 1..=made {
            let mut log = whole.killed_after(kept);
            let broken: Trajectory = log.events().into_iter().collect();
            let moved = |drops| Event::Restored { branch: "main".into(), checkpoint: initial.clone(), drops };
            // As before records said so: it is finished first.
            let finishes: Trajectory = log.events().into_iter().chain([moved(false)]).collect();
            assert!(broken.under_way().is_some() && finishes.under_way().is_some(), "after {kept}");
            log.note(&moved(true)).unwrap();
            let story: Trajectory = log.events().into_iter().collect();
            assert!(story.open().is_none() && story.under_way().is_none(), "after {kept}");
            let round = story.rounds.len() as u32;
            let story = by_hand(vec![entry(round, &device("us=70"))], &log, request("Shape")).await;
            let made: Vec<_> = story.workflow.checkpoints.iter().map(|at| at.transformation.as_deref()).collect();
            assert_eq!(made, [None, Some("Shape")], "after {kept}");
            // It was not tried on the initial context: a person may ask for it again.
            let story = by_hand(vec![entry(round + 1, &tile())], &log, request("Tile")).await;
            assert_eq!(story.workflow.path(story.workflow.head().unwrap()), ["Shape", "Tile"], "after {kept}");
        }
    }
}

#[tokio::test]
async fn a_checkpoint_is_tuned_again_over_its_whole_space_as_the_person_says_and_the_best_are_timed_again() {
    let (_, log) = unbroken().await;
    let tuning = TuningPlan { tuner: Some(Tuner::Tpe), tests: Some(5), keep: Some(3), seed: None };
    let crew = Crew::spawn(Arc::new(Simulated::new()), Arc::new(Scripted::new([])), Arc::new(prompts())).await;
    let so_far: Trajectory = log.events().into_iter().collect();
    let from = Some(so_far.workflow.named("c4").unwrap().id.clone());
    let policy = Policy { retime: Some(2), ..policy(&[]) };
    let job = Job { task: task_with_regions(), policy, so_far, log: Box::new(log.clone()), limit: no_limit() };
    let story = transform(job, vec![Request::tune(from, tuning)], &crew).await.unwrap();
    crew.stop().await;
    let (head, last) = (story.workflow.head().unwrap(), story.rounds.last().unwrap());
    assert_eq!((head.name.as_str(), head.transformation.as_deref(), head.kept.len()), ("c5", Some("tune"), 3));
    assert_eq!((last.tried.len(), last.retimed.len()), (5, 2), "five of four tiles times two stages");
    assert!(last.retimed.iter().any(|tried| tried.bindings == head.kept[0]));
    let tiles: std::collections::BTreeSet<_> = last.tried.iter().map(|tried| tried.bindings["TILE"].clone()).collect();
    assert!(tiles.len() > 2, "not those alone that were kept: {tiles:?}");
}

/// A person who says the first transformation otherwise, finishes its reply by hand, and leaves the second out.
struct Hand(std::sync::Mutex<Vec<Wish>>);

impl Person for Hand {
    fn wish(&self, _: &Call) -> Result<Wish, String> {
        Ok(self.0.lock().unwrap().pop().unwrap_or(Wish::Yes))
    }

    fn edited(&self, _: &Call, text: &str) -> Result<String, String> {
        Ok(text.replace("us=90", "us=80"))
    }
}

#[tokio::test]
async fn a_person_rephrases_finishes_and_leaves_out_and_the_sequence_goes_on_behind_what_was_left_out() {
    let wishes = vec![Wish::Skip, Wish::Edit, Wish::Rephrase("keep it short".into())];
    let replies = [device("us=90"), device("us=70")].map(|text| Entry::new(Role::Coder, text));
    let model = Arc::new(Scripted::new(replies));
    let llm = Arc::new(ByHand::new(model.clone(), Arc::new(Hand(wishes.into())), true, false));
    let log = MemoryLog::default();
    let crew = Crew::spawn(Arc::new(Simulated::new()), llm, Arc::new(prompts())).await;
    let (policy, log_) = (policy(&["Shape", "Tile", "Slow"]), Box::new(log.clone()));
    let job = Job { task: task_with_regions(), policy, so_far: Trajectory::default(), log: log_, limit: no_limit() };
    let story = work(job, &crew).await.unwrap();
    crew.stop().await;
    let workflow = &story.workflow;
    assert_eq!((workflow.path(workflow.head().unwrap()), story.end), (vec!["Shape", "Slow"], Some(End::SequenceEnds)));
    assert!(model.asked()[0].prompt.turns[0].text.contains("keep it short"));
    let text = log.fetch(&workflow.checkpoints[1].context).unwrap();
    assert!(text.contains("us=80"), "as the person left it: {text}");
    let own = story.answers().next().unwrap();
    assert!(own.model.ends_with(", finished by hand") && log.fetch(&own.reply).unwrap().contains("us=80"));
    assert_eq!(story.rounds.iter().filter(|round| round.steered.is_some()).count(), 2, "no try was lost unseen");
}

/// A model plans: what it names is applied, what fails in every try is told to it and not offered again, and it may stop.
fn planned() -> Vec<Entry> {
    let plan = |round: u32, step: &str| {
        let reply = format!("{{\"step\": \"{step}\", \"why\": \"It may gain.\"}}");
        Entry::new(Role::Planner, &reply).round(round).purpose(Purpose::Plan)
    };
    vec![
        entry(1, &device("us=90")),
        plan(2, "Stage"),
        plan(2, "Tile"),
        entry(2, &device("us={{TILE}}0")),
        plan(3, "Slow"),
        entry(3, &device("build-error {{TILE}}")),
        entry(4, &device("build-error {{TILE}}")),
        entry(5, &device("wrong {{TILE}}")),
        plan(6, "Stage"),
        entry(6, &device("us={{TILE}}{{STAGES}}")),
        plan(7, "stop"),
    ]
}

async fn plan_on(llm: Arc<dyn Llm>, log: &MemoryLog, rounds: u32) -> Trajectory {
    let crew = Crew::spawn(Arc::new(Simulated::new()), llm, Arc::new(prompts())).await;
    let so_far: Trajectory = log.events().into_iter().collect();
    let policy = Policy { planner: Decider::Model, rounds, ..policy(&["Shape"]) };
    let job = Job { task: task_with_regions(), policy, so_far, log: Box::new(log.clone()), limit: no_limit() };
    let story = work(job, &crew).await.unwrap();
    crew.stop().await;
    story
}

#[tokio::test]
async fn a_model_plans_what_comes_after_the_sequence_of_what_can_be_applied_there() {
    let (model, log) = (Arc::new(Scripted::new(planned())), MemoryLog::default());
    let story = plan_on(model.clone(), &log, 10).await;
    let workflow = &story.workflow;
    assert_eq!(workflow.path(workflow.head().unwrap()), ["Shape", "Tile", "Stage"]);
    assert_eq!(story.end, Some(End::Stopped));
    assert!(story.certified().is_some());
    let said = |round: u32| {
        let mut asked = model.asked().into_iter();
        let call = asked.find(|call| call.id.round == round && call.id.purpose == Purpose::Plan).unwrap();
        call.prompt.turns[0].text.clone()
    };
    let (first, last) = (said(2), said(7));
    assert!(first.contains("- Tile: Changes it. Adds TILE.") && first.contains("- Shape of c0: "), "{first}");
    assert!(!first.contains("- Stage: ") && !first.contains("- Shape: Changes it."), "{first}");
    assert!(said(6).contains("- Stage: Changes it.") && !said(6).contains("- Slow: Changes it."), "{}", said(6));
    assert!(said(6).contains("- Slow of c2: failed: "), "{}", said(6));
    assert!(last.contains("- Slow: Changes it."), "it did not fail on this checkpoint: {last}");
    assert!(last.contains("# Tuning parameters") && last.contains("`{{STAGES}}`: 1, 2"), "{last}");
}

#[tokio::test]
async fn a_step_of_the_sequence_that_fails_is_the_models_to_choose_again_and_is_not_forced() {
    let plan = |round: u32, step: &str| {
        let reply = format!("{{\"step\": \"{step}\", \"why\": \"It may gain.\"}}");
        Entry::new(Role::Planner, &reply).round(round).purpose(Purpose::Plan)
    };
    let tries = |from: u32, many: u32| (from..from + many).map(|round| entry(round, &device("build-error")));
    let mut script: Vec<Entry> = tries(1, 3).collect();
    script.push(plan(4, "Slow"));
    script.extend(tries(4, 3));
    script.extend([plan(7, "Tile"), entry(7, &device("us={{TILE}}0"))]);
    script.extend([plan(8, "Shape"), entry(8, &device("us={{TILE}}1")), plan(9, "stop")]);
    let (model, log) = (Arc::new(Scripted::new(script)), MemoryLog::default());
    let story = plan_on(model.clone(), &log, 20).await;
    let workflow = &story.workflow;
    assert_eq!(workflow.path(workflow.head().unwrap()), ["Tile", "Shape"]);
    let ordered: Vec<&str> = workflow.orders.iter().map(|at| at.order.transformation.as_str()).collect();
    assert_eq!((ordered, story.end), (vec!["Shape", "Slow", "Tile", "Shape"], Some(End::Stopped)));
}

/// A plan that ended goes on with more rounds; the model that is asked then, with these replies.
async fn given_more(log: &MemoryLog, rounds: u32, replies: Vec<Entry>) -> (Trajectory, Arc<Scripted>) {
    log.clone().note(&Event::Extended { rounds: Some(rounds) }).unwrap();
    let model = Arc::new(Scripted::new(replies));
    let story = plan_on(Arc::new(Remembering::new(model.clone(), answered(log))), log, rounds).await;
    (story, model)
}

#[tokio::test]
async fn a_plan_that_was_stopped_goes_on_when_it_is_given_more_rounds() {
    let (log, script) = (MemoryLog::default(), planned());
    plan_on(Arc::new(Scripted::new(script)), &log, 10).await;
    let plan = Entry::new(Role::Planner, "{\"step\": \"Slow\", \"why\": \"Now.\"}").round(7).purpose(Purpose::Plan);
    let (story, model) = given_more(&log, 7, vec![plan, entry(7, &device("us={{TILE}}{{STAGES}}"))]).await;
    assert_eq!(story.end, Some(End::OutOfRounds));
    assert_eq!(story.workflow.path(story.workflow.head().unwrap()), ["Shape", "Tile", "Stage", "Slow"]);
    assert!(!model.asked()[0].prompt.turns[0].text.contains("- stop: "));
}

#[tokio::test]
async fn what_could_not_be_read_after_a_stop_was_overruled_is_asked_anew_when_it_is_overruled_again() {
    let (log, script) = (MemoryLog::default(), planned());
    plan_on(Arc::new(Scripted::new(script)), &log, 10).await;
    let plan = |reply: &str| Entry::new(Role::Planner, reply).round(7).purpose(Purpose::Plan);
    let (story, model) = given_more(&log, 7, vec![plan("no plan"), plan("none again")]).await;
    assert_eq!((story.end, model.calls()), (Some(End::Stopped), 2));
    assert!(model.asked().iter().all(|call| call.id.part == "c3-anyway"));
    let replies = vec![plan(r#"{"step": "Slow", "why": "Now."}"#), entry(7, &device("us={{TILE}}{{STAGES}}"))];
    let (story, model) = given_more(&log, 7, replies).await;
    assert_eq!((story.end, model.asked()[0].id.part.as_str()), (Some(End::OutOfRounds), "c3-anyway-2"));
}

#[tokio::test]
async fn a_plan_ends_with_the_rounds_and_goes_on_from_any_event_with_nothing_asked_twice() {
    let (model, log) = (Arc::new(Scripted::new(planned())), MemoryLog::default());
    assert_eq!(plan_on(model, &log, 4).await.end, Some(End::OutOfRounds), "what was begun is finished");

    let whole = MemoryLog::default();
    plan_on(Arc::new(Scripted::new(planned())), &whole, 10).await;
    for kept in 0..whole.events().len() {
        let log = whole.killed_after(kept);
        let known = answered(&log);
        let model = Arc::new(Scripted::new(planned().into_iter().skip(known.len())));
        let asked_before = known.len();
        plan_on(Arc::new(Remembering::new(model.clone(), known)), &log, 10).await;
        assert_eq!(essence(&log), essence(&whole), "killed after {kept}");
        assert_eq!(asked_before + model.calls(), planned().len(), "killed after {kept}");
    }
}

/// PEAK's Table 4. On HIP the paper's Tensor-Core is a transformation of its own (§4.2).
const TABLE_4: [(&str, &str); 5] = [
    (
        "peak-a6000-fp32",
        "Refactor → TB-Tiling → Thread-Tiling → Thread-Cache → Transpose → Thread-Chunk → Split-K → Pipelining → \
         Register-Staging → Offset → Block-Swizzle",
    ),
    (
        "peak-a6000-fp16",
        "Refactor → TB-Tiling → Warp-Tiling → Tensor-Core → Tensor-Tiling → Pipelining → Register-Staging → Offset → \
         Block-Swizzle",
    ),
    ("peak-mi200-fp32", "Refactor → TB-Tiling → Warp-Tiling → Tensor-Core → Tensor-Tiling"),
    (
        "peak-mi200-fp16",
        "Refactor → TB-Tiling → Warp-Tiling → Tensor-Core → Tensor-Tiling → Offset → Block-Swizzle → Pipelining",
    ),
    ("peak-x1-85", "Refactor → TB-Tiling → Thread-Tiling"),
];

#[test]
fn the_sequences_are_those_of_table_4_and_each_step_is_for_its_backend_and_finds_what_it_builds_on() {
    let catalogue = Catalogue::embedded();
    for (name, sequence) in TABLE_4 {
        let policy = Policy::parse(Policy::embedded(name).unwrap()).unwrap();
        let steps = policy.sequence.unwrap();
        let hip = name.contains("mi200");
        let named = steps.iter().map(|step| if hip { step.trim_end_matches("-HIP") } else { step });
        assert_eq!(named.collect::<Vec<_>>(), sequence.split(" → ").collect::<Vec<_>>(), "{name}");
        let backend = if hip {
            "hip"
        } else if name.contains("x1") {
            "hlsl"
        } else {
            "cuda"
        };
        let mut tuning = kernelbench::Space::default();
        for step in &steps {
            let transformation = &catalogue.named(step).unwrap().transformation;
            transformation.fits(backend, &tuning).unwrap();
            tuning = transformation.space(&tuning).unwrap();
        }
        assert_eq!((policy.samples, policy.keep), (Some(16), Some(128)), "{name}");
    }
}

#[test]
fn the_sequences_for_a_hopper_fit_from_step_to_step_and_the_tile_takes_the_place_of_the_block() {
    let catalogue = Catalogue::embedded();
    for (name, has_blocks) in [("peak-h200-fp16", false), ("peak-h200-bf16x6", false), ("peak-h200-fp32", true)] {
        let policy = Policy::parse(Policy::embedded(name).unwrap()).unwrap();
        let blocks = "BLOCK_X = [16, 32]\nBLOCK_Y = { values = [16, 32], constraint = \"BLOCK_X * BLOCK_Y <= 512\" }";
        let mut tuning = kernelbench::load::parameters(&blocks.parse().unwrap()).unwrap();
        for step in policy.sequence.as_ref().unwrap() {
            let transformation = &catalogue.named(step).unwrap().transformation;
            transformation.fits("cuda", &tuning).unwrap();
            tuning = transformation.space(&tuning).unwrap();
            assert!(tuning.configurations().is_ok_and(|all| !all.is_empty()), "{name}: {step}");
        }
        assert_eq!(tuning.grid.contains_key("BLOCK_X"), has_blocks, "{name}");
        assert_eq!(tuning.constraints.iter().any(|text| text.contains("BLOCK")), has_blocks, "{name}");
    }
}
