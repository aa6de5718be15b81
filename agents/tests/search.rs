//! Searches over generated operators, on scripted replies and a simulated workshop.
use crate::story;

use kernelbench::{Operator, Parameter, Primitives, Simulated, Space};
use prompts::Prompts;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use warpsmith_agents::crew::Crew;
use warpsmith_agents::event::{End, Event};
use warpsmith_agents::llm::remembering::Remembering;
use warpsmith_agents::llm::scripted::{Entry, Scripted};
use warpsmith_agents::llm::{Answer, Call, CallId, Llm, Purpose, Reply, Role};
use warpsmith_agents::log::{Log, MemoryLog};
use warpsmith_agents::planner::{BrokeOff, Job, no_limit, work};
use warpsmith_agents::policy::Policy;
use warpsmith_agents::search::{Mode, Reached, Search};
use warpsmith_agents::trajectory::Trajectory;

/// Faster the larger A and B are: the landscape has one summit, at A=9, B=9.
const SCRIPT: &str = "COMPUTE:\n# block: load\nvmovups ymm0, [rsi]\nvmovups ymm1, [rsi+32]\n# end\nret\n";
const SKETCH: &str =
    "// simulate: us=1{{A}}{{B}}\nextern \"C\" void COMPUTE();\nextern \"C\" void twice() { COMPUTE(); }\n";

/// Values in an order in which the first is slow and the fastest is far: 9 comes to 100 and some microseconds, 1 to 199.
fn operator() -> Operator {
    let numbers = |values: &[i64]| values.iter().map(|n| Parameter::Number(*n)).collect();
    let grid =
        [("A".to_owned(), numbers(&[9, 8, 7, 6, 5, 4, 3, 2, 1, 0])), ("B".to_owned(), numbers(&[9, 5, 0]))].into();
    Operator {
        sketch: SKETCH.into(),
        tuning: Space { grid, constraints: vec!["A + B < 19".into()] },
        primitives: Primitives::Script(SCRIPT.into()),
    }
}

fn policy(mode: Mode, evaluations: usize, open: usize, operator: Option<Operator>) -> Policy {
    let search = Search { mode, evaluations: Some(evaluations), open_nodes: Some(open), operator, ..Search::default() };
    Policy { search: Some(search), ..story::policy("qimeng") }
}

async fn go_on(llm: Arc<dyn Llm>, log: &MemoryLog, policy: Policy) -> Result<Trajectory, BrokeOff> {
    let crew = Crew::spawn(Arc::new(Simulated::new()), llm, Arc::new(Prompts::embedded())).await;
    let so_far: Trajectory = log.events().into_iter().collect();
    let job = Job { task: story::task(), policy, so_far, log: Box::new(log.clone()), limit: no_limit() };
    let result = work(job, &crew).await;
    crew.stop().await;
    result
}

/// A model that names a step down for each parameter, and chooses the first action that is open.
#[derive(Default)]
struct Downhill(Mutex<Vec<Call>>);

impl Llm for Downhill {
    fn describe(&self) -> String {
        "downhill".into()
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        let text = call.prompt.turns[0].text.clone();
        let named = r#"{"candidates": ["A-3", "A-1", "B-4", "B-5", "A+100", "swap load 0 1"]}"#;
        let reply = if call.id.purpose == Purpose::Space {
            named.to_owned()
        } else {
            let open = text.split("# Open actions").nth(1).unwrap();
            let first = open.lines().find_map(|line| line.strip_prefix("- ")).unwrap();
            format!("{{\"action\": \"{first}\", \"why\": \"It is first.\"}}")
        };
        self.0.lock().unwrap().push(call);
        let reply = Reply { text: reply, model: "m".into(), usage: None, usd: None, latency_ms: 0, requests: 1 };
        Box::pin(std::future::ready(Ok(reply)))
    }
}

#[tokio::test]
async fn three_modes_climb_the_same_landscape() {
    for mode in [Mode::Guided, Mode::NoHistory, Mode::Naive] {
        let (model, log) = (Arc::new(Downhill::default()), MemoryLog::default());
        let story = go_on(model.clone(), &log, policy(mode, 24, 1, Some(operator()))).await.unwrap();
        let tree = &story.tree;
        let root = tree.nodes()[0].rate().unwrap();
        assert!(tree.best().unwrap().1 > root * 1.2, "{mode:?}: {:?} over {root}", tree.best());
        assert_eq!((tree.nodes().len(), story.end), (24, Some(End::Searched)), "{mode:?}");
        let points: std::collections::BTreeSet<_> = tree.nodes().iter().map(|node| &node.point).collect();
        assert_eq!(points.len(), 24, "{mode:?}: equal nodes run once");
        let asked = model.0.lock().unwrap();
        let told = |call: &&Call| call.prompt.turns[0].text.contains("# What was tried");
        let spaces = asked.iter().filter(|call| call.id.purpose == Purpose::Space);
        match mode {
            Mode::Guided => assert!(spaces.clone().count() > 4 && spaces.clone().all(|call| told(&call))),
            Mode::NoHistory => assert!(spaces.clone().count() > 4 && !spaces.clone().any(|call| told(&call))),
            Mode::Naive => assert!(asked.is_empty()),
        }
        assert!(story.certified().is_some());
    }
}

#[tokio::test]
async fn prompts_hold_exactly_their_histories() {
    let (model, log) = (Arc::new(Downhill::default()), MemoryLog::default());
    let story = go_on(model.clone(), &log, policy(Mode::Guided, 8, 1, Some(operator()))).await.unwrap();
    let nodes = story.tree.nodes();
    for call in model.0.lock().unwrap().iter() {
        let at: usize = call.id.part.split('-').next().unwrap().parse().unwrap();
        let text = &call.prompt.turns[0].text;
        let lines = |title: &str| -> Vec<String> {
            let behind = text.split(title).nth(1).unwrap().trim_start();
            behind.lines().take_while(|line| line.starts_with("- ")).map(|line| line[2..].to_owned()).collect()
        };
        let came = |node: usize| match &nodes[node].reached {
            Reached::Rate(rate) => format!("{rate:.3}x of the reference"),
            Reached::Failed(why) => format!("failed: {why}"),
            Reached::InFlight => unreachable!("all have landed"),
        };
        let action = |node: usize| nodes[node].action.as_ref().map_or("first values".to_owned(), ToString::to_string);
        if call.id.purpose == Purpose::Action {
            let path = story.tree.path(nodes[at].parent.unwrap());
            let expected: Vec<String> = path.iter().map(|node| format!("{}: {}", action(*node), came(*node))).collect();
            assert_eq!(lines("# What led here"), expected, "node {at}");
        } else {
            let expected: Vec<String> = (1..=at).map(|node| format!("{}: {}", action(node), came(node))).collect();
            let told = lines("# What was tried, everywhere in the tree");
            assert_eq!(told.len(), expected.len(), "node {at}");
            assert!(
                told.iter().zip(&expected).all(|(told, expected)| told.starts_with(expected)),
                "{told:?}: {expected:?}"
            );
        }
    }
}

fn known(log: &MemoryLog) -> HashMap<CallId, (kernelbench::Hash, Reply)> {
    let mut known = HashMap::new();
    for event in log.events() {
        if let Event::Answered { call, prompt, reply, model, usage, usd, latency_ms, requests } = event {
            let text = log.fetch(&reply).unwrap();
            known.insert(call, (prompt, Reply { text, model, usage, usd, latency_ms, requests }));
        }
    }
    known
}

/// What does not depend on when something happened.
fn told(log: &MemoryLog) -> Vec<String> {
    let kept = log.events().into_iter().filter(|event| {
        !matches!(event, Event::Spent { .. } | Event::BrokeOff { .. } | Event::Asked { .. } | Event::Certified { .. })
    });
    kept.map(|event| serde_json::to_string(&event).unwrap()).collect()
}

#[tokio::test]
async fn a_search_with_four_open_nodes_goes_on_after_twenty_kills_and_repeats_nothing() {
    let policy = policy(Mode::Guided, 12, 4, Some(operator()));
    let whole = MemoryLog::default();
    go_on(Arc::new(Downhill::default()), &whole, policy.clone()).await.unwrap();
    let events = whole.events();
    let first = events.iter().position(|event| matches!(event, Event::Expanded { .. })).unwrap();
    let flying = |upto: usize| {
        let story: Trajectory = events[..upto].iter().cloned().collect();
        story.tree.in_flight().count()
    };
    assert_eq!((first..events.len()).map(flying).max(), Some(4), "four are in flight at once");
    for kill in 0..20 {
        let cut = first + kill * (events.len() - first - 1) / 20;
        let mut log = whole.killed_after(cut);
        log.note(&Event::BrokeOff { why: "killed".into() }).unwrap();
        let llm = Remembering::new(Arc::new(Downhill::default()), known(&log));
        go_on(Arc::new(llm), &log, policy.clone()).await.unwrap();
        assert_eq!(told(&log), told(&whole), "killed after event {cut}");
    }
}

fn coder(purpose: Purpose, reply: String) -> Entry {
    Entry::new(Role::Coder, reply).purpose(purpose)
}

#[tokio::test]
async fn what_fails_goes_back_to_its_part_and_after_three_repairs_it_ends() {
    let table = "```toml\nA = [3, 4]\nB = [1]\n```\n";
    let sketch = |told: &str| format!("```cpp\n// simulate: {told}\n{SKETCH}```\n{table}");
    let script = || format!("```python\n# print\n{SCRIPT}```\n");
    let replies = vec![
        coder(Purpose::Sketch, sketch("wrong")),
        coder(Purpose::Primitives, script()),
        coder(Purpose::Primitives, script()),
        coder(Purpose::Sketch, sketch("us=150")),
    ];
    let model = Arc::new(Scripted::new(replies));
    let story = go_on(model.clone(), &MemoryLog::default(), policy(Mode::Naive, 2, 1, None)).await.unwrap();
    let steps: Vec<&str> = story.rounds.iter().map(|round| round.step.name()).collect();
    assert_eq!(
        steps,
        ["generate", "repair", "repair", "search"],
        "a wrong result: the primitives first, then the sketch"
    );
    let asked = model.asked();
    assert!(
        asked[2].prompt.turns[0].text.contains("# The last try")
            && !asked[1].prompt.turns[0].text.contains("# The last try")
    );
    let broken = (0..9).flat_map(|_| [coder(Purpose::Sketch, sketch("wrong")), coder(Purpose::Primitives, script())]);
    let model = Arc::new(Scripted::new(broken));
    let story = go_on(model, &MemoryLog::default(), policy(Mode::Naive, 2, 1, None)).await.unwrap();
    assert_eq!((story.rounds.len(), story.end), (4, Some(End::Stuck)));
}
