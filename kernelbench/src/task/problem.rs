//! What is a problem in KernelBench's format, and by which rules are its candidates judged?

use super::{Tolerance, signature::Signature};
use serde::{Deserialize, Serialize};

/// A problem in KernelBench's format: a Python file that defines `Model`, `get_inputs` and `get_init_inputs`. A candidate is
/// a Python file that defines `ModelNew`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// The file's text.
    pub source: String,
    /// The file's name, which `KernelBench`'s scripts call the problem by; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// The level, where its folder's name says one.
    pub level: Option<u8>,
    /// Its number within the level, where its file's name starts with one.
    pub number: Option<u32>,
    /// What floating-point weights and inputs are cast to; inputs in eight bits stay as they are drawn.
    pub precision: Precision,
    /// When an output is right by the file beside it, in whatever precision; without one the precision says that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Tolerance>,
    /// Known defects: what makes a result on it worth less than it looks.
    pub labels: Vec<String>,
    /// With which arithmetic its reference runs.
    #[serde(default, skip_serializing_if = "ReferenceMode::is_ieee")]
    pub reference: ReferenceMode,
    /// What comes of a candidate that is wrong on inputs of both signs.
    #[serde(default, skip_serializing_if = "Beyond::is_label")]
    pub beyond: Beyond,
    /// What its module is constructed with, called with, and gives back; empty until its reference has been opened.
    #[serde(default, skip_serializing_if = "Signature::is_empty")]
    pub signature: Signature,
}

/// What comes of a candidate that is right as a problem draws its inputs, and wrong on inputs of both signs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Beyond {
    /// A label: `KernelBench`'s rule does not ask for more than what is drawn.
    #[default]
    Label,
    /// It is wrong.
    Failure,
}

impl Beyond {
    /// As settings and templates say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Failure => "failure",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
    fn is_label(&self) -> bool {
        *self == Self::Label
    }
}

/// With which arithmetic a problem's reference runs, and so what candidates are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReferenceMode {
    /// As KernelBench's own evaluation: torch's defaults, with TF32 in cuDNN's convolutions, and its casts of inputs.
    KernelBench,
    /// Without TF32 anywhere, and with every input as it was drawn but for its floating-point type. Of records that do not
    /// say.
    #[default]
    Ieee,
}

impl ReferenceMode {
    /// As settings and templates say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KernelBench => "kernelbench",
            Self::Ieee => "ieee",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
    fn is_ieee(&self) -> bool {
        *self == Self::Ieee
    }
}

/// What floating-point weights and inputs are cast to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single.
    #[default]
    Fp32,
    /// Half.
    Fp16,
    /// bfloat16.
    Bf16,
}

impl Precision {
    /// Absolute and relative alike, for all elements (KernelBench's: 1e-4 in single, 1e-2 in half precision).
    #[must_use]
    pub fn tolerance(self) -> Tolerance {
        let either = if self == Self::Fp32 { 1e-4 } else { 1e-2 };
        Tolerance { atol: either, rtol: either, share: 1.0 }
    }

    /// torch's name for it.
    #[must_use]
    pub fn torch_name(self) -> &'static str {
        match self {
            Self::Fp32 => "float32",
            Self::Fp16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }

    /// Bytes an element.
    #[must_use]
    pub fn bytes(self) -> u64 {
        if self == Self::Fp32 { 4 } else { 2 }
    }
}
