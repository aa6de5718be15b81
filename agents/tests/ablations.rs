//! Is a role that a policy leaves out sent no message, and is nobody shown what the policy keeps from them?

use crate::story::{FIX, OPTIMIZATION, code, policy, task};
use kameo::{actor::ReplyRecipient, error::SendError, prelude::*};
use kernelbench::{Fault, Simulated};
use metrics::Profile;
use prompts::{Prompts, Verdict};
use std::sync::{Arc, Mutex};
use warpsmith_agents::{
    answer::Answer,
    crew::Crew,
    judge::{Consider, Evidence},
    lease::Worked,
    llm::{
        AskError, Call, Role,
        scripted::{Entry, Scripted},
    },
    log::MemoryLog,
    planner::{Job, no_limit, work},
    policy::Policy,
    profiler::TakeProfile,
    trajectory::Trajectory,
};

/// What candidates do, round by round: right, wrong, right, not built, right.
const MIXED: [&str; 5] = ["us=90", "wrong", "us=70", "build-error", "us=40"];
/// Words of the simulation's profile and of times, which stand in a prompt only where somebody put them.
const NUMBERS: [&str; 4] = ["instructions per element", "L1 misses", "Time of one call", "95 % interval"];
/// Words of a failure's evidence.
const ERRORS: [&str; 2] = ["told to fail", "are wrong on case"];

/// Stands before the Judge or the Profiler, keeps what is sent to it, and passes it on.
#[derive(Actor)]
struct Ear<M: Clone + Send + Sync + 'static, T: Send + 'static, E: std::fmt::Debug + Send + Sync + 'static> {
    to: ReplyRecipient<M, T, E>,
    heard: Arc<Mutex<Vec<M>>>,
}

type Heard<M> = Arc<Mutex<Vec<M>>>;

impl Message<Consider> for Ear<Consider, Answer<Verdict>, AskError> {
    type Reply = DelegatedReply<Result<Answer<Verdict>, AskError>>;

    async fn handle(&mut self, message: Consider, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        self.heard.lock().unwrap().push(message.clone());
        let to = self.to.clone();
        ctx.spawn(async move { to.ask(message).await.map_err(own) })
    }
}

type Taken = Worked<Result<Profile, String>>;

impl Message<TakeProfile> for Ear<TakeProfile, Taken, Fault> {
    type Reply = DelegatedReply<Result<Taken, Fault>>;

    async fn handle(&mut self, message: TakeProfile, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        self.heard.lock().unwrap().push(message.clone());
        let to = self.to.clone();
        ctx.spawn(async move { to.ask(message).await.map_err(own) })
    }
}

fn own<M, E: std::fmt::Debug>(error: SendError<M, E>) -> E {
    let SendError::HandlerError(error) = error else { panic!("the one behind the ear is gone") };
    error
}

/// What a policy's run said to whom.
struct Trace {
    to_judge: Vec<Consider>,
    to_profiler: Vec<TakeProfile>,
    calls: Vec<Call>,
}

impl Trace {
    fn of(&self, role: Role) -> impl Iterator<Item = String> {
        self.calls.iter().filter(move |call| call.id.role == role).map(text)
    }

    fn shows(&self, words: &[&str]) -> bool {
        self.calls.iter().map(text).any(|text| words.iter().any(|word| text.contains(word)))
    }

    fn judged(&self) -> (usize, usize) {
        let failed = self.to_judge.iter().filter(|consider| matches!(consider.evidence, Evidence::Failed(_))).count();
        (failed, self.to_judge.len() - failed)
    }
}

fn text(call: &Call) -> String {
    call.prompt.turns.iter().map(|turn| turn.text.as_str()).collect()
}

async fn trace(name: &str) -> Trace {
    let suggest = || Entry::new(Role::Planner, r#"{"suggestions": ["Do less."]}"#);
    let coder = MIXED.iter().map(|does| Entry::new(Role::Coder, code(does)));
    let fixes = (0..5).map(|_| Entry::new(Role::Judge, FIX).purpose(warpsmith_agents::llm::Purpose::Diagnose));
    let advice = (0..5).map(|_| Entry::new(Role::Judge, OPTIMIZATION).purpose(warpsmith_agents::llm::Purpose::Advise));
    let llm = Arc::new(Scripted::new(coder.chain(fixes).chain(advice).chain((0..5).map(|_| suggest()))));
    let mut crew = Crew::spawn(Arc::new(Simulated::new()), llm.clone(), Arc::new(Prompts::embedded())).await;
    let (judge, profiler): (Heard<Consider>, Heard<TakeProfile>) = Default::default();
    crew.judge = Ear::spawn(Ear { to: crew.judge.clone(), heard: judge.clone() }).reply_recipient();
    crew.profiler = Ear::spawn(Ear { to: crew.profiler.clone(), heard: profiler.clone() }).reply_recipient();
    let mut policy: Policy = policy(name);
    policy.rounds = policy.rounds.min(5);
    let (so_far, log) = (Trajectory::default(), Box::new(MemoryLog::default()));
    work(Job { task: task(), policy, so_far, log, limit: no_limit() }, &crew).await.unwrap();
    crew.stop().await;
    let (to_judge, to_profiler) = (judge.lock().unwrap().clone(), profiler.lock().unwrap().clone());
    Trace { to_judge, to_profiler, calls: llm.asked() }
}

#[tokio::test]
async fn the_judge_and_the_profiler_are_sent_what_the_policy_sends_them_and_nothing_else() {
    // Policy, fixes asked for, optimizations asked for, profiles asked for.
    for (name, fixes, optimizations, profiles) in [
        ("cudaforge", 2, 2, 2),
        ("accept-revert", 0, 4, 4),
        ("correction-only", 2, 0, 0),
        ("optimization-only", 0, 2, 2),
        ("self-refine", 0, 0, 2),
        ("single-agent", 0, 0, 3),
        ("astra", 0, 0, 3),
        ("single-shot", 0, 0, 0),
        ("warpsmith", 0, 3, 3),
    ] {
        let trace = trace(name).await;
        assert_eq!((trace.judged(), trace.to_profiler.len()), ((fixes, optimizations), profiles), "{name}");
    }
}

#[tokio::test]
async fn correction_only_shows_no_metric_and_no_time_to_anyone() {
    let trace = trace("correction-only").await;
    assert!(!trace.shows(&NUMBERS), "{:?}", trace.calls);
    assert!(trace.shows(&ERRORS), "the Judge is shown how a candidate failed");
}

#[tokio::test]
async fn optimization_only_starts_anew_after_a_failure_and_shows_nobody_what_went_wrong() {
    let trace = trace("optimization-only").await;
    assert!(!trace.shows(&ERRORS) && trace.shows(&NUMBERS));
    let seeds: Vec<String> = trace.of(Role::Coder).collect();
    assert_eq!(seeds[2], seeds[0], "after the wrong candidate the Coder hears what it heard at first");
}

#[tokio::test]
async fn whoever_works_alone_is_shown_both_the_errors_and_the_metrics() {
    for name in ["self-refine", "single-agent"] {
        let trace = trace(name).await;
        assert!(trace.calls.iter().all(|call| call.id.role == Role::Coder), "{name}");
        assert!(trace.shows(&ERRORS) && trace.shows(&NUMBERS), "{name}");
    }
}

#[tokio::test]
async fn the_coder_beside_a_judge_is_shown_no_metric() {
    for name in ["cudaforge", "accept-revert", "optimization-only", "astra"] {
        let trace = trace(name).await;
        let shown = trace.of(Role::Coder).find(|text| NUMBERS.iter().any(|word| text.contains(word)));
        assert_eq!(shown, None, "{name}");
    }
}

#[tokio::test]
async fn a_single_shot_is_one_call() {
    let trace = trace("single-shot").await;
    assert_eq!((trace.calls.len(), trace.calls[0].id.role), (1, Role::Coder));
}
