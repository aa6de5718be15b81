//! What happened? One thing at a time, in the past tense.
//!
//! Everything that is ever known of a run is a fold of these. On disk an event is one line of JSON (docs/FORMAT.md).

mod line;

pub use line::Line;

use crate::head::Weighed;
use crate::lease::{Lease, Work};
use crate::llm::{CallId, Role, Usage};
use crate::search::{Action, Point};
use crate::validator::Validated;
use crate::workflow::{Checkpoint, Order};
use kernelbench::{
    Baseline, Bindings, CandidateId, Certificate, Evaluation, Failure, Found, Hash, Hashing, Suite, Tried,
    pool::Reflection, stage::Stretch,
};
use metrics::{Machine, Profile};
use prompts::{Approaches, Lookup, Suggestions, Verdict};
use serde::{Deserialize, Serialize};

/// What a round sets out to do. `base` is the candidate that it starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Step {
    /// Take the reference itself as the first candidate: no model is asked (Astra, Algorithm 1, line 4).
    Baseline,
    /// Coder: write the first candidate, or a wholly new one.
    Seed,
    /// Judge: one fix. Coder: mend.
    Fix {
        /// The candidate that failed.
        base: CandidateId,
    },
    /// Profiler: look. Judge: one optimization. Coder: make faster.
    Optimize {
        /// The candidate that passed.
        base: CandidateId,
    },
    /// Coder alone, with all the evidence.
    Refine {
        /// The candidate to go on from.
        base: CandidateId,
    },
    /// Coder alone, knowing only whether the candidate passed.
    Retry {
        /// The candidate to go on from.
        base: CandidateId,
    },
    /// Planner: suggest. Coder: apply.
    Suggest {
        /// The candidate to go on from.
        base: CandidateId,
    },
    /// Coder: the sketch of an operator, then its primitives (QiMeng-TensorOp §3.2).
    Generate,
    /// Coder: write again what failed of an operator.
    Repair {
        /// The operator as a candidate.
        base: CandidateId,
    },
    /// Search a generated operator for its fastest form (QiMeng-TensorOp §3.3).
    Search {
        /// The operator with its first values.
        base: CandidateId,
    },
    /// Coder: apply a transformation, one region after another (PEAK §3.2).
    Transform {
        /// The checkpoint's candidate with its best bindings.
        base: CandidateId,
        /// The transformation's name.
        transformation: String,
    },
}

impl Step {
    /// The candidate that it starts from, if any.
    #[must_use]
    pub fn base(&self) -> Option<&CandidateId> {
        match self {
            Self::Baseline | Self::Seed | Self::Generate => None,
            Self::Fix { base }
            | Self::Optimize { base }
            | Self::Refine { base }
            | Self::Retry { base }
            | Self::Suggest { base }
            | Self::Repair { base }
            | Self::Search { base }
            | Self::Transform { base, .. } => Some(base),
        }
    }

    /// The step's name, as in policies and tables.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Seed => "seed",
            Self::Fix { .. } => "fix",
            Self::Optimize { .. } => "optimize",
            Self::Refine { .. } => "refine",
            Self::Retry { .. } => "retry",
            Self::Suggest { .. } => "suggest",
            Self::Generate => "generate",
            Self::Repair { .. } => "repair",
            Self::Search { .. } => "search",
            Self::Transform { .. } => "transform",
        }
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// No rounds left.
    OutOfRounds,
    /// The record that answered in a model's place holds no further reply.
    RecordEnds,
    /// The Planner proposed to stop, and the policy let it.
    Stopped,
    /// Every transformation of the sequence was applied, and none was ordered beside it.
    SequenceEnds,
    /// No faster candidate came for as many rounds as the policy bears.
    Stalled,
    /// A transformation of the sequence failed in every try, or the initial context did.
    Stuck,
    /// The search over a generated operator is over.
    Searched,
    /// A candidate is right on a processor that is emulated: nothing there says which of two is faster.
    Counted,
    /// A candidate compiles for a GPU that is not here: nothing runs, and nothing says which of two is better.
    Compiled,
    /// Whoever runs it had it ended, whatever it waited for.
    Finished,
    /// The task's limit on tokens was reached.
    TaskTokens,
    /// The task's limit on dollars.
    TaskUsd,
    /// The task's limit on wall time.
    TaskSeconds,
    /// The task's limit on time that devices were held.
    TaskGpuSeconds,
    /// The whole run's limit on tokens.
    Tokens,
    /// The whole run's limit on dollars.
    Usd,
    /// The whole run's limit on wall time.
    Seconds,
    /// The whole run's limit on time that devices were held.
    GpuSeconds,
}

impl End {
    /// The limit that was reached, by the name of its setting; `None` where the work ended by itself.
    #[must_use]
    pub fn limit(self) -> Option<&'static str> {
        Some(match self {
            Self::OutOfRounds
            | Self::RecordEnds
            | Self::Stopped
            | Self::SequenceEnds
            | Self::Stalled
            | Self::Stuck
            | Self::Searched
            | Self::Counted
            | Self::Compiled
            | Self::Finished => return None,
            Self::TaskTokens => "task_tokens",
            Self::TaskUsd => "task_usd",
            Self::TaskSeconds => "task_seconds",
            Self::TaskGpuSeconds => "task_gpu_seconds",
            Self::Tokens => "tokens",
            Self::Usd => "usd",
            Self::Seconds => "seconds",
            Self::GpuSeconds => "gpu_seconds",
        })
    }
}

/// What the Coder looked up, and what it was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookedUp {
    /// What.
    #[serde(flatten)]
    pub lookup: Lookup,
    /// What it was shown, by hash.
    pub found: Hash,
}

/// What a round taught was written down, for the Coder of later rounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflected {
    /// After which round.
    pub round: u32,
    /// Reflections; none where notes were written, or nothing could be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lessons: Vec<Reflection>,
    /// The notes, written anew, by hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<Hash>,
}

/// What happened to one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Work on the task began. Comes first, once.
    Opened {
        /// The format of this log.
        format: u32,
        /// The whole task as JSON, by hash.
        task: Hash,
        /// The task's name.
        name: String,
        /// The policy as TOML, by hash.
        policy: Hash,
        /// What answers in the model's place.
        model: String,
        /// The machine that candidates run on.
        machine: Machine,
    },
    /// The shapes were chosen; they stay.
    SuiteFrozen {
        /// Which.
        suite: Suite,
        /// Proposed shapes that were left out, and why; why there is no model's proposal.
        notes: Vec<String>,
    },
    /// The reference was built, checked and timed.
    Prepared {
        /// Its times.
        baseline: Baseline,
    },
    /// A round began.
    Began {
        /// Its number: the first is 1, a `Baseline` step is 0.
        round: u32,
        /// What it sets out to do.
        step: Step,
    },
    /// A model was asked. Comes before the question leaves.
    Asked {
        /// Which call.
        call: CallId,
    },
    /// A model answered.
    Answered {
        /// Which call.
        call: CallId,
        /// The prompt as JSON, by hash.
        prompt: Hash,
        /// The reply's text, by hash.
        reply: Hash,
        /// Who answered.
        model: String,
        /// Tokens, where counted.
        usage: Option<Usage>,
        /// Dollars, where the price is known.
        usd: Option<f64>,
        /// In milliseconds, waiting included.
        latency_ms: u64,
        /// Requests sent for it.
        requests: u32,
    },
    /// The Coder looked something up before it wrote, and was shown it.
    LookedUp(LookedUp),
    /// A reply could not be read as what was asked for.
    Misread {
        /// Which call.
        call: CallId,
        /// Why not.
        why: String,
    },
    /// The record's reply does not fit what happened here: the round goes on without it.
    PassedOver {
        /// Whose reply.
        role: Role,
        /// Why.
        why: String,
    },
    /// The Planner wrote down what a round taught.
    Reflected(Reflected),
    /// The Planner proposed a step.
    Proposed {
        /// In which round.
        round: u32,
        /// What it proposed, in its words.
        proposal: String,
        /// Whether the policy took it; otherwise its own rule decided.
        taken: bool,
    },
    /// The reference or a candidate was worked on. Comes before what that came to.
    Spent {
        /// What was done.
        work: Work,
        /// Building, before the device was asked for, in milliseconds.
        build_ms: Option<u64>,
        /// Who held which device, from when to when; nobody where it did not come to that.
        lease: Option<Lease>,
        /// What the time was spent on, in order, and how the device was held meanwhile; empty where nobody recorded it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stages: Vec<Stretch>,
    },
    /// The Profiler looked at the base.
    Profiled {
        /// Which candidate.
        candidate: CandidateId,
        /// What it saw, or why nothing was measured.
        profile: Result<Profile, String>,
    },
    /// The Judge gave its verdict on the base.
    Judged {
        /// Which candidate.
        candidate: CandidateId,
        /// What to do.
        verdict: Verdict,
    },
    /// The Planner ranked approaches, before the first candidate.
    Ranked {
        /// A, B and C.
        approaches: Approaches,
    },
    /// The Planner gave its suggestions on the base.
    Suggested {
        /// Which candidate.
        candidate: CandidateId,
        /// What to do.
        suggestions: Suggestions,
    },
    /// The Coder wrote a candidate. Its source is the blob of this name.
    Wrote {
        /// Which.
        candidate: CandidateId,
    },
    /// The Tester found the best bindings of a candidate that left tuning parameters open. What is evaluated is the bound one,
    /// whose canonical form is the blob of its name.
    Tuned {
        /// The open one.
        candidate: CandidateId,
        /// The bound one.
        bound: CandidateId,
        /// What was tried, in order.
        tried: Vec<Tried>,
    },
    /// A transformation is to be applied to a checkpoint: by the policy's sequence, or because a person asked for it.
    Ordered(Order),
    /// One drawn configuration of a candidate was built and compared with the reference, before any is timed.
    Checked {
        /// The candidate with these bindings.
        candidate: CandidateId,
        /// Which they are.
        bindings: Bindings,
        /// How it failed; none where it was right.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
        /// Whether it ran under the sanitizers that were there, too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        sanitized: bool,
    },
    /// A validator of the user's looked at one drawn configuration that is right.
    Validated {
        /// The candidate with these bindings.
        candidate: CandidateId,
        /// Which they are.
        bindings: Bindings,
        /// What the validator is called.
        validator: String,
        /// What it has to say.
        found: Validated,
    },
    /// One configuration was built, checked and timed in a search that is under way.
    Tried {
        /// Which, and what came of it.
        tried: Tried,
    },
    /// One of the best configurations by brief timings was timed again in full, in pairs with the reference.
    Retimed {
        /// Which, and what came of it.
        tried: Tried,
    },
    /// The Coder wrote an operator, or one was given: its sketch, its parameters and its primitives.
    Generated {
        /// It as JSON, by hash.
        operator: Hash,
    },
    /// A script printed primitives.
    Printed {
        /// The script, by hash.
        script: Hash,
        /// With these values.
        bindings: Bindings,
        /// What it printed, by hash; how it failed.
        text: Result<Hash, Failure>,
    },
    /// A node was made in a search, and is being evaluated.
    Expanded {
        /// Its number, from 0.
        node: usize,
        /// The node that it was made from; none for the root.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<usize>,
        /// By which action.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        action: Option<Action>,
        /// Where it stands.
        point: Point,
        /// The candidate that it is; none where its script failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        candidate: Option<CandidateId>,
    },
    /// A node was built, checked and timed.
    Simulated {
        /// Which.
        node: usize,
        /// The candidate that it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        candidate: Option<CandidateId>,
        /// What came of it; in words why it could not be timed.
        found: Result<Found, String>,
    },
    /// The actions of a node were found; later, those that are left of them.
    Offered {
        /// Which.
        node: usize,
        /// The actions.
        candidates: Vec<Action>,
        /// How many were named that are not legal, or lead to a node that there is.
        #[serde(default, skip_serializing_if = "is_none_dropped")]
        dropped: u32,
    },
    /// What a transformation, or the initial context, came to is right and was tuned; it is the head now.
    Checkpointed(Checkpoint),
    /// The head of a branch was set to a checkpoint, and that branch goes on.
    Restored {
        /// The branch.
        branch: String,
        /// The checkpoint.
        checkpoint: Hash,
        /// Whether a transformation that was under way is dropped.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        drops: bool,
    },
    /// A branch was begun at a checkpoint, and goes on.
    Branched {
        /// The branch.
        branch: String,
        /// The checkpoint.
        checkpoint: Hash,
        /// Whether a transformation that was under way is dropped.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        drops: bool,
    },
    /// A checkpoint was given a name.
    Named {
        /// The name.
        name: String,
        /// The checkpoint.
        checkpoint: Hash,
    },
    /// Before one of its calls a person had a transformation said otherwise, which orders it anew, or left it out. Ends the
    /// round.
    Steered {
        /// Which.
        transformation: String,
        /// What is to be said beside it; none where it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        say: Option<String>,
    },
    /// The Tester examined the candidate. Ends the round.
    Evaluated {
        /// Which.
        candidate: CandidateId,
        /// What came of it.
        evaluation: Evaluation,
    },
    /// A candidate that passed was weighed against the head, by its time and its counters.
    Weighed(Weighed),
    /// A candidate that passed its checks could not be timed, however often it was tried, because others used the machine.
    /// Ends the round; nobody is to blame.
    NotTimed {
        /// Which.
        candidate: CandidateId,
        /// What was seen.
        why: String,
    },
    /// No readable reply came, even when asked again. Ends the round.
    Unreadable {
        /// Whose reply.
        role: Role,
        /// Why it could not be read.
        why: String,
    },
    /// Something broke that is nobody's candidate's doing; the run stopped here and can be resumed.
    BrokeOff {
        /// What.
        why: String,
    },
    /// The best candidate was examined anew.
    Certified {
        /// The outcome.
        certificate: Certificate,
        /// The SHA-256 of the record's lines before this one and of the certificate as JSON: every text is named in these
        /// lines by its own hash, so it stands for all the evidence. None in records made before it was written down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        evidence: Option<Hash>,
    },
    /// The run ended. Comes last, but where the run is given more afterwards.
    Ended {
        /// Why.
        end: End,
    },
    /// The run was given more than it had: what ended it, if it had ended, does so no longer, and the best is certified anew.
    Extended {
        /// How many candidates models may write in all; `None` where another limit was raised.
        rounds: Option<u32>,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_none_dropped(dropped: &u32) -> bool {
    *dropped == 0
}

impl Event {
    /// The texts that it names, by hash.
    #[must_use]
    pub fn texts(&self) -> Vec<&Hash> {
        match self {
            Self::Opened { task, policy, .. } => vec![task, policy],
            Self::Answered { prompt, reply, .. } => vec![prompt, reply],
            Self::Wrote { candidate }
            | Self::Evaluated { candidate, .. }
            | Self::NotTimed { candidate, .. }
            | Self::Weighed(Weighed { candidate, .. }) => {
                vec![candidate]
            }
            Self::LookedUp(LookedUp { found: text, .. })
            | Self::Reflected(Reflected { skill: Some(text), .. })
            | Self::Generated { operator: text }
            | Self::Printed { text: Ok(text), .. } => vec![text],
            Self::Tuned { candidate, bound, .. } => vec![candidate, bound],
            Self::Ordered(order) => [&order.definition].into_iter().chain(&order.imports).collect(),
            Self::Checkpointed(Checkpoint { id, context, bound, .. }) => vec![id, context, bound],
            _ => vec![],
        }
    }

    /// Whether it costs too much to come about again to be left to the system to write down in its own time: an answer is
    /// paid for, and the others are few.
    #[must_use]
    pub fn is_dear(&self) -> bool {
        matches!(self, Self::Opened { .. } | Self::Answered { .. } | Self::Certified { .. } | Self::Ended { .. })
    }
}

/// What a certificate rests on, as one hash: the record's lines before it, and itself as JSON.
#[must_use]
pub fn evidence(mut before: Hashing, certificate: &Certificate) -> Hash {
    // Plain data always makes JSON, so nothing is ever taken in its place.
    before.take(serde_json::to_string(certificate).unwrap_or_default().as_bytes());
    before.hash()
}

/// The format that this program writes.
pub const FORMAT: u32 = 1;

/// Whether a log of this format can be read.
///
/// # Errors
///
/// What to do, if not.
pub fn readable(format: u32) -> Result<(), String> {
    if format == FORMAT {
        return Ok(());
    }
    Err(format!("this record has format {format}, this program reads format {FORMAT}: use the version that wrote it"))
}
