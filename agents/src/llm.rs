//! Who answers? The language model, as a port.

pub mod by_hand;
pub mod chat;
pub mod mailbox;
pub mod openai;
pub mod per_role;
pub mod price;
pub mod remembering;
pub mod replay;
pub mod scripted;
pub mod seeded;

use prompts::Prompt;
use serde::{Deserialize, Serialize};
use std::{future::Future, pin::Pin};

/// A role that asks a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Writes candidates.
    Coder,
    /// Gives one fix or one optimization.
    Judge,
    /// Proposes test shapes.
    Tester,
    /// Suggests, and may propose the next step.
    Planner,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Coder, Self::Judge, Self::Tester, Self::Planner];

    /// The name, as in files and flags.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Coder => "coder",
            Self::Judge => "judge",
            Self::Tester => "tester",
            Self::Planner => "planner",
        }
    }
}

/// What a call is for: which template it was rendered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// The Coder's first candidate.
    Seed,
    /// The Coder mends, after the Judge's fix.
    Fix,
    /// The Coder makes faster, after the Judge's optimization.
    Optimize,
    /// The Coder goes on by itself, with the evidence before it.
    Refine,
    /// The Coder goes on by itself, knowing only whether the candidate passed.
    Retry,
    /// The Coder applies the Planner's suggestions.
    Apply,
    /// The Judge looks for the one fault.
    Diagnose,
    /// The Judge looks for the one bottleneck.
    Advise,
    /// The Planner ranks approaches before the first candidate.
    Approaches,
    /// The Planner suggests.
    Suggest,
    /// The Planner proposes the next step.
    Plan,
    /// The Tester proposes shapes.
    Shapes,
    /// The Coder rewrites one region, as a pass of a transformation says.
    Transform,
    /// The Coder writes the sketch of an operator.
    Sketch,
    /// The Coder writes the primitives that a sketch calls.
    Primitives,
    /// The Planner chooses one of a node's actions.
    Action,
    /// The Planner names the actions of a new node.
    Space,
    /// The Planner takes factors out of manuals.
    Extract,
    /// The Planner reads a sentence that is beyond the grammar.
    Sentence,
    /// The Planner says what a run taught, once it is over.
    Reflect,
}

impl Purpose {
    /// The name, as in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Fix => "fix",
            Self::Optimize => "optimize",
            Self::Refine => "refine",
            Self::Retry => "retry",
            Self::Apply => "apply",
            Self::Diagnose => "diagnose",
            Self::Advise => "advise",
            Self::Approaches => "approaches",
            Self::Suggest => "suggest",
            Self::Plan => "plan",
            Self::Shapes => "shapes",
            Self::Transform => "transform",
            Self::Sketch => "sketch",
            Self::Primitives => "primitives",
            Self::Action => "action",
            Self::Space => "space",
            Self::Extract => "extract",
            Self::Sentence => "sentence",
            Self::Reflect => "reflect",
        }
    }
}

/// How the part of a Coder's call begins that comes after it looked something up; then their number.
pub(crate) const AFTER_LOOKUPS: &str = "after-";

/// Which call of a run this is: by this it is found again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallId {
    /// The task's name.
    pub task: String,
    /// The round; 0 before the first.
    pub round: u32,
    /// Who asks.
    pub role: Role,
    /// What for.
    pub purpose: Purpose,
    /// Which of several calls of one purpose in a round: `2.device` is the second pass's of a transformation; empty where
    /// there is but one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// 1, or 2 when the first reply could not be read.
    pub attempt: u32,
}

impl std::fmt::Display for CallId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (role, purpose) = (self.role.name(), self.purpose.name());
        let part = if self.part.is_empty() { String::new() } else { format!(".{}", self.part) };
        write!(f, "{}.round-{}.{role}.{purpose}{part}.{}", self.task, self.round, self.attempt)
    }
}

/// One question to a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Which call this is.
    pub id: CallId,
    /// What is said.
    pub prompt: Prompt,
}

impl Call {
    /// The prompt as JSON: the text that the record keeps, and whose hash names it.
    ///
    /// # Panics
    ///
    /// Never: a prompt is strings and lists.
    #[must_use]
    pub fn prompt_json(&self) -> String {
        serde_json::to_string(&self.prompt).expect("a prompt is strings and lists")
    }
}

/// What a model said, and what it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The text.
    pub text: String,
    /// Who answered, in the endpoint's own words.
    pub model: String,
    /// Tokens, where the endpoint counts them.
    pub usage: Option<Usage>,
    /// Dollars, where the price is known.
    pub usd: Option<f64>,
    /// From the first byte sent to the last received, retries and waiting included, in milliseconds.
    pub latency_ms: u64,
    /// Requests that were sent for it: more than 1 after retries.
    pub requests: u32,
}

/// Tokens of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub input_tokens: u64,
    /// Of these, read from the provider's cache.
    pub cached_tokens: u64,
    /// Tokens of the reply, reasoning included.
    pub output_tokens: u64,
    /// Of these, reasoning.
    pub reasoning_tokens: u64,
}

/// Why no reply came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AskError {
    /// The endpoint could not be reached, or never gave a whole answer, after all retries.
    #[error("{0}")]
    Unreachable(String),
    /// The endpoint refused for good: a wrong key, an unknown model, a spent quota.
    #[error("{0}")]
    Refused(String),
    /// The reply is not there yet, and the run was told to end rather than wait.
    #[error("waiting for a reply to {0}")]
    Waiting(String),
    /// The record that answers has nothing for this round or any later one.
    #[error("{0}")]
    RecordEnds(String),
    /// The record's reply answers another question than the one that came up here.
    #[error("{0}")]
    NoFit(String),
    /// The record's prompt differs and strict mode was asked for.
    #[error("{0}")]
    Differs(String),
    /// A person wants the transformation said otherwise, before its call was made.
    #[error("to be said otherwise: {0}")]
    Rephrased(String),
    /// A person wants the transformation left out, before its call was made.
    #[error("to be left out")]
    Skipped,
}

/// A reply to come.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Reply, AskError>> + Send + 'a>>;

/// A language model: an endpoint, a mailbox, a record, or a script.
pub trait Llm: Send + Sync + 'static {
    /// What answers, for the record and the first lines of a run.
    fn describe(&self) -> String;

    /// Asks once. Retries, back-off and deadlines are the implementation's own.
    fn ask(&self, call: Call) -> Answer<'_>;
}
