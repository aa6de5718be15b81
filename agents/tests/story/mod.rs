//! A task, replies, and a way to run them: what the tests of the loop share.

#![allow(dead_code, clippy::allow_attributes, reason = "each test uses the part that it needs")]

use kernelbench::{
    Argument, ArgumentKind, Case, Dtype, Fill, KernelContext, Language, Number, Returns, Size, Source, Space, Task,
    TimedCases, Tolerance, Transfer, Workshop,
};
use prompts::Prompts;
use std::{collections::BTreeMap, sync::Arc};
use warpsmith_agents::crew::Crew;
use warpsmith_agents::llm::Llm;
use warpsmith_agents::log::MemoryLog;
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
        }),
        tolerance: Tolerance { atol: 1e-6, rtol: 1e-6, share: 1.0 },
        cases: vec![case(64), case(128)],
        final_cases: vec![case(96)],
        timed: TimedCases::Largest,
    }
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
    let crew = Crew::spawn(workshop, llm, Arc::new(Prompts::embedded())).await;
    let so_far: Trajectory = log.events().into_iter().collect();
    let result = work(Job { task: task(), policy, so_far, log: Box::new(log.clone()), limit: no_limit() }, &crew).await;
    crew.stop().await;
    result
}
