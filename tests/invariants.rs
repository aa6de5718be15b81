//! Does the event stream keep what the protocol promises, whatever the policy?
//!
//! Each test is one promise, held against scripted runs of every policy on the simulated machine.
use agents::{
    crew::Crew,
    event::{Event, Step},
    llm::{Answer, AskError, Call, Llm, Purpose, Reply, Role, Usage},
    log::{Log, MemoryLog},
    planner::{Job, no_limit, work},
    policy::{Decider, Policy, Profiling, Shapes, current},
    trajectory::Trajectory,
};
use kernelbench::{Hash, Simulated, Task, load};
use prompts::{Prompt, Prompts};
use std::{
    collections::HashSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// A model that knows its part: each round's candidate does what the script says, every other reply is in form.
struct Player {
    does: Vec<&'static str>,
    /// Panics once, when this round's Coder is asked.
    panics_in: Option<u32>,
    panicked: AtomicBool,
}

impl Player {
    fn new(does: &[&'static str]) -> Self {
        Self { does: does.to_vec(), panics_in: None, panicked: AtomicBool::new(false) }
    }

    fn reply(&self, call: &Call) -> String {
        let round = call.id.round;
        let does = self.does.get(round as usize - usize::from(round > 0)).copied().unwrap_or("us=99");
        match call.id.purpose {
            Purpose::Diagnose => {
                r#"{"critical_issue": "the tail", "why_it_matters": "it is wrong", "minimal_fix_hint": "mend it"}"#
                    .into()
            }
            Purpose::Advise => {
                r#"{"bottleneck": "too much work", "optimization method": "less", "modification plan": "do less"}"#
                    .into()
            }
            Purpose::Approaches => r#"{"approaches": ["One pass.", "Two passes.", "A table."]}"#.into(),
            Purpose::Suggest => r#"{"suggestions": ["Do less work.", "Keep sums in registers."]}"#.into(),
            Purpose::Reflect => "```markdown\n# Notes\n- Do less work.\n```".into(),
            Purpose::Plan => r#"{"step": "current", "why": "it is newest"}"#.into(),
            Purpose::Shapes => r#"{"shapes": [{"tokens": 2, "hidden": 64}, {"tokens": 3, "hidden": 65}]}"#.into(),
            _ => format!(
                "```cpp\n// candidate of round {round}, simulate: {does} run_ms=1\nvoid silu_and_mul() {{}}\n```"
            ),
        }
    }
}

impl Llm for Player {
    fn describe(&self) -> String {
        "a player".into()
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        if call.id.role == Role::Coder
            && self.panics_in == Some(call.id.round)
            && !self.panicked.swap(true, Ordering::SeqCst)
        {
            panic!("this actor was told to fail");
        }
        let usage = Some(Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() });
        let reply = Reply {
            text: self.reply(&call),
            model: "player".into(),
            usage,
            usd: Some(0.01),
            latency_ms: 1,
            requests: 1,
        };
        Box::pin(std::future::ready(Ok::<_, AskError>(reply)))
    }
}

/// A wrong one, one that does not build, and some that are right.
const MIXED: [&str; 6] = ["us=90", "wrong", "us=70", "build-error", "us=80", "us=40"];

/// A run that is over: what was noted, what was said, and what it came to.
struct Ran {
    policy: Policy,
    log: MemoryLog,
    events: Vec<Event>,
    story: Trajectory,
}

impl Ran {
    fn text(&self, hash: &Hash) -> String {
        self.log.fetch(hash).unwrap()
    }

    /// Each answered question with its prompt as one text.
    fn prompts(&self) -> Vec<(agents::llm::CallId, String)> {
        let answered = self.events.iter().filter_map(|event| match event {
            Event::Answered { call, prompt, .. } => Some((call.clone(), prompt.clone())),
            _ => None,
        });
        answered
            .map(|(call, hash)| {
                let prompt: Prompt = serde_json::from_str(&self.text(&hash)).unwrap();
                (call, prompt.turns.iter().map(|turn| turn.text.as_str()).collect())
            })
            .collect()
    }
}

fn task() -> Task {
    load::task(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/silu_and_mul")).unwrap()
}

fn policy(name: &str) -> Policy {
    let mut policy = Policy::parse(Policy::embedded(name).unwrap()).unwrap();
    (policy.rounds, policy.timing.repetitions) = (policy.rounds.min(6), 5);
    policy
}

async fn played(policy: Policy, player: Player, workshop: Arc<Simulated>) -> Ran {
    let crew = Crew::spawn(workshop, Arc::new(player), Arc::new(Prompts::embedded())).await;
    let log = MemoryLog::default();
    let job = Job {
        task: task(),
        policy: policy.clone(),
        so_far: Trajectory::default(),
        log: Box::new(log.clone()),
        limit: no_limit(),
    };
    let story = work(job, &crew).await.unwrap();
    crew.stop().await;
    let events = log.events();
    assert!(!events.iter().any(|event| matches!(event, Event::Misread { .. } | Event::Proposed { taken: false, .. })));
    Ran { policy, log, events, story }
}

/// Every policy that comes with the program, and one with a model as the Planner.
async fn every_policy() -> Vec<Ran> {
    let mut all = vec![];
    // A sequence of transformations needs a task with regions: tests/peak.rs.
    for name in Policy::names().filter(|name| policy(name).sequence.is_none() && policy(name).search.is_none()) {
        all.push(played(policy(name), Player::new(&MIXED), Arc::default()).await);
    }
    let planned = Policy { planner: Decider::Model, shapes: Shapes::Task, ..policy("cudaforge") };
    all.push(played(planned, Player::new(&MIXED), Arc::default()).await);
    all
}

/// The events of each round: from its beginning to the next.
fn rounds(events: &[Event]) -> Vec<(Step, Vec<&Event>)> {
    let mut rounds: Vec<(Step, Vec<&Event>)> = vec![];
    for event in events {
        match (event, rounds.last_mut()) {
            (Event::Began { step, .. }, _) => rounds.push((step.clone(), vec![])),
            (_, Some((_, open))) => open.push(event),
            _ => {}
        }
    }
    rounds
}

fn is_advice(event: &Event) -> bool {
    matches!(event, Event::Judged { .. } | Event::Suggested { .. })
}

#[tokio::test]
async fn a_round_has_at_most_one_piece_of_advice() {
    for ran in every_policy().await {
        for (step, events) in rounds(&ran.events) {
            let advice = events.iter().filter(|event| is_advice(event)).count();
            let wanted = usize::from(matches!(step, Step::Fix { .. } | Step::Optimize { .. } | Step::Suggest { .. }));
            assert_eq!(advice, wanted, "{} {step:?}", ran.policy.name);
        }
    }
}

#[tokio::test]
async fn advice_is_on_the_base_and_the_coder_is_shown_the_base() {
    for ran in every_policy().await {
        for (step, events) in rounds(&ran.events) {
            let Some(base) = step.base() else { continue };
            // What passed is profiled in its own round where it is weighed.
            let mut profiled = base;
            for event in events {
                match event {
                    Event::Judged { candidate, .. } | Event::Suggested { candidate, .. } => {
                        assert_eq!(candidate, base, "{}", ran.policy.name);
                    }
                    Event::Evaluated { candidate, .. } => profiled = candidate,
                    Event::Profiled { candidate, .. } => assert_eq!(candidate, profiled, "{}", ran.policy.name),
                    Event::Answered { call, prompt, .. } if call.role == Role::Coder => {
                        let prompt: Prompt = serde_json::from_str(&ran.text(prompt)).unwrap();
                        let last = &prompt.turns.last().unwrap().text;
                        assert!(last.contains(ran.text(base).trim()), "{} {call}: {last}", ran.policy.name);
                    }
                    _ => {}
                }
            }
        }
    }
}

#[tokio::test]
async fn the_coder_sees_no_metric_and_no_time_unless_it_works_alone() {
    for ran in every_policy().await {
        let numbers = ["instructions per element", "L1 misses", "Time of one call", "95 % interval"];
        let alone = ["self-refine", "single-agent", "gepa"].contains(&ran.policy.name.as_str());
        let told = ran.prompts().into_iter().filter(|(call, _)| call.role == Role::Coder);
        let seen = told.filter(|(_, text)| numbers.iter().any(|number| text.contains(number))).count();
        assert_eq!(seen > 0, alone, "{}: {seen} prompts of the Coder hold numbers", ran.policy.name);
    }
}

#[tokio::test]
async fn only_what_passed_is_profiled() {
    for ran in every_policy().await {
        let mut passed = HashSet::new();
        for event in &ran.events {
            match event {
                Event::Evaluated { candidate, evaluation } if evaluation.passed().is_some() => {
                    passed.insert(candidate.clone());
                }
                Event::Profiled { candidate, profile: Ok(_) } => {
                    assert!(passed.contains(candidate), "{}", ran.policy.name);
                }
                Event::Profiled { candidate, profile: Err(_) } => {
                    assert!(
                        !passed.contains(candidate) && ran.policy.profile == Profiling::Always,
                        "{}",
                        ran.policy.name
                    );
                }
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn the_shapes_are_frozen_once_and_before_anything_is_examined() {
    for ran in every_policy().await {
        let frozen: Vec<_> =
            ran.events.iter().enumerate().filter(|(_, e)| matches!(e, Event::SuiteFrozen { .. })).collect();
        let examined = ran.events.iter().position(|e| matches!(e, Event::Prepared { .. } | Event::Evaluated { .. }));
        assert_eq!(frozen.len(), 1, "{}", ran.policy.name);
        assert!(frozen[0].0 < examined.unwrap(), "{}", ran.policy.name);
    }
}

#[tokio::test]
async fn the_final_shapes_are_used_after_the_last_round_and_shown_to_nobody() {
    let hidden: Vec<String> = task().final_cases.iter().map(|case| case.name.clone()).collect();
    assert!(!hidden.is_empty());
    for ran in every_policy().await {
        let last_round =
            ran.events.iter().rposition(|e| matches!(e, Event::Evaluated { .. } | Event::Unreadable { .. }));
        let certified = ran.events.iter().position(|e| matches!(e, Event::Certified { .. }));
        assert!(certified.unwrap() > last_round.unwrap(), "{}", ran.policy.name);
        let suite = ran.story.suite.as_ref().unwrap();
        assert!(suite.cases.iter().all(|case| !hidden.contains(&case.name)), "{}", ran.policy.name);
        for (call, text) in ran.prompts() {
            assert!(hidden.iter().all(|name| !text.contains(name)), "{} {call}", ran.policy.name);
        }
    }
}

#[tokio::test]
async fn the_best_changes_only_to_a_correct_and_faster_candidate() {
    for ran in every_policy().await {
        let mut story = Trajectory::default();
        let mut best: Option<agents::trajectory::Best> = None;
        for event in ran.events {
            story.apply(event);
            let now = story.best();
            if now != best {
                let now = now.clone().unwrap();
                assert!(story.evaluation(&now.candidate).unwrap().passed().is_some());
                assert!(best.is_none_or(|before| now.speedup.ratio > before.speedup.ratio), "{}", ran.policy.name);
            }
            best = now;
        }
        assert!(best.is_some(), "{}", ran.policy.name);
    }
}

#[tokio::test]
async fn every_answer_was_asked_for_has_its_usage_and_belongs_to_its_round() {
    for ran in every_policy().await {
        let (mut asked, mut open) = (HashSet::new(), 0);
        for event in &ran.events {
            match event {
                Event::Began { round, .. } => open = *round,
                Event::Asked { call } => assert!(asked.insert(call.clone()), "{} {call} twice", ran.policy.name),
                Event::Answered { call, usage, .. } => {
                    assert!(asked.contains(call) && usage.is_some(), "{} {call}", ran.policy.name);
                    // What the next step is to be is asked before its round begins.
                    let belongs = call.round == open || (call.purpose == Purpose::Plan && call.round == open + 1);
                    assert!(belongs, "{} {call} in round {open}", ran.policy.name);
                }
                _ => {}
            }
        }
        assert_eq!(asked.len(), ran.story.answers().count(), "{}", ran.policy.name);
    }
}

#[tokio::test]
async fn two_tasks_on_one_device_never_run_at_the_same_time() {
    let workshop = Arc::new(Simulated::new());
    let crew = Crew::spawn(workshop.clone(), Arc::new(Player::new(&MIXED)), Arc::new(Prompts::embedded())).await;
    let job = || Job {
        task: task(),
        policy: policy("cudaforge"),
        so_far: Trajectory::default(),
        log: Box::new(MemoryLog::default()),
        limit: no_limit(),
    };
    let (one, two) = tokio::join!(work(job(), &crew), work(job(), &crew));
    crew.stop().await;
    assert!(one.unwrap().end.is_some() && two.unwrap().end.is_some());
    assert_eq!(workshop.most_running(), 1);
}

#[tokio::test]
async fn the_record_alone_gives_the_same_heads() {
    for ran in every_policy().await {
        let again: Trajectory = ran.events.iter().cloned().collect();
        assert_eq!(again, ran.story, "{}", ran.policy.name);
        assert_eq!(again.best(), ran.story.best());
        assert_eq!(current(&again, &ran.policy), current(&ran.story, &ran.policy));
    }
}

#[tokio::test]
async fn a_role_that_a_policy_has_dropped_is_asked_nothing() {
    for ran in every_policy().await {
        let asked = |role| ran.events.iter().any(|event| matches!(event, Event::Asked { call } if call.role == role));
        let judged = ["cudaforge", "correction-only", "optimization-only", "accept-revert", "hawkeye", "warpsmith"]
            .contains(&ran.policy.name.as_str());
        assert_eq!(asked(Role::Judge), judged, "{}", ran.policy.name);
        assert_eq!(
            asked(Role::Planner),
            ran.policy.name == "astra"
                || ran.policy.planner == Decider::Model
                || ran.policy.approaches
                || ran.policy.reflect.is_some(),
            "{}",
            ran.policy.name
        );
        assert_eq!(asked(Role::Tester), ran.policy.shapes == Shapes::Model, "{}", ran.policy.name);
        let profiled = ran.events.iter().any(|event| matches!(event, Event::Profiled { .. }));
        assert_eq!(profiled, ran.policy.profile != Profiling::Never, "{}", ran.policy.name);
    }
}

#[tokio::test]
async fn an_actor_that_fails_is_made_anew_and_no_round_is_lost() {
    let calm = played(policy("cudaforge"), Player::new(&MIXED), Arc::default()).await;
    let player = Player { panics_in: Some(3), ..Player::new(&MIXED) };
    let shaken = played(policy("cudaforge"), player, Arc::default()).await;
    let wrote = |ran: &Ran| ran.story.rounds.iter().map(|round| round.candidate.clone()).collect::<Vec<_>>();
    assert_eq!(wrote(&shaken), wrote(&calm));
    assert_eq!(shaken.story.end, calm.story.end);
}
