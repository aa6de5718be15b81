//! Nothing is lost: a run that is killed at any point goes on to the same end, and a record makes its run again.

use warpsmith_agents::event::Event;
use warpsmith_agents::lease::Lease;
use warpsmith_agents::llm::Role;
use warpsmith_agents::llm::scripted::{Entry, Scripted};
use warpsmith_agents::log::MemoryLog;
use warpsmith_agents::policy::Policy;

use crate::story::{FIX, OPTIMIZATION, answered, code, go_on, policy, remembering, replay};
use kernelbench::{
    Baseline, Built, Candidate, Case, Certificate, Elsewhere, Fault, Findings, Fits, Outcome, Rebuilt, Recorded,
    Simulated, Step, Suite, Task, Timed, TimingPlan, Verified, Workshop,
};
use metrics::{Machine, Profile};
use std::{
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

/// Four rounds: one mended, one whose verdict had to be asked for twice.
fn script() -> Vec<Entry> {
    let at = |round, role, reply: &str| Entry::new(role, reply).round(round);
    vec![
        at(1, Role::Coder, &code("build-error")),
        at(2, Role::Judge, FIX),
        at(2, Role::Coder, &code("us=80")),
        at(3, Role::Judge, "no idea"),
        at(3, Role::Judge, OPTIMIZATION),
        at(3, Role::Coder, &code("us=60")),
        at(4, Role::Judge, OPTIMIZATION),
        at(4, Role::Coder, &code("us=50")),
    ]
}

fn four_rounds() -> Policy {
    Policy { rounds: 4, ..policy("cudaforge") }
}

async fn unbroken() -> MemoryLog {
    let log = MemoryLog::default();
    let llm = Arc::new(Scripted::new(script()));
    let trajectory = go_on(Arc::new(Simulated::new()), llm, four_rounds(), &log).await.unwrap();
    assert!(trajectory.certified().is_some() && trajectory.rounds.len() == 4, "{trajectory:#?}");
    log
}

/// What a run comes to, without the places where it was broken off, and without the hash over all that stands before a
/// certificate, which has these in it.
fn essence(log: &MemoryLog) -> Vec<Event> {
    let passing = |event: &Event| matches!(event, Event::Asked { .. } | Event::Misread { .. } | Event::Spent { .. });
    let mut events: Vec<Event> = log.events().into_iter().filter(|event| !passing(event)).collect();
    for event in &mut events {
        if let Event::Certified { evidence, .. } = event {
            assert!(evidence.take().is_some(), "a certificate without the hash of its evidence");
        }
    }
    events
}

#[tokio::test]
async fn whole_steps_that_are_done_elsewhere_come_to_what_steps_in_process_come_to() {
    let log = MemoryLog::default();
    let there = Elsewhere::beside(Arc::new(Simulated::new()), "gpu17/simulated");
    go_on(Arc::new(there), Arc::new(Scripted::new(script())), four_rounds(), &log).await.unwrap();
    assert_eq!(essence(&log), essence(&unbroken().await));
    let leases: Vec<_> = log.events().into_iter().filter_map(lease).collect();
    assert!(leases.len() > 4 && leases.iter().all(|lease| lease.device == "gpu17/simulated"), "{leases:?}");
}

fn lease(event: Event) -> Option<Lease> {
    match event {
        Event::Spent { lease, .. } => lease,
        _ => None,
    }
}

#[tokio::test]
async fn killed_after_any_event_a_run_goes_on_to_the_same_end_and_repeats_no_answered_call() {
    let whole = unbroken().await;
    for kept in 0..whole.events().len() {
        let log = whole.killed_after(kept);
        let known = answered(&log);
        // The model still has the whole script: only what is really asked again is counted.
        let rest = script().into_iter().skip(known.len());
        let model = Arc::new(Scripted::new(rest));
        let llm = Arc::new(remembering(&log, model.clone()));
        go_on(Arc::new(Simulated::new()), llm, four_rounds(), &log).await.unwrap();
        assert_eq!(essence(&log), essence(&whole), "killed after {kept}");
        assert_eq!(known.len() + model.calls(), script().len(), "killed after {kept}");
        let unique: std::collections::HashSet<_> = answered(&log).into_iter().map(|(call, ..)| call).collect();
        assert_eq!(unique.len(), answered(&log).len(), "killed after {kept}: an answer was noted twice");
    }
}

#[tokio::test]
async fn a_record_makes_its_run_again_without_a_model_and_without_a_compiler() {
    let whole = unbroken().await;
    let again = MemoryLog::default();
    go_on(Arc::new(recorded(&whole)), Arc::new(replay(&whole, true)), four_rounds(), &again).await.unwrap();
    let without_model = |log: &MemoryLog| essence(log).into_iter().skip(1).collect::<Vec<_>>();
    let timeless = |mut events: Vec<Event>| {
        for event in &mut events {
            if let Event::Answered { latency_ms, requests, .. } = event {
                (*latency_ms, *requests) = (0, 0);
            }
        }
        events
    };
    assert_eq!(timeless(without_model(&again)), timeless(without_model(&whole)));
}

fn recorded(log: &MemoryLog) -> Recorded {
    let (mut findings, mut machine) = (Findings::default(), None);
    for event in log.events() {
        match event {
            Event::Opened { machine: m, .. } => machine = Some(m),
            Event::SuiteFrozen { suite, notes } => (findings.suite, findings.suite_notes) = (Some(suite), notes),
            Event::Prepared { baseline } => findings.baseline = Some(baseline),
            Event::Evaluated { candidate, evaluation } => findings.evaluations.push((candidate, Ok(evaluation))),
            Event::Profiled { candidate, profile: Ok(profile) } => findings.profiles.push((candidate, profile)),
            Event::Certified { certificate, .. } => findings.certificates.push(certificate),
            _ => {}
        }
    }
    Recorded::new(machine.unwrap(), findings)
}

/// A machine whose checks panic: a defect of ours, not of a candidate.
struct Panicking {
    inner: Simulated,
    panics_left: AtomicUsize,
}

impl Workshop for Panicking {
    fn machine(&self) -> &Machine {
        self.inner.machine()
    }
    fn fits<'a>(&'a self, task: &'a Task, cases: &'a [Case]) -> Step<'a, Result<Fits, Fault>> {
        self.inner.fits(task, cases)
    }
    fn prepare<'a>(
        &'a self,
        task: &'a Task,
        suite: &'a Suite,
        plan: &'a TimingPlan,
    ) -> Step<'a, Result<Baseline, Fault>> {
        self.inner.prepare(task, suite, plan)
    }
    fn build<'a>(&'a self, task: &'a Task, candidate: &'a Candidate) -> Step<'a, Outcome<Built>> {
        self.inner.build(task, candidate)
    }
    fn check<'a>(&'a self, task: &'a Task, built: Built, suite: &'a Suite) -> Step<'a, Outcome<Verified>> {
        let left = self.panics_left.load(SeqCst);
        if left > 0 {
            self.panics_left.store(left - 1, SeqCst);
            panic!("a defect in the workshop");
        }
        self.inner.check(task, built, suite)
    }
    fn time<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
        plan: &'a TimingPlan,
        self_difference: f64,
    ) -> Step<'a, Outcome<Timed>> {
        self.inner.time(task, verified, suite, plan, self_difference)
    }
    fn profile<'a>(
        &'a self,
        task: &'a Task,
        verified: &'a Verified,
        suite: &'a Suite,
    ) -> Step<'a, Result<Profile, Fault>> {
        self.inner.profile(task, verified, suite)
    }
    fn rebuild<'a>(&'a self, task: &'a Task, candidate: &'a Candidate) -> Step<'a, Result<Rebuilt, Fault>> {
        self.inner.rebuild(task, candidate)
    }
    fn certify<'a>(
        &'a self,
        task: &'a Task,
        rebuilt: Rebuilt,
        plan: &'a TimingPlan,
    ) -> Step<'a, Result<Certificate, Fault>> {
        self.inner.certify(task, rebuilt, plan)
    }
}

#[tokio::test]
async fn an_actor_that_panics_is_built_anew_and_no_recorded_round_is_lost() {
    let panicking = |panics| Panicking { inner: Simulated::new(), panics_left: AtomicUsize::new(panics) };
    // One panic: asked once more, and the run does not even notice.
    let log = MemoryLog::default();
    let llm = Arc::new(Scripted::new(script()));
    go_on(Arc::new(panicking(1)), llm, four_rounds(), &log).await.unwrap();
    assert_eq!(essence(&log), essence(&unbroken().await));
    // A panic that stays breaks the run off; the record can be gone on from.
    let log = MemoryLog::default();
    let llm = Arc::new(Scripted::new(script()));
    assert!(go_on(Arc::new(panicking(usize::MAX)), llm.clone(), four_rounds(), &log).await.is_err());
    let llm = Arc::new(remembering(&log, llm));
    go_on(Arc::new(Simulated::new()), llm, four_rounds(), &log).await.unwrap();
    let broke_off = |event: &Event| matches!(event, Event::BrokeOff { .. });
    let ended: Vec<_> = essence(&log).into_iter().filter(|event| !broke_off(event)).collect();
    assert_eq!(ended, essence(&unbroken().await));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_others_keep_from_being_timed_is_not_blamed_and_the_run_goes_on() {
    let script = vec![
        Entry::new(Role::Coder, code("us=80")).round(1),
        Entry::new(Role::Judge, OPTIMIZATION).round(2),
        Entry::new(Role::Coder, code("us=60 disturbed")).round(2),
        Entry::new(Role::Judge, OPTIMIZATION).round(3),
        Entry::new(Role::Coder, code("us=50")).round(3),
    ];
    let log = MemoryLog::default();
    let policy = Policy { rounds: 3, ..policy("cudaforge") };
    let run = go_on(Arc::new(Simulated::new()), Arc::new(Scripted::new(script)), policy, &log).await.unwrap();
    let [first, second, third] = &run.rounds[..] else { panic!("{:#?}", run.rounds) };
    assert!(second.not_timed.is_some() && second.evaluation.is_none() && second.finished());
    assert_eq!(third.step.base(), first.candidate.as_ref(), "what was not timed is no base");
    assert_eq!(run.best().unwrap().round, 3);
    assert!(run.certified().is_some() && run.broke_off.is_none());
}
