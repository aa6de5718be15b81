//! The decision, held against a second implementation that works the other way round: it walks the story forward and
//! keeps a head, where `policy::next` looks back at the whole.

use kernelbench::{Candidate, CandidateId, Evaluation, Failure, Timed};
use metrics::{Interval, Speedup, Statistic};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::ops::ControlFlow;
use warpsmith_agents::event::{End, Event, Step};
use warpsmith_agents::llm::Role;
use warpsmith_agents::policy::{Advance, OnFailure, OnPass, Policy, Start, next};
use warpsmith_agents::trajectory::Trajectory;

#[derive(Clone, Copy)]
enum Came {
    Passed(f64),
    Failed,
    Unreadable,
}

fn passed(ratio: f64) -> Evaluation {
    let interval = Interval { low: ratio * 0.9, high: ratio * 1.1 };
    Evaluation::Passed(Timed {
        cases: vec![],
        speedup: Speedup { ratio, interval },
        statistic: Statistic::Median,
        labels: vec![],
        widened_by: None,
        object: None,
    })
}

fn events(story: &[Came], start: Start) -> Vec<Event> {
    let mut events = vec![];
    for (i, came) in story.iter().enumerate() {
        let baseline = i == 0 && start == Start::Baseline;
        let step = if baseline { Step::Baseline } else { Step::Seed };
        events.push(Event::Began { round: i as u32 + u32::from(start == Start::Seed), step });
        let id = Candidate::new(i.to_string()).id();
        match came {
            Came::Unreadable => events.push(Event::Unreadable { role: Role::Coder, why: "prose".into() }),
            Came::Passed(ratio) => {
                events.push(Event::Wrote { candidate: id.clone() });
                events.push(Event::Evaluated { candidate: id, evaluation: passed(*ratio) });
            }
            Came::Failed => {
                events.push(Event::Wrote { candidate: id.clone() });
                let evaluation = Evaluation::Failed(Failure::Build { log: String::new() });
                events.push(Event::Evaluated { candidate: id, evaluation });
            }
        }
    }
    events
}

/// The second implementation.
fn walked(story: &[Came], policy: &Policy) -> ControlFlow<End, Step> {
    let mut head: Option<(CandidateId, Came)> = None;
    for (i, came) in story.iter().enumerate() {
        let new = (Candidate::new(i.to_string()).id(), *came);
        let moves = match (policy.advance, &head, came) {
            (_, _, Came::Unreadable) => false,
            (Advance::Always, ..) | (_, None | Some((_, Came::Failed)), _) => true,
            (Advance::IfCorrect, _, came) => matches!(came, Came::Passed(_)),
            (Advance::IfFaster, Some((_, Came::Passed(old))), Came::Passed(new)) => new > old,
            (Advance::IfFaster, ..) => false,
        };
        if moves {
            head = Some(new);
        }
    }
    let baselines = usize::from(policy.start == Start::Baseline && !story.is_empty());
    if story.len() - baselines >= policy.rounds as usize {
        return ControlFlow::Break(End::OutOfRounds);
    }
    let seeds = policy.seeds.unwrap_or(1) as usize;
    ControlFlow::Continue(match head {
        _ if (1..seeds).contains(&(story.len() - baselines)) => Step::Seed,
        None if story.is_empty() && policy.start == Start::Baseline => Step::Baseline,
        None => Step::Seed,
        Some((base, Came::Passed(_))) => match policy.on_pass {
            OnPass::Optimize => Step::Optimize { base },
            OnPass::Refine => Step::Refine { base },
            OnPass::Retry => Step::Retry { base },
            OnPass::Suggest => Step::Suggest { base },
        },
        Some((base, _)) => match policy.on_failure {
            OnFailure::Fix => Step::Fix { base },
            OnFailure::Refine => Step::Refine { base },
            OnFailure::Retry => Step::Retry { base },
            OnFailure::Seed => Step::Seed,
            OnFailure::Suggest => Step::Suggest { base },
        },
    })
}

#[test]
fn looking_back_and_walking_forward_decide_the_same() {
    let mut rng = StdRng::seed_from_u64(7);
    // What a sequence and a search decide is held against their stories in tests/workflow.rs and tests/search.rs.
    let is_loop = |name: &&str| {
        let policy = Policy::parse(Policy::embedded(name).unwrap()).unwrap();
        policy.sequence.is_none() && policy.search.is_none()
    };
    let names: Vec<_> = Policy::names().filter(is_loop).collect();
    for _ in 0..4000 {
        let name = names[rng.random_range(0..names.len())];
        let mut policy = Policy::parse(Policy::embedded(name).unwrap()).unwrap();
        policy.advance = [Advance::Always, Advance::IfCorrect, Advance::IfFaster][rng.random_range(0..3)];
        let length = rng.random_range(0..=policy.rounds as usize + 1);
        let story: Vec<Came> = (0..length)
            .map(|i| match rng.random_range(0..4) {
                // A baseline is never unreadable: no model wrote it.
                0 if i > 0 || policy.start == Start::Seed => Came::Unreadable,
                1 => Came::Failed,
                _ => Came::Passed(rng.random_range(0.5..3.0)),
            })
            .collect();
        let trajectory: Trajectory = events(&story, policy.start).into_iter().collect();
        assert_eq!(next(&trajectory, &policy), walked(&story, &policy), "{name}, {:?}", policy.advance);
    }
}

#[test]
fn every_policy_that_comes_with_the_program_reads_and_bears_its_name() {
    for name in Policy::names() {
        let policy = Policy::parse(Policy::embedded(name).unwrap()).unwrap_or_else(|err| panic!("{name}: {err}"));
        assert_eq!(policy.name, name);
    }
}

#[test]
fn a_key_that_no_policy_has_is_an_error_that_names_it() {
    let text = Policy::embedded("astra").unwrap().replace("rounds", "round");
    let err = Policy::parse(&text).unwrap_err().to_string();
    assert!(err.contains("unknown field `round`") && err.contains("line"), "{err}");
}
