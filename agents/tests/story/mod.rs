//! A task, replies, and a way to run them: what the tests of the loop share.

#![allow(dead_code, clippy::allow_attributes, reason = "each test uses the part that it needs")]

use kernelbench::{
    Argument, ArgumentKind, Baselines, Case, Dtype, Fill, Hash, KernelContext, Language, Number, Returns, Size, Source,
    Space, Task, TimedCases, Tolerance, Transfer, Workshop,
};
use prompts::Prompts;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use warpsmith_agents::crew::Crew;
use warpsmith_agents::event::Event;
use warpsmith_agents::llm::remembering::Remembering;
use warpsmith_agents::llm::replay::{RecordedAnswer, Replay};
use warpsmith_agents::llm::scripted::Scripted;
use warpsmith_agents::llm::{CallId, Llm, Reply};
use warpsmith_agents::log::{Log, MemoryLog};
use warpsmith_agents::planner::{BrokeOff, Job, no_limit, work};
use warpsmith_agents::policy::{Policy, Shapes};
use warpsmith_agents::trajectory::Trajectory;

/// A task that doubles an array.
pub(crate) fn task() -> Task {
    let array = |transfer| ArgumentKind::Array {
        size: Size("n".into()),
        transfer,
        fill: Fill::Uniform { low: 0.0, high: 1.0 },
    };
    let argument = |name: &str, dtype, kind| Argument { name: name.into(), dtype, kind };
    let case = |n: i64| Case { name: n.to_string(), scalars: BTreeMap::from([("n".into(), Number::Integer(n))]) };
    Task {
        name: "double".into(),
        summary: "Doubles every element.".into(),
        source: Source::Context(KernelContext {
            language: Language::Cpp,
            entry: "twice".into(),
            arguments: vec![
                argument("out", Dtype::F32, array(Transfer::Out)),
                argument("x", Dtype::F32, array(Transfer::In)),
                argument("n", Dtype::I64, ArgumentKind::Scalar),
            ],
            flags: vec!["-O2".into()],
            reference: "// the reference\n// simulate: us=100\n".into(),
            initial: None,
            tuning: Space::default(),
            returns: Returns::Nothing,
            binding: None,
            include: BTreeMap::new(),
            operations: None,
            origin: None,
            baselines: Baselines::default(),
            processor: None,
            arch: None,
        }),
        tolerance: Tolerance { atol: 1e-6, rtol: 1e-6, share: 1.0 },
        tolerance_why: String::new(),
        cases: vec![case(64), case(128)],
        final_cases: vec![case(96)],
        sanitizer_cases: vec![],
        valid_args: None,
        timed: TimedCases::Largest,
    }
}

/// The same with the regions that transformations rewrite, and with nothing open at first.
pub(crate) fn task_with_regions() -> Task {
    let mut task = task();
    let Source::Context(context) = &mut task.source else { panic!("it is a kernel context") };
    context.reference =
        "// region: macros\n// region: device\n// simulate: us=100\nstatic void part() {}\n// region: host\n\
                         extern \"C\" void twice(float *out, const float *x, int64_t n) {}\n"
            .into();
    task
}

/// A Coder's reply: a candidate whose comment tells the simulated workshop what to find.
pub(crate) fn code(directive: &str) -> String {
    format!(
        "```cpp\n// simulate: {directive}\nextern \"C\" void twice(float *out, const float *x, int64_t n) {{}}\n```\n"
    )
}

/// A Judge's fix.
pub(crate) const FIX: &str = r#"{"critical_issue": "It does not compile.", "why_it_matters": "Nothing can run.", "minimal_fix_hint": "Close the brace."}"#;
/// A Judge's optimization.
pub(crate) const OPTIMIZATION: &str = r#"{"bottleneck": "Memory traffic.", "optimization method": "Vectorize the loop.", "modification plan": "Use eight lanes."}"#;
/// A policy that comes with the program, with the task's own shapes.
pub(crate) fn policy(name: &str) -> Policy {
    let mut policy = Policy::parse(Policy::embedded(name).unwrap()).unwrap();
    policy.shapes = Shapes::Task;
    policy.timing.warmup = 1;
    policy.timing.repetitions = 5;
    policy
}

/// Works on the task from where the log ends.
pub(crate) async fn go_on<W: Workshop>(
    workshop: Arc<W>,
    llm: Arc<dyn Llm>,
    policy: Policy,
    log: &MemoryLog,
) -> Result<Trajectory, BrokeOff> {
    go_on_with(task(), workshop, llm, policy, log).await
}

/// Works on this task from where the log ends.
pub(crate) async fn go_on_with<W: Workshop>(
    task: Task,
    workshop: Arc<W>,
    llm: Arc<dyn Llm>,
    policy: Policy,
    log: &MemoryLog,
) -> Result<Trajectory, BrokeOff> {
    let crew = Crew::spawn(workshop, llm, Arc::new(Prompts::embedded())).await;
    let so_far: Trajectory = log.events().into_iter().collect();
    let result = work(Job { task, policy, so_far, log: Box::new(log.clone()), limit: no_limit() }, &crew).await;
    crew.stop().await;
    result
}

/// The calls of a record that were answered.
pub(crate) fn answered(log: &MemoryLog) -> Vec<(CallId, Hash, Hash)> {
    let answered = |event| match event {
        Event::Answered { call, prompt, reply, .. } => Some((call, prompt, reply)),
        _ => None,
    };
    log.events().into_iter().filter_map(answered).collect()
}

/// A record in a model's place.
pub(crate) fn replay(log: &MemoryLog, strict: bool) -> Replay {
    let text = |hash: &Hash| log.fetch(hash).expect("the record has its texts");
    let read = |(id, prompt, reply): (CallId, Hash, Hash)| {
        let (prompt, reply, model) = (text(&prompt), text(&reply), "scripted".into());
        RecordedAnswer { id, prompt, reply, model, usage: None, usd: None }
    };
    Replay::new("the unbroken run", answered(log).into_iter().map(read).collect(), strict)
}

/// A model's reply.
pub(crate) fn reply(text: String) -> Reply {
    Reply { text, model: "scripted".into(), usage: None, usd: None, latency_ms: 0, requests: 1 }
}

/// A script in a model's place, behind what the record has answers to.
pub(crate) fn remembering(log: &MemoryLog, inner: Arc<Scripted>) -> Remembering {
    let known: HashMap<_, _> = answered(log)
        .into_iter()
        .map(|(call, prompt, text)| (call, (prompt, reply(log.fetch(&text).expect("the record has its texts")))))
        .collect();
    Remembering::new(inner, known)
}
