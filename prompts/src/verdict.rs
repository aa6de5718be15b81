//! What does the advice say?

use serde::{Deserialize, Serialize};

/// What the Judge says: exactly one fix or exactly one optimization (CudaForge §2.2, Appendix D.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Of a candidate that failed.
    Fix(Fix),
    /// Of a candidate that passed.
    Optimization(Optimization),
}

/// One thing to mend (CudaForge, Appendix D.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fix {
    /// What is wrong, in at most 20 words.
    pub critical_issue: String,
    /// Why that matters, in at most 35 words.
    pub why_it_matters: String,
    /// What to change, in at most 20 words.
    pub minimal_fix_hint: String,
    /// The features whose examples come along: those that the failed change was to bring in. The Judge does not name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// One thing to make faster (CudaForge, Appendix D.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Optimization {
    /// The three or four measurements that say most, by their names (CudaForge §2.2); empty where the Judge named none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// What holds it back, in at most 30 words.
    pub bottleneck: String,
    /// The features of the architecture that it brings in, the first the one that is meant; empty where it names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// What to do about it, in at most 35 words.
    pub method: String,
    /// How, in at most 35 words.
    pub plan: String,
}

/// A feature of the architecture that the Judge may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// Its name.
    pub name: String,
    /// The feature in a sentence.
    pub summary: String,
    /// What called for it, in words.
    pub why: Vec<String>,
    /// Those that may come with it in one step.
    pub coupled: Vec<String>,
}

/// What the Judge is told beside the measurements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints<'a> {
    /// Changes of this very candidate that were tried.
    pub tried: &'a [Attempted],
    /// Features that the measurements call for.
    pub offered: &'a [Offered],
    /// The approaches that the Planner ranked before the first candidate, where it did.
    pub approaches: Option<&'a Approaches>,
}

/// A change that a candidate had, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempted {
    /// What the Judge asked for.
    pub change: Optimization,
    /// What came of it, in words.
    pub came: String,
    /// Whether it was a change of an earlier candidate than the one that is looked at.
    pub earlier: bool,
}

/// What Astra's planning agent says: a short list (Astra §3.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suggestions {
    /// In order of expected gain; at least one.
    pub items: Vec<String>,
}

/// What the Planner ranked before the first candidate was written (Hawkeye, Figs. 47-48).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approaches {
    /// A, B and C, in this order.
    pub items: Vec<String>,
}

/// A reply that cannot be read as what was asked for: the model's doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);
