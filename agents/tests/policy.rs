//! The decision, held against a second implementation that works the other way round: it walks the story forward and
//! keeps a head, where `policy::next` looks back at the whole.

use kernelbench::{Candidate, CandidateId, CodeObject, Counts, Evaluation, Failure, Gfx, Processor, Timed};
use metrics::{Interval, Speedup, Statistic, feature::Fired};
use prompts::Approaches;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::ops::ControlFlow;
use warpsmith_agents::event::{End, Event, Step};
use warpsmith_agents::head::{Weighed, decide};
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
        against: None,
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
            (Advance::IfFaster | Advance::IfFired, ..) => false,
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
    // What is decided by counters is held against its story below.
    let is_loop = |name: &&str| {
        let policy = Policy::parse(Policy::embedded(name).unwrap()).unwrap();
        policy.sequence.is_none() && policy.search.is_none() && policy.advance != Advance::IfFired
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

/// What the second implementation keeps where counters decide.
#[derive(Default)]
struct Kept {
    head: Option<(CandidateId, f64)>,
    mending: Option<(CandidateId, u32)>,
    best: f64,
    idle: u32,
    written: u32,
}

impl Kept {
    fn next(&self, policy: &Policy) -> ControlFlow<End, Step> {
        if self.written == policy.rounds {
            return ControlFlow::Break(End::OutOfRounds);
        }
        if self.idle >= policy.stall.unwrap_or_default() {
            return ControlFlow::Break(End::Stalled);
        }
        ControlFlow::Continue(match (&self.mending, &self.head) {
            (Some((base, _)), _) => Step::Fix { base: base.clone() },
            (None, Some((base, _))) => Step::Optimize { base: base.clone() },
            (None, None) => Step::Seed,
        })
    }

    /// Takes in what came of a round, and says what is noted.
    fn take(&mut self, id: &CandidateId, came: Came, fired: Option<Fired>, policy: &Policy) -> Option<Weighed> {
        self.written += 1;
        self.idle += 1;
        let left = self.mending.take().map(|(failed, left)| (failed, left - 1));
        match came {
            Came::Unreadable => self.mending = left.filter(|(_, left)| *left > 0),
            Came::Failed => {
                let left = left.map_or(policy.consults.unwrap_or_default(), |(_, left)| left);
                self.mending = (left > 0).then(|| (id.clone(), left));
            }
            Came::Passed(ratio) => {
                if ratio > self.best {
                    (self.best, self.idle) = (ratio, 0);
                }
                let over = self.head.as_ref().map(|(_, head)| ratio / head);
                // The intervals of the story reach a tenth to either side, on both sides.
                let faster = over.is_none_or(|over| over * 0.9 / 1.1 > 1.0);
                let late = fired == Some(Fired::Yes) && over.is_some_and(|over| over >= 0.97);
                if faster || late {
                    self.head = Some((id.clone(), ratio));
                }
                let over_head = over.map(|over| {
                    let interval = Interval { low: over * 0.9 / 1.1, high: over * 1.1 / 0.9 };
                    Speedup { ratio: over, interval }
                });
                let (accepted, why) = decide(over_head.as_ref(), fired, policy.slower.unwrap_or_default());
                assert_eq!(accepted, faster || late, "{why}");
                let (candidate, shown) = (id.clone(), vec![]);
                return Some(Weighed { candidate, over_head, shown, accepted, why: why.into(), left: 0 });
            }
        }
        None
    }
}

#[test]
fn where_counters_decide_looking_back_and_walking_forward_decide_the_same() {
    let mut rng = StdRng::seed_from_u64(11);
    for _ in 0..300 {
        let mut policy = Policy::parse(Policy::embedded("hawkeye").unwrap()).unwrap();
        (policy.rounds, policy.stall) = (rng.random_range(1..60), Some(rng.random_range(2..30)));
        let (mut kept, mut story) = (Kept::default(), Trajectory::default());
        loop {
            let step = next(&story, &policy);
            assert_eq!(step, kept.next(&policy), "after {} rounds", kept.written);
            let ControlFlow::Continue(step) = step else { break };
            let came = match rng.random_range(0..5) {
                0 => Came::Unreadable,
                1 | 2 => Came::Failed,
                _ => Came::Passed(rng.random_range(0.5..3.0)),
            };
            let fired = [None, Some(Fired::Yes), Some(Fired::No), Some(Fired::Unknown)][rng.random_range(0..4)];
            let id = Candidate::new(kept.written.to_string()).id();
            story.apply(Event::Began { round: kept.written + 1, step });
            let evaluation = match came {
                Came::Unreadable => None,
                Came::Failed => Some(Evaluation::Failed(Failure::Build { log: String::new() })),
                Came::Passed(ratio) => Some(passed(ratio)),
            };
            match evaluation {
                None => story.apply(Event::Unreadable { role: Role::Coder, why: "prose".into() }),
                Some(evaluation) => {
                    story.apply(Event::Wrote { candidate: id.clone() });
                    story.apply(Event::Evaluated { candidate: id.clone(), evaluation });
                }
            }
            kept.take(&id, came, fired, &policy).into_iter().for_each(|weighed| story.apply(Event::Weighed(weighed)));
        }
    }
}

#[test]
fn time_and_counters_together_decide_what_goes_on() {
    let over =
        |ratio: f64, half: f64| Some(Speedup { ratio, interval: Interval { low: ratio - half, high: ratio + half } });
    let (yes, no, unknown) = (Some(Fired::Yes), Some(Fired::No), Some(Fired::Unknown));
    for (over, fired, accepted, why) in [
        (None, None, true, "the first that is right"),
        (over(1.2, 0.1), yes, true, "faster, and the feature fired"),
        (over(1.2, 0.1), no, true, "faster, feature not fired: it is asked for again"),
        (over(1.2, 0.1), unknown, true, "faster; its counters are unknown, so time decides"),
        (over(1.2, 0.1), None, true, "faster"),
        (over(0.98, 0.05), yes, true, "the feature fired, and it is hardly slower"),
        (over(1.02, 0.05), yes, true, "the feature fired, and it is hardly slower"),
        (over(0.96, 0.05), yes, false, "the feature fired, and it is too much slower"),
        (over(1.02, 0.05), no, false, "not faster, feature not fired"),
        (over(1.02, 0.05), unknown, false, "not faster; its counters are unknown, so time decides"),
        (over(1.02, 0.05), None, false, "not faster"),
    ] {
        assert_eq!(decide(over.as_ref(), fired, 0.03), (accepted, why), "{over:?} {fired:?}");
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
fn nothing_ranks_what_an_emulator_ran_so_every_policy_ends_with_the_first_that_is_right() {
    let evaluation = Evaluation::Counted(Counts { processor: Processor::K1, cases: vec![] });
    for (name, story, id) in ends_with_the_first(&evaluation, End::Counted) {
        assert!(story.best().is_none() && story.counted().is_some_and(|(counted, _)| *counted == id), "{name}");
    }
}

#[test]
fn nothing_ranks_what_was_compiled_alone_so_every_loop_ends_with_the_first_that_compiles() {
    let evaluation = Evaluation::Compiled(CodeObject { arch: Gfx::Gfx90a, kernels: vec![] });
    for (name, story, id) in ends_with_the_first(&evaluation, End::Compiled) {
        assert!(story.best().is_none() && story.compiled().is_some_and(|(compiled, _)| *compiled == id), "{name}");
    }
}

/// Every policy without a sequence ends so where each candidate came to this: the story, and its last candidate.
#[expect(clippy::unwrap_used, reason = "a test may")]
fn ends_with_the_first(evaluation: &Evaluation, end: End) -> Vec<(&'static str, Trajectory, CandidateId)> {
    let mut ended = vec![];
    for name in Policy::names() {
        let policy = Policy::parse(Policy::embedded(name).unwrap()).unwrap();
        let (mut story, id) = (Trajectory::default(), Candidate::new("right").id());
        if policy.sequence.is_some() {
            continue; // What was counted is refused before it begins, and what compiles goes through all of it.
        }
        let mut came = |round: u32, text: &str| {
            let ControlFlow::Continue(step) = next(&story, &policy) else { panic!("{name} does not go on") };
            let candidate = Candidate::new(text).id();
            story.apply(Event::Began { round, step: step.clone() });
            story.apply(Event::Wrote { candidate: candidate.clone() });
            story.apply(Event::Evaluated { candidate, evaluation: evaluation.clone() });
            step
        };
        // The reference is no candidate, however right it is.
        if came(0, if policy.start == Start::Baseline { "reference" } else { "right" }) == Step::Baseline {
            assert_eq!(came(1, "right"), Step::Seed, "{name}");
        }
        assert_eq!(next(&story, &policy), ControlFlow::Break(end), "{name}");
        ended.push((name, story, id));
    }
    ended
}

#[test]
fn approaches_are_ranked_before_a_first_candidate_alone() {
    let text = Policy::embedded("hawkeye").unwrap().replace("start = \"seed\"", "start = \"baseline\"");
    let err = Policy::parse(&text).unwrap_err().to_string();
    assert!(err.contains("approaches: ") && err.contains("expected start = \"seed\""), "{err}");
}

#[test]
fn an_approach_gives_way_to_the_next_where_its_first_candidate_failed_and_only_there() {
    let approaches = Approaches { items: ["a", "b", "c"].map(String::from).into() };
    let mut story = Trajectory::default();
    let mut seed = |round: u32, came: &dyn Fn(CandidateId) -> Event| {
        story.apply(Event::Began { round, step: Step::Seed });
        if round == 1 {
            story.apply(Event::Ranked { approaches: approaches.clone() });
        }
        let candidate = Candidate::new(format!("{round}")).id();
        story.apply(Event::Wrote { candidate: candidate.clone() });
        story.apply(came(candidate));
        story.next_approach(round + 1).map(|(_, at)| at)
    };
    let evaluated =
        |evaluation: Evaluation| move |candidate| Event::Evaluated { candidate, evaluation: evaluation.clone() };
    let not_timed = |candidate| Event::NotTimed { candidate, why: "others use the GPU".into() };
    let failed = evaluated(Evaluation::Failed(Failure::Build { log: String::new() }));
    assert_eq!(seed(1, &not_timed), Some(0), "it was right");
    assert_eq!((seed(2, &failed), seed(3, &evaluated(passed(2.0)))), (Some(1), Some(1)));
    assert_eq!((seed(4, &failed), seed(5, &failed)), (Some(2), None));
    assert_eq!(story.next_approach(2).map(|(_, at)| at), Some(0), "as it was before the second");
}

#[test]
fn a_key_that_no_policy_has_is_an_error_that_names_it() {
    let text = Policy::embedded("astra").unwrap().replace("rounds", "round");
    let err = Policy::parse(&text).unwrap_err().to_string();
    assert!(err.contains("unknown field `round`") && err.contains("line"), "{err}");
}
