//! The search over bindings: which values of a candidate's open tuning parameters make it fastest?
//!
//! Configurations are drawn spread over the task's space. Each is built, checked and timed briefly. A
//! configuration that its entry calls invalid is pruned; one that fails is kept with its failure (PEAK §3.3). As soon as one
//! is right the others are built side by side; where the first few all fail, the others are not tried.

use super::{TimingPlan, Workshop};
use crate::{
    build::compiler::NOT_IN_TIME,
    result::{
        candidate::{Candidate, CandidateId},
        code_object::CodeObject,
        evaluation::{Evaluation, Timed},
        failure::{Failure, Fault},
    },
    task::{
        Task,
        space::{Bindings, Space},
    },
};
use futures::{StreamExt, future, stream};
use metrics::{Interval, Speedup, Statistic};
use serde::{Deserialize, Serialize};

/// Samples of each side that a glance at a configuration takes, at most.
const GLANCE: u32 = 7;
/// Configurations that fail before any is right, after which the others are not tried.
const HOPELESS: usize = 4;
/// What configurations are drawn by; always the same, so that a record can be made again.
const SEED: u64 = 0;

/// What came of one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// Its entry says that it is none.
    Invalid,
    /// It failed.
    Failed(Failure),
    /// It is right, and by a brief timing so many times as fast as the reference.
    Ratio(f64),
    /// It compiles for a GPU that is not here: none is faster than another, and the first that does is taken.
    Compiled(CodeObject),
}

/// A configuration that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The candidate with these bindings.
    pub candidate: CandidateId,
    /// Which they are.
    pub bindings: Bindings,
    /// What came of it.
    pub found: Found,
}

impl Tried {
    /// What a workshop that remembers finds when it is asked again: a brief timing is a ratio without samples.
    #[must_use]
    pub fn evaluation(&self) -> Evaluation {
        match &self.found {
            Found::Invalid => Evaluation::Failed(Failure::Invalid { case: String::new() }),
            Found::Failed(failure) => Evaluation::Failed(failure.clone()),
            Found::Compiled(code) => Evaluation::Compiled(code.clone()),
            Found::Ratio(ratio) => {
                let speedup = Speedup { ratio: *ratio, interval: Interval { low: *ratio, high: *ratio } };
                Evaluation::Passed(Timed {
                    cases: vec![],
                    speedup,
                    statistic: Statistic::Median,
                    labels: vec![],
                    widened_by: None,
                    object: None,
                    against: None,
                })
            }
        }
    }
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// The candidate with the fastest right bindings; where none was right, with the first that failed.
    pub candidate: Candidate,
    /// What was tried, in order.
    pub tried: Vec<Tried>,
}

impl TimingPlan {
    /// The brief form of it, by which configurations are compared with one another.
    #[must_use]
    pub fn glance(&self) -> Self {
        Self { repetitions: self.repetitions.min(GLANCE), processes: Some(1), glance: true, ..*self }
    }
}

impl From<Evaluation> for Found {
    fn from(evaluation: Evaluation) -> Self {
        match evaluation {
            // Nothing ranks what was not timed; a task for an emulated processor has no parameters to search.
            Evaluation::Failed(Failure::Invalid { .. }) | Evaluation::Counted(_) => Self::Invalid,
            Evaluation::Failed(failure) => Self::Failed(failure),
            Evaluation::Passed(timed) => Self::Ratio(timed.speedup.ratio),
            Evaluation::Compiled(code) => Self::Compiled(code),
        }
    }
}

/// A candidate that cannot be built, and why not.
pub type Unbuilt = (CandidateId, Failure);

/// Whether a compiler was ended, by a deadline or for want of memory, rather than refused: beside others that may be theirs.
fn was_ended(failure: &Failure) -> bool {
    const SAID: [&str; 3] = [NOT_IN_TIME, "died due to signal", "Killed signal terminated"];
    matches!(failure, Failure::Build { log } | Failure::Interface { log } if SAID.iter().any(|said| log.contains(said)))
}

/// Builds some side by side on all cores, and says which the compiler refuses, and why; whatever else keeps one from being built
/// shows when it is evaluated. Where whole steps are asked for elsewhere, each of which builds for itself, nothing is built.
pub async fn build_ahead(workshop: &dyn Workshop, task: &Task, candidates: Vec<Candidate>) -> Vec<Unbuilt> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let here = if workshop.elsewhere().is_some() { vec![] } else { candidates };
    let build = |candidate: Candidate| async move {
        let built = workshop.build(task, &candidate).await;
        let refused = built.ok().and_then(Result::err).filter(|failure| !was_ended(failure));
        refused.map(|failure| (candidate.id(), failure))
    };
    stream::iter(here).map(build).buffered(cores).filter_map(future::ready).collect().await
}

/// Searches the configurations of a space that agree with what a candidate has bound already, at most `tests` of them.
/// `evaluate` builds, checks and times one; `build` builds those that will be evaluated, side by side, for what evaluates them
/// to find them built.
///
/// # Errors
/// The machine's faults, and a space that cannot be enumerated.
pub async fn search<F, B>(
    space: &Space,
    candidate: &Candidate,
    plan: &TimingPlan,
    tests: usize,
    mut build: impl FnMut(Vec<Candidate>) -> B,
    mut evaluate: impl FnMut(Candidate, TimingPlan) -> F,
) -> Result<Tuned, Fault>
where
    F: Future<Output = Result<Evaluation, Fault>>,
    B: Future<Output = ()>,
{
    let points = space.bound(candidate.bindings()).spread(tests.max(1), SEED, "tuning").map_err(Fault::Machine)?;
    let glance = plan.glance();
    let mut tried = vec![];
    let mut best: Option<(f64, Bindings)> = None;
    let bound = |bindings: &Bindings| candidate.bound(bindings.clone());
    let mut are_built = false;
    for (at, bindings) in points.iter().enumerate() {
        if best.is_some() && !are_built {
            build(points[at..].iter().map(bound).collect()).await;
            are_built = true;
        }
        let bound = bound(bindings);
        let id = bound.id();
        let found = Found::from(evaluate(bound, glance).await?);
        if matches!(found, Found::Compiled(_)) {
            tried.push(Tried { candidate: id, bindings: bindings.clone(), found });
            return Ok(Tuned { candidate: candidate.bound(bindings.clone()), tried });
        }
        if let Found::Ratio(ratio) = found
            && best.as_ref().is_none_or(|(before, _)| ratio > *before)
        {
            best = Some((ratio, bindings.clone()));
        }
        tried.push(Tried { candidate: id, bindings: bindings.clone(), found });
        if best.is_none() && tried.iter().filter(|tried| matches!(tried.found, Found::Failed(_))).count() >= HOPELESS {
            break;
        }
    }
    let failed = |tried: &&Tried| matches!(tried.found, Found::Failed(_));
    let first = || tried.iter().find(failed).or(tried.first()).map(|tried| tried.bindings.clone());
    let bindings = best.map(|(_, bindings)| bindings).or_else(first).unwrap_or_else(|| candidate.bindings().clone());
    Ok(Tuned { candidate: candidate.bound(bindings), tried })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::space::Parameter;

    fn space() -> Space {
        let numbers = (1..=6).map(Parameter::Number).collect();
        let flags = vec![Parameter::Flag(false), Parameter::Flag(true)];
        let grid = [("N".to_owned(), numbers), ("ODD".to_owned(), flags)].into();
        Space { grid, constraints: vec!["N % 2 == (1 if ODD else 0)".to_owned()] }
    }

    #[test]
    fn what_ended_a_compiler_is_no_refusal() {
        let build = |log: &str| was_ended(&Failure::Build { log: log.to_owned() });
        for log in [
            "the compiler did not end within its deadline of 240 s, and was ended\n",
            "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
            "g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.",
        ] {
            assert!(build(log), "{log}");
        }
        assert!(!build("ptxas error   : Entry function 'f' uses too much shared data (0x40800 bytes, 0x38c00 max)"));
        assert!(!was_ended(&Failure::Crash {
            case: "a".into(),
            signal: "Killed signal terminated".into(),
            stderr: String::new()
        }));
    }

    fn number(candidate: &Candidate) -> i64 {
        let Some(Parameter::Number(number)) = candidate.bindings().get("N") else { panic!("N is bound") };
        *number
    }

    /// Right for N up to 4, and faster the larger N; 5 is invalid, 6 crashes.
    fn evaluated(candidate: &Candidate, _: TimingPlan) -> Evaluation {
        let (case, id) = ("a".to_owned(), candidate.id());
        match number(candidate) {
            5 => Evaluation::Failed(Failure::Invalid { case }),
            6 => Evaluation::Failed(Failure::Crash { case, signal: "SIGSEGV".into(), stderr: String::new() }),
            n => Tried { candidate: id, bindings: Bindings::new(), found: Found::Ratio(n as f64) }.evaluation(),
        }
    }

    async fn searched(start: &Candidate, tests: usize) -> (Tuned, Vec<u32>, Vec<usize>) {
        let (mut plans, mut built) = (vec![], vec![]);
        let (space, plan) = (space(), TimingPlan::median_of(1, 30));
        let ahead = |candidates: Vec<Candidate>| {
            built.push(candidates.len());
            std::future::ready(())
        };
        let evaluate = |candidate: Candidate, plan: TimingPlan| {
            plans.push(plan.repetitions);
            std::future::ready(Ok(evaluated(&candidate, plan)))
        };
        let tuned = search(&space, start, &plan, tests, ahead, evaluate).await.unwrap();
        (tuned, plans, built)
    }

    #[tokio::test]
    async fn the_fastest_right_configuration_is_found_by_brief_timings() {
        let (tuned, plans, built) = searched(&Candidate::new("{{N}}"), 100).await;
        assert_eq!(number(&tuned.candidate), 4);
        assert_eq!(tuned.tried.len(), 6, "the product less what violates the constraint");
        assert_eq!(plans, [7, 7, 7, 7, 7, 7]);
        let pruned = tuned.tried.iter().filter(|tried| tried.found == Found::Invalid).count();
        assert_eq!(pruned, 1);
        let first = tuned.tried.iter().position(|tried| matches!(tried.found, Found::Ratio(_))).unwrap();
        assert_eq!(built, [5 - first], "what is left when one is right, at once");
    }

    #[tokio::test]
    async fn what_is_bound_stays_bound_and_what_failed_is_taken_where_nothing_is_right() {
        let bind = |n: i64| [("N".to_owned(), Parameter::Number(n))].into();
        let (tuned, _, built) = searched(&Candidate::new("{{N}} {{ODD}}").bound(bind(3)), 100).await;
        assert_eq!((number(&tuned.candidate), tuned.tried.len(), built), (3, 1, vec![]));
        let first_half = Space { constraints: vec!["N > 4".to_owned()], ..space() };
        let plan = TimingPlan::median_of(1, 30);
        let evaluate = |candidate: Candidate, plan| std::future::ready(Ok(evaluated(&candidate, plan)));
        let ahead = |_| std::future::ready(());
        let tuned = search(&first_half, &Candidate::new("{{N}}"), &plan, 100, ahead, evaluate).await.unwrap();
        assert_eq!(number(&tuned.candidate), 6, "5 is invalid, 6 crashes: {:?}", tuned.tried);
    }

    #[tokio::test]
    async fn where_the_first_few_fail_the_others_are_neither_built_nor_tried() {
        let (plan, mut asked) = (TimingPlan::median_of(1, 30), 0);
        let evaluate = |_, _| {
            asked += 1;
            let crash = Failure::Crash { case: "a".to_owned(), signal: "SIGSEGV".into(), stderr: String::new() };
            std::future::ready(Ok(Evaluation::Failed(crash)))
        };
        let build = |_| -> std::future::Ready<()> { panic!("nothing is right") };
        let tuned = search(&space(), &Candidate::new("{{N}}"), &plan, 100, build, evaluate).await.unwrap();
        assert_eq!((asked, tuned.tried.len()), (4, 4));
        assert_eq!(tuned.candidate.bindings(), &tuned.tried[0].bindings);
    }
}
