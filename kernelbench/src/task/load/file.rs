//! What does a `task.toml` look like?

use super::tuning::Tuning;
use crate::task::{Dtype, Fill, Language, Origin, Returns, Transfer, library::Forbidden};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// A task file as it stands there, each value with its place. Unknown keys are errors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskFile {
    pub(super) schema: Spanned<i64>,
    pub(super) name: Spanned<String>,
    pub(super) summary: Spanned<String>,
    pub(super) backend: Option<Spanned<Backend>>,
    pub(super) language: Spanned<Language>,
    pub(super) entry: Spanned<String>,
    pub(super) reference: Spanned<String>,
    pub(super) flags: Option<Vec<Spanned<String>>>,
    pub(super) binding: Option<Spanned<String>>,
    pub(super) include: Option<Spanned<String>>,
    pub(super) origin: Option<Origin>,
    #[serde(default)]
    pub(super) argument: Vec<ArgumentFile>,
    pub(super) tolerance: ToleranceFile,
    pub(super) timing: Option<TimingFile>,
    pub(super) valid_args: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) case: Vec<CaseFile>,
    #[serde(default)]
    pub(super) final_case: Vec<CaseFile>,
    #[serde(default)]
    pub(super) sanitizer_case: Vec<CaseFile>,
    #[serde(default)]
    pub(super) tuning: Tuning,
    #[serde(default)]
    pub(super) returns: Returns,
    pub(super) operations: Option<Spanned<String>>,
    pub(super) processor: Option<Spanned<String>>,
    pub(super) arch: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) baseline: Vec<BaselineFile>,
    pub(super) oracle: Option<OracleFile>,
}

/// Something to time against.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BaselineFile {
    pub(super) name: Spanned<String>,
    pub(super) source: Spanned<String>,
    #[serde(default)]
    pub(super) link: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) environment: BTreeMap<Spanned<String>, Spanned<String>>,
    #[serde(default)]
    pub(super) forbid: Forbidden,
}

/// The baseline that stands for the reference on some cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OracleFile {
    pub(super) baseline: Spanned<String>,
    pub(super) cases: Vec<Spanned<String>>,
}

/// Where a kernel runs. The language says it too; a task may say both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Backend {
    Cpu,
    Cuda,
    Hip,
    Vulkan,
}

/// An argument; without a size it is a scalar.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArgumentFile {
    pub(super) name: Spanned<String>,
    pub(super) dtype: Dtype,
    pub(super) size: Option<Spanned<String>>,
    pub(super) transfer: Option<Spanned<Transfer>>,
    pub(super) fill: Option<Spanned<Fill>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToleranceFile {
    pub(super) atol: Spanned<f64>,
    pub(super) rtol: Spanned<f64>,
    pub(super) share: Option<Spanned<f64>>,
    pub(super) why: Option<Spanned<String>>,
}

/// What a file beside a problem in Python may say of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProblemFile {
    pub(super) tolerance: ToleranceFile,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimingFile {
    pub(super) cases: Option<Spanned<String>>,
    pub(super) against: Option<Spanned<String>>,
}

/// A case: its name and, beside it, a value for each scalar.
pub(super) type CaseFile = Spanned<BTreeMap<Spanned<String>, Spanned<toml::Value>>>;
