//! Every message between actors, and its reply, can go over a wire (US-5): a step may be taken on another host.
use crate::story;

use kernelbench::{
    Baseline, Candidate, Case, Certificate, Evaluation, Failure, Fault, Provenance, Rebuilt, Simulated, Suite, Tuned,
    Workshop,
    stage::{Hold, Stage, Stretch},
};
use metrics::Profile;
use prompts::{Approaches, Fix, Looking, Lookup, Prompt, Shelf, Verdict};
use serde::{Serialize, de::DeserializeOwned};
use std::{collections::BTreeSet, fmt::Debug, path::Path, sync::Arc};
use warpsmith_agents::{
    answer::Answer,
    coder::{Assignment, Generate, Generated, Piece, Rewrite, Write},
    device::{CertifyCandidate, CheckAlone, CheckAndTime, PrepareReference, RunProfiler},
    judge::{Consider, Evidence},
    lease::{Held, Lease, Leased, Work, Worked},
    llm::{AskError, CallId, Purpose, Reply, Role},
    profiler::TakeProfile,
    tester::{
        BuildAhead, Certify, Check, Examine, FreezeSuite, Prepare, Print, ProposeShapes, Searched, Tune, Validate,
    },
    validator::{By, Validated, Validator},
};

/// Messages that stay within the Planner: it starts its own loop, and learns that it is over.
const WITHIN: [&str; 2] = ["Begin", "Done"];

/// Goes over the wire and comes back; its type's name.
fn there_and_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: &T) -> &'static str {
    let text = serde_json::to_string(message).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *message, "{text}");
    std::any::type_name::<T>().rsplit("::").next().unwrap()
}

/// A reply of this type goes over the wire, and so does its error.
fn reply<T, E>(value: T, error: E)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
    E: Serialize + DeserializeOwned + PartialEq + Debug,
{
    there_and_back::<Result<T, E>>(&Ok(value));
    there_and_back::<Result<T, E>>(&Err(error));
}

fn call() -> CallId {
    CallId {
        task: "twice".into(),
        round: 3,
        role: Role::Judge,
        purpose: Purpose::Diagnose,
        part: String::new(),
        attempt: 2,
    }
}

fn suite() -> Suite {
    let task = story::task();
    Suite { provenance: Provenance::Task, timed: vec![task.cases[0].name.clone()], cases: task.cases }
}

fn examine() -> Examine {
    let (task, candidate) = (Arc::new(story::task()), Candidate::new("{{N}}").bound([("N".into(), "4".into())].into()));
    Examine { task, candidate, suite: suite(), plan: story::policy("cudaforge").timing, self_difference: 0.001 }
}

fn rewriting() -> prompts::Rewriting {
    prompts::Rewriting {
        context: Candidate::new("{{N}}"),
        transformation: "Unroll".into(),
        summary: "Unrolls.".into(),
        passes: (1, 2),
        aim: "Unroll.".into(),
        region: "device".into(),
        text: "Do it.".into(),
        tuning: kernelbench::Space::default(),
        retired: vec!["N".into()],
        say: Some("gently".into()),
        last: Some((Failure::Build { log: "device.cpp:1: error".into() }, None)),
    }
}

fn worked<T>(result: T) -> Worked<T> {
    let held = Some(Held { exclusive_us: 1, shared_us: 1 });
    let lease = Lease {
        device: "cuda:0".into(),
        from_us: 1,
        checked_us: Some(2),
        until_us: 3,
        held,
        signed_by: None,
        moved_from: None,
    };
    let stages = vec![Stretch { stage: Stage::Check, held: Some(Hold::Shared), from_us: 1, us: 1 }];
    Worked { result, build_ms: Some(7), lease: Some(lease), stages }
}

fn leased<T>(result: T) -> Leased<T> {
    let Worked { lease, stages, .. } = worked(());
    Leased { result, lease: lease.unwrap(), stages }
}

fn answer<T>(read: T) -> Answer<T> {
    let reply = Reply { text: "said".into(), model: "m".into(), usage: None, usd: None, latency_ms: 1, requests: 1 };
    Answer { prompt: Prompt::new("system", "user"), reply, read: Ok(read) }
}

/// Everything that a simulated workshop says of one candidate.
struct Simulation {
    baseline: Baseline,
    evaluation: Evaluation,
    profile: Profile,
    certificate: Certificate,
    rebuilt: Rebuilt,
    built: kernelbench::Built,
}

async fn simulation() -> Simulation {
    let (workshop, task, plan) = (Simulated::new(), story::task(), story::policy("cudaforge").timing);
    let candidate = Candidate::new("// simulate: us=50");
    let built = workshop.build(&task, &candidate).await.unwrap().unwrap();
    let verified = workshop.check(&task, built.clone(), &suite()).await.unwrap().unwrap();
    let rebuilt = workshop.rebuild(&task, &candidate).await.unwrap();
    Simulation {
        baseline: workshop.prepare(&task, &suite(), &plan).await.unwrap(),
        evaluation: workshop.evaluate(&task, &candidate, &suite(), &plan).await.unwrap(),
        profile: workshop.profile(&task, &verified, &suite()).await.unwrap(),
        certificate: workshop.certify(&task, rebuilt.clone(), &plan).await.unwrap(),
        rebuilt,
        built,
    }
}

/// A round that may be looked up, and was.
fn looking() -> Looking {
    let lookup = Lookup { look_up: Shelf::QueryReplay, name: "1".into() };
    Looking {
        shelves: vec![(Shelf::QueryReplay, vec!["1".into()])],
        most: 2,
        rounds: 3,
        seen: vec![(lookup, "a kernel".into())],
    }
}

#[tokio::test]
async fn every_message_and_every_reply_goes_over_a_wire_and_comes_back() {
    let Simulation { baseline, evaluation, profile, certificate, rebuilt, built } = simulation().await;
    let Examine { task, candidate, suite, plan, self_difference } = examine();
    let failure = Failure::Crash { case: "a".into(), signal: "SIGSEGV".into(), stderr: String::new() };
    let fault = || Fault::OutOfMemory("full".into());
    let machine = Simulated::new().machine().clone();
    let assignment = Assignment::Fix { candidate: candidate.clone(), failure: failure.clone(), fix: None };
    let evidence = Evidence::Failed(failure);
    let sent = BTreeSet::from([
        there_and_back(&Write {
            call: call(),
            task: task.clone(),
            machine: machine.clone(),
            assignment,
            conversation: vec![],
            worked_example: false,
            learned: prompts::Learned::Skill("Use vectors.".into()),
            looking: Some(looking()),
            earlier: None,
        }),
        there_and_back(&Consider {
            call: call(),
            task: task.clone(),
            machine,
            candidate: candidate.clone(),
            evidence,
            tried: vec![],
            approaches: Some(Approaches { items: vec!["one".into(), "two".into(), "three".into()] }),
            earlier: None,
        }),
        there_and_back(&Rewrite {
            call: call(),
            task: task.clone(),
            machine: Simulated::new().machine().clone(),
            rewriting: rewriting(),
            earlier: None,
        }),
        there_and_back(&Generate {
            call: call(),
            task: task.clone(),
            machine: Simulated::new().machine().clone(),
            piece: Piece::Sketch { last: None },
            earlier: None,
        }),
        there_and_back(&Print { script: "print('nop')".into(), bindings: [("N".into(), "4".into())].into() }),
        there_and_back(&BuildAhead { task: task.clone(), candidates: vec![candidate.clone()] }),
        there_and_back(&Check {
            task: task.clone(),
            candidate: candidate.clone(),
            suite: suite.clone(),
            sanitize: true,
        }),
        there_and_back(&CheckAlone { task: task.clone(), built: built.clone(), suite: suite.clone(), sanitize: true }),
        there_and_back(&Validate {
            task: task.clone(),
            candidate: candidate.clone(),
            validator: Validator { name: "mine".into(), by: By::Command(vec!["true".into()]), samples: 1 },
        }),
        there_and_back(&TakeProfile { task: task.clone(), candidate: candidate.clone(), suite: suite.clone() }),
        there_and_back(&ProposeShapes { call: call(), task: task.clone(), earlier: None }),
        there_and_back(&FreezeSuite {
            task: task.clone(),
            proposed: Some(task.cases.clone()),
            timed: task.timed.clone(),
        }),
        there_and_back(&Prepare { task: task.clone(), suite: suite.clone(), plan }),
        there_and_back(&examine()),
        there_and_back(&Tune { examine: examine(), tests: 32 }),
        there_and_back(&Certify { task: task.clone(), candidate: candidate.clone(), plan }),
        there_and_back(&CheckAndTime {
            task: task.clone(),
            built: built.clone(),
            suite: suite.clone(),
            plan,
            self_difference,
        }),
        there_and_back(&RunProfiler { task: task.clone(), built, suite: suite.clone() }),
        there_and_back(&PrepareReference { task: task.clone(), suite: suite.clone(), plan }),
        there_and_back(&CertifyCandidate { task: task.clone(), rebuilt, plan }),
    ]);
    assert_eq!(sent, handled(), "each message that an actor handles is sent here");

    let (issue, why, hint) = ("a".into(), "b".into(), "c".into());
    let fix = Fix { critical_issue: issue, why_it_matters: why, minimal_fix_hint: hint, features: vec!["tma".into()] };
    reply(answer(candidate.clone()), AskError::Refused("no".into()));
    reply(answer(Verdict::Fix(fix)), AskError::Waiting("file".into()));
    reply(answer::<Vec<Case>>(task.cases.clone()), AskError::RecordEnds("end".into()));
    let sketch = Generated::Sketch { text: "{{N}}".into(), tuning: kernelbench::Space::default() };
    reply(answer(sketch), AskError::Refused("no".into()));
    reply::<Result<String, Failure>, _>(Ok("nop".into()), fault());
    reply(Validated::Failed("a race".into()), fault());
    reply(worked::<Result<Profile, String>>(Ok(profile.clone())), fault());
    reply((suite, vec!["left out".to_owned()]), fault());
    reply(worked(baseline.clone()), fault());
    reply(worked(evaluation.clone()), fault());
    reply(Searched { tuned: Tuned { candidate, tried: vec![] }, spent: vec![(Work::Examine, worked(()))] }, fault());
    reply(worked(certificate.clone()), fault());
    reply(leased(evaluation), fault());
    reply(leased::<Result<Profile, String>>(Err("not measured".into())), fault());
    reply(leased(baseline), fault());
    reply(leased(certificate), fault());
}

/// The messages that actors handle, by the sources.
fn handled() -> BTreeSet<&'static str> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut handled = BTreeSet::new();
    for file in std::fs::read_dir(sources).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let text: &'static str = std::fs::read_to_string(file).unwrap().leak();
        let names = text.split("impl Message<").skip(1).filter_map(|rest| rest.split('>').next());
        handled.extend(names.filter(|name| !WITHIN.contains(name)));
    }
    handled
}
