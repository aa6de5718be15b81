//! What is to be done next? A pure function of what has happened.
//!
//! Astra, CudaForge and the ablations are policies: data in `agents/policies/`, not code paths.

use crate::event::{End, Step};
use crate::head;
use crate::search::Search;
use crate::trajectory::{Round, Trajectory};
use crate::workflow::{Checkpoint, Fate, Ordered, next_of};
use kernelbench::{CandidateId, Evaluation, TimedCases, TimingPlan, Tuner};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;

/// How a task is worked on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// What it is, in a sentence, with its source.
    pub summary: String,
    /// What comes first.
    pub start: Start,
    /// How many candidates models write; the seed counts (CudaForge §3.2: 10; Astra §4: 5), and so does what is looked up.
    pub rounds: u32,
    /// Whether the Planner ranks three approaches before the first candidate is written, which then carries out the first of
    /// them, and which the Judge goes on to see (Hawkeye, Figs. 47-48).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approaches: bool,
    /// How many things the Coder may look up before it writes a candidate; what is looked up for the first time in a run counts
    /// as one of its rounds (Hawkeye §3, Fig. 47). None when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookups: Option<u32>,
    /// How many first candidates are written, each after the first in another way than the fastest so far; 1 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds: Option<u32>,
    /// After how many rounds without gain a new beginning is made; never when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<u32>,
    /// Which candidate the next round starts from.
    pub advance: Advance,
    /// With `if-fired`: by what part a candidate may be slower than the head where the feature that was asked for fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slower: Option<f64>,
    /// With `if-fired`: how often a candidate that failed is mended before the head goes on without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consults: Option<u32>,
    /// After how many rounds without a faster candidate it ends; never when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<u32>,
    /// What to do with a base that failed.
    pub on_failure: OnFailure,
    /// What to do with a base that passed.
    pub on_pass: OnPass,
    /// When the Profiler looks.
    pub profile: Profiling,
    /// Whether the Judge is told what bounds a kernel by rule, beside the numbers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bottleneck_facts: bool,
    /// Whether the first prompt shows a worked example of another task in the same language (CudaForge, Appendix D.1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worked_example: bool,
    /// What the Judge and the Coder are told of the architecture's features; nothing when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Guidance>,
    /// What a role remembers of earlier rounds.
    pub memory: Memory,
    /// What the Planner writes down after each evaluation, for the Coder of later rounds; nothing when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reflect: Option<Reflect>,
    /// Who decides on the next step.
    pub planner: Decider,
    /// Who chooses the shapes that a candidate is checked on.
    pub shapes: Shapes,
    /// How many configurations of a candidate that leaves tuning parameters open are tried, at most; 32 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configurations: Option<usize>,
    /// How the configurations of a transformed context are chosen; all where they are not more than that, else drawn ones, when
    /// left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuner: Option<Tuner>,
    /// How many of the best by brief timings are timed again in full before the fastest is told; none when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retime: Option<usize>,
    /// The transformations that are applied in this order, where the work is a workflow (PEAK §4.3); then nothing of what
    /// was said above about bases and advice counts. Where the planner is a model, it proposes those that come after them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Vec<String>>,
    /// How a generated operator is searched, where the work is to generate one (QiMeng-TensorOp §3); then nothing of what was
    /// said above about bases and advice counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
    /// How many configurations of a transformed context are drawn and compared with the reference before any is timed; 16
    /// when left out (PEAK §4.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
    /// How many of the drawn configurations of a transformed context that are right run under the sanitizers that are here
    /// too, before any is timed; none when left out. PEAK runs all of them (§4.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sanitize: Option<usize>,
    /// How many of the fastest configurations are kept for the next transformation; 128 when left out (PEAK §4.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<usize>,
    /// Which cases are timed; the task's own choice when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed: Option<TimedCases>,
    /// How timings are taken.
    pub timing: TimingPlan,
}

/// What a model that plans proposes to end the work.
pub(crate) const STOP: &str = "stop";

/// As many configurations as a policy tries that does not say.
const CONFIGURATIONS: usize = 32;

/// As many configurations as are drawn, and kept, where a policy does not say (PEAK §4.3).
const SAMPLES: usize = 16;
const KEPT: usize = 128;

impl Policy {
    /// How many configurations of a transformed context are drawn and compared with the reference.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.samples.unwrap_or(SAMPLES).max(1)
    }

    /// How many of the fastest configurations are kept for the next transformation.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.keep.unwrap_or(KEPT).max(1)
    }

    /// How many configurations of a candidate that leaves tuning parameters open are tried, at most.
    #[must_use]
    pub fn tests(&self) -> usize {
        self.configurations.unwrap_or(CONFIGURATIONS)
    }
}

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// The Coder writes a first candidate.
    Seed,
    /// The reference is the first candidate, as round 0.
    Baseline,
}

/// Which candidate the next round starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advance {
    /// The newest, whatever came of it (CudaForge §2.1; Astra, Algorithm 1, lines 14-16).
    Always,
    /// The newest that is correct; the newest while none is.
    IfCorrect,
    /// The newest that was faster than the one before it, which is to say the fastest; the newest while none is correct.
    IfFaster,
    /// The last that was accepted: faster than the head, or hardly slower and with the feature that was asked for
    /// (Hawkeye, E.1); what failed is mended first.
    IfFired,
}

/// What to do with a base that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The Judge gives one fix, the Coder mends.
    Fix,
    /// The Coder mends by itself, with the evidence.
    Refine,
    /// The Coder goes on, knowing only that it failed.
    Retry,
    /// The Coder starts anew from the task.
    Seed,
    /// The Planner suggests, the Coder applies.
    Suggest,
}

/// What to do with a base that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnPass {
    /// The Judge gives one optimization, the Coder applies it.
    Optimize,
    /// The Coder goes on by itself, with the evidence.
    Refine,
    /// The Coder goes on, knowing only that it passed.
    Retry,
    /// The Planner suggests, the Coder applies.
    Suggest,
}

/// When the Profiler looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profiling {
    /// At a base that passed.
    Passed,
    /// Is asked about every base; for one that failed the record says that nothing was measured (Astra, Algorithm 1, line 12).
    Always,
    /// Never.
    Never,
}

/// What a role remembers of earlier rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// Nothing: every call is built from the current round alone (CudaForge, Appendix D.2).
    None,
    /// The Coder sees its own conversation (Astra §5.2, the single agent).
    Conversation,
    /// The Judge sees which changes of its candidate were tried and what came of them, where candidates are weighed those of
    /// earlier ones that were taken back too, and a new beginning sees the fastest candidate so far, to go another way.
    Tried,
}

/// In what form is written down what rounds taught?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reflect {
    /// Reflections, one insight each, which add up (Hawkeye, Figs. 47-48).
    Lessons,
    /// Notes that are written anew each time (Hawkeye §3: the agent that rewrites its skill file, as GEPA does).
    Skill,
}

/// What is told of the architecture's features (Hawkeye §2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guidance {
    /// Nothing.
    #[default]
    Off,
    /// The Judge is offered those that the measurements call for, and may name one.
    Names,
    /// The Coder is given the examples of what the Judge named, too.
    Guides,
}

/// Who decides on the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decider {
    /// The rule in [`next`].
    Rule,
    /// A model proposes, the policy checks.
    Model,
}

/// Who chooses the shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shapes {
    /// The task.
    Task,
    /// A model, asked once for ten (CudaForge, Appendix B).
    Model,
}

/// The policies that come with the program.
const EMBEDDED: &[(&str, &str)] = &[
    ("cudaforge", include_str!("../policies/cudaforge.toml")),
    ("astra", include_str!("../policies/astra.toml")),
    ("self-refine", include_str!("../policies/self-refine.toml")),
    ("correction-only", include_str!("../policies/correction-only.toml")),
    ("optimization-only", include_str!("../policies/optimization-only.toml")),
    ("single-agent", include_str!("../policies/single-agent.toml")),
    ("single-shot", include_str!("../policies/single-shot.toml")),
    ("accept-revert", include_str!("../policies/accept-revert.toml")),
    ("peak", include_str!("../policies/peak.toml")),
    ("peak-a6000-fp32", include_str!("../policies/peak-a6000-fp32.toml")),
    ("peak-a6000-fp16", include_str!("../policies/peak-a6000-fp16.toml")),
    ("peak-mi200-fp32", include_str!("../policies/peak-mi200-fp32.toml")),
    ("peak-mi200-fp16", include_str!("../policies/peak-mi200-fp16.toml")),
    ("peak-h200-fp16", include_str!("../policies/peak-h200-fp16.toml")),
    ("peak-h200-fp32", include_str!("../policies/peak-h200-fp32.toml")),
    ("peak-h200-bf16x6", include_str!("../policies/peak-h200-bf16x6.toml")),
    ("peak-x1-85", include_str!("../policies/peak-x1-85.toml")),
    ("peak-planner", include_str!("../policies/peak-planner.toml")),
    ("qimeng", include_str!("../policies/qimeng.toml")),
    ("qimeng-c", include_str!("../policies/qimeng-c.toml")),
    ("qimeng-generation", include_str!("../policies/qimeng-generation.toml")),
    ("qimeng-naive", include_str!("../policies/qimeng-naive.toml")),
    ("qimeng-no-history", include_str!("../policies/qimeng-no-history.toml")),
    ("hawkeye", include_str!("../policies/hawkeye.toml")),
    ("gepa", include_str!("../policies/gepa.toml")),
    ("warpsmith", include_str!("../policies/warpsmith.toml")),
];

impl Policy {
    /// The names of the policies that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// A policy that comes with the program, as the TOML text it is made of.
    #[must_use]
    pub fn embedded(name: &str) -> Option<&'static str> {
        EMBEDDED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Reads a policy.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and in which line.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let policy: Self = toml::from_str(text)?;
        if policy.timing.glance {
            let why = "timing.glance: a policy cannot set it, for candidates would be compared briefly; a search does for its \
                       own configurations";
            return Err(serde::de::Error::custom(why));
        }
        if policy.approaches && policy.start != Start::Seed {
            let why = "approaches: they are ranked before a first candidate is written; expected start = \"seed\"";
            return Err(serde::de::Error::custom(why));
        }
        if policy.lookups.is_some() && (policy.sequence.is_some() || policy.search.is_some()) {
            let why = "lookups: a workflow of transformations and a search look nothing up; leave it out";
            return Err(serde::de::Error::custom(why));
        }
        if policy.reflect.is_some() && (policy.sequence.is_some() || policy.search.is_some()) {
            let why = "reflect: of a workflow of transformations and of a search nothing is written down; leave it out";
            return Err(serde::de::Error::custom(why));
        }
        Ok(policy)
    }
}

/// The next step, or why there is none. Whether the Planner is a rule or a model, this decides what is allowed.
pub fn next(so_far: &Trajectory, policy: &Policy) -> ControlFlow<End, Step> {
    // Whatever the policy wants of speed, nothing ranks what an emulator ran.
    if so_far.counted().is_some() {
        return ControlFlow::Break(End::Counted);
    }
    if let Some(sequence) = &policy.sequence {
        return next_transformation(so_far, sequence, policy.planner);
    }
    if so_far.compiled().is_some() {
        return ControlFlow::Break(End::Compiled);
    }
    if let Some(search) = &policy.search {
        return next_generation(so_far, search);
    }
    if so_far.spent() >= so_far.extended_to.unwrap_or(policy.rounds) {
        return ControlFlow::Break(End::OutOfRounds);
    }
    if policy.stall.is_some_and(|bears| head::idle(so_far) >= bears) {
        return ControlFlow::Break(End::Stalled);
    }
    if begins_anew(so_far, policy) {
        return ControlFlow::Continue(Step::Seed);
    }
    ControlFlow::Continue(match (current(so_far, policy), policy.start) {
        (Some((base, evaluation)), _) => step_from(base, evaluation, policy),
        (None, Start::Baseline) if so_far.rounds.is_empty() => Step::Baseline,
        (None, _) => Step::Seed,
    })
}

/// The next step towards an operator: it is generated, mended a few times where it fails, and then searched once.
fn next_generation(so_far: &Trajectory, search: &Search) -> ControlFlow<End, Step> {
    let rounds = || so_far.finished();
    if rounds().any(|round| matches!(round.step, Step::Search { .. })) {
        return ControlFlow::Break(End::Searched);
    }
    let passed = |round: &&Round| round.evaluation.as_ref().is_some_and(|evaluation| evaluation.passed().is_some());
    if let Some(base) = rounds().rev().find(passed).and_then(|round| round.candidate.clone()) {
        let none = search.evaluations() == 0;
        return if none { ControlFlow::Break(End::Searched) } else { ControlFlow::Continue(Step::Search { base }) };
    }
    if rounds().count() > search.repairs() as usize {
        return ControlFlow::Break(End::Stuck);
    }
    let failed = rounds().rev().find(|round| round.operator.is_some()).and_then(|round| round.candidate.clone());
    ControlFlow::Continue(failed.map_or(Step::Generate, |base| Step::Repair { base }))
}

/// The next step of a workflow: the initial context; what was ordered, until it is done or every try failed; then what comes
/// next in the sequence. A step that failed in every try ends it; where a model plans, for good: what was planned behind it may
/// have moved the head, and the step is the model's to choose again.
fn next_transformation(so_far: &Trajectory, sequence: &[String], planner: Decider) -> ControlFlow<End, Step> {
    let workflow = &so_far.workflow;
    let Some(head) = workflow.head() else {
        let begun = !so_far.rounds.is_empty();
        return if begun { ControlFlow::Break(End::Stuck) } else { ControlFlow::Continue(Step::Baseline) };
    };
    let step = |from: &Checkpoint, transformation: &str| {
        let transformation = transformation.to_owned();
        ControlFlow::Continue(Step::Transform { base: from.bound.clone(), transformation })
    };
    if let Some((order, _)) = workflow.open_order(&so_far.rounds) {
        return step(workflow.checkpoint(&order.from).unwrap_or(head), &order.transformation);
    }
    let Some(next) = next_of(sequence, &workflow.behind(head)) else { return ControlFlow::Break(End::SequenceEnds) };
    let failed = |ordered: &&Ordered| ordered.fate == Fate::Open && ordered.order.transformation == next;
    let stuck = match planner {
        Decider::Rule => {
            let last = workflow.orders.iter().rev().find(|ordered| ordered.fate != Fate::Dropped);
            last.filter(failed).is_some_and(|last| last.order.from == head.id)
        }
        Decider::Model => workflow.orders.iter().any(|ordered| failed(&ordered)),
    };
    if stuck { ControlFlow::Break(End::Stuck) } else { step(head, next) }
}

/// Whether it is time for another first candidate: not as many were written as the policy wants, or rounds without gain were
/// as many as it bears.
fn begins_anew(so_far: &Trajectory, policy: &Policy) -> bool {
    let (mut seeds, mut best, mut idle) = (0, 0.0, 0);
    for round in so_far.finished().filter(|round| round.step != Step::Baseline) {
        let reached = round.evaluation.as_ref().map_or(0.0, ratio);
        let seed = round.step == Step::Seed;
        seeds += u32::from(seed);
        idle = if seed || reached > best { 0 } else { idle + 1 };
        best = reached.max(best);
    }
    (1..policy.seeds.unwrap_or(1)).contains(&seeds) || policy.restart.is_some_and(|bears| idle >= bears)
}

/// The candidate that the next round starts from, and what came of it; `None` before the first.
#[must_use]
pub fn current<'a>(so_far: &'a Trajectory, policy: &Policy) -> Option<(&'a CandidateId, &'a Evaluation)> {
    if policy.advance == Advance::IfFired {
        let base = head::base(so_far, policy.consults.unwrap_or_default())?;
        return Some((base, so_far.evaluation(base)?));
    }
    let offered =
        || so_far.finished().filter_map(|round| Some((round.candidate.as_ref()?, round.evaluation.as_ref()?)));
    let correct = || offered().filter(|(_, evaluation)| evaluation.passed().is_some());
    let chosen = match policy.advance {
        Advance::Always | Advance::IfFired => None,
        Advance::IfCorrect => correct().next_back(),
        Advance::IfFaster => correct().reduce(|best, next| if ratio(next.1) > ratio(best.1) { next } else { best }),
    };
    chosen.or_else(|| offered().next_back())
}

/// The step that a policy takes from this base.
fn step_from(base: &CandidateId, evaluation: &Evaluation, policy: &Policy) -> Step {
    let base = base.clone();
    match evaluation {
        Evaluation::Failed(_) => match policy.on_failure {
            OnFailure::Fix => Step::Fix { base },
            OnFailure::Refine => Step::Refine { base },
            OnFailure::Retry => Step::Retry { base },
            OnFailure::Seed => Step::Seed,
            OnFailure::Suggest => Step::Suggest { base },
        },
        // The reference: of its speed nothing is known that an advice could be about.
        Evaluation::Counted(_) | Evaluation::Compiled(_) => Step::Seed,
        Evaluation::Passed(_) => match policy.on_pass {
            OnPass::Optimize => Step::Optimize { base },
            OnPass::Refine => Step::Refine { base },
            OnPass::Retry => Step::Retry { base },
            OnPass::Suggest => Step::Suggest { base },
        },
    }
}

/// What a Planner may propose instead of the rule's step: the policy's own step from the current or the best candidate,
/// a new beginning, or an end. Names, as the Planner reads and writes them.
#[must_use]
pub fn allowed(so_far: &Trajectory, policy: &Policy) -> Vec<(String, ControlFlow<End, Step>)> {
    let ControlFlow::Continue(rule) = next(so_far, policy) else { return vec![] };
    let mut choices = vec![("current".to_owned(), ControlFlow::Continue(rule))];
    let best = so_far.best();
    if let Some((best, evaluation)) = best.as_ref().and_then(|b| Some((&b.candidate, so_far.evaluation(&b.candidate)?)))
    {
        choices.push(("best".to_owned(), ControlFlow::Continue(step_from(best, evaluation, policy))));
        choices.push((STOP.to_owned(), ControlFlow::Break(End::Stopped)));
    }
    choices.push(("restart".to_owned(), ControlFlow::Continue(Step::Seed)));
    choices
}

fn ratio(evaluation: &Evaluation) -> f64 {
    evaluation.passed().map_or(0.0, |timed| timed.speedup.ratio)
}

/// Whether a round with this step asks the Profiler about its base.
#[must_use]
pub fn profiles(policy: &Policy, round: &Round, base_passed: bool) -> bool {
    let uses_evidence = matches!(round.step, Step::Optimize { .. } | Step::Refine { .. } | Step::Suggest { .. });
    uses_evidence
        && match policy.profile {
            Profiling::Passed => base_passed,
            Profiling::Always => true,
            Profiling::Never => false,
        }
}
