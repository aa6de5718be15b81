//! Which operators of SGLang can be taken out, and what is to be known of each?

use kernelbench::{Dtype, Fill, Number, Transfer};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::LazyLock};

/// An operator that can be taken out, as its file in `operators/` says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operator {
    /// The name, for the command line.
    pub name: String,
    /// What it computes, for the Coder.
    pub summary: String,
    /// How the framework builds it.
    pub level: Level,
    /// Its file, as the framework names it: relative to the sources of its level.
    pub file: String,
    /// Of a chain: the operators that the framework calls one after another. Its file is then made of theirs.
    #[serde(default)]
    pub parts: Vec<String>,
    /// The types that it can be taken out in.
    pub dtypes: Vec<Precision>,
    /// The binding's name in `bindings/`.
    pub binding: String,
    /// What else the binding's text needs.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
    /// At level J, what the framework exports of the file; `{T}` is the element type's name there.
    #[serde(default)]
    pub exports: Vec<String>,
    /// At level A, the schema under which the framework registers it.
    #[serde(default)]
    pub schema: String,
    /// At level A, the name of its kernel in the published binary.
    #[serde(default)]
    pub kernel: String,
    /// The flags with which the framework compiles it for `sm_90a`.
    pub flags: Vec<String>,
    /// What must hold for a shape, as expressions in Python over the scalars.
    pub constraints: Vec<String>,
    /// SGLang's own tests of it, in its source tree.
    pub tests: Vec<String>,
    /// What else a user should know.
    #[serde(default)]
    pub notes: Vec<String>,
    /// How the framework is asked for it.
    pub call: Call,
    /// The entry's arguments, in order.
    pub argument: Vec<Argument>,
    /// Of a chain: the arrays that the framework's calls hand over, which the entry does not have.
    #[serde(default)]
    pub between: Vec<Argument>,
    /// When an output counts as the same, by type.
    pub tolerance: BTreeMap<Precision, Bounds>,
    /// The shapes of the loop.
    pub case: Vec<BTreeMap<String, Number>>,
    /// The shapes of the certificate.
    pub final_case: Vec<BTreeMap<String, Number>>,
    /// Where the gate draws further shapes from: least, most and step of each scalar, or its one value.
    pub draw: BTreeMap<String, Vec<Number>>,
}

/// How the framework builds an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Level {
    /// At run time, from one file, through tvm-ffi.
    J,
    /// Ahead of time, as an operator of torch.
    A,
}

impl Level {
    /// Its letter.
    #[must_use]
    pub fn letter(self) -> &'static str {
        match self {
            Self::J => "J",
            Self::A => "A",
        }
    }
}

/// The type of an operator's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// bfloat16.
    Bf16,
    /// Half.
    Fp16,
}

impl Precision {
    /// As users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }

    /// A task's type.
    #[must_use]
    pub fn dtype(self) -> Dtype {
        match self {
            Self::Bf16 => Dtype::Bf16,
            Self::Fp16 => Dtype::F16,
        }
    }
}

/// How the framework is asked for an operator, from Python.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Where the function is: the newest place first.
    pub modules: Vec<String>,
    /// The function.
    pub function: String,
    /// The arguments by name, in order.
    pub positional: Vec<String>,
    /// Arguments that are always the same.
    #[serde(default)]
    pub keywords: BTreeMap<String, bool>,
    /// Of a chain: what is called next.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<Call>,
}

/// An argument of the entry; without a shape it is a scalar.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// The name.
    pub name: String,
    /// The element type, `T` for the operator's.
    pub dtype: String,
    /// The extents, as expressions of the scalars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<String>>,
    /// Which way its content goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Transfer>,
    /// What it holds before the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
}

impl Argument {
    /// The element type in a task of this precision.
    #[must_use]
    pub fn dtype(&self, precision: Precision) -> &str {
        match (self.dtype.as_str(), precision) {
            ("T", Precision::Bf16) => "bf16",
            ("T", Precision::Fp16) => "f16",
            (dtype, _) => dtype,
        }
    }

    /// Its elements, as one expression.
    #[must_use]
    pub fn size(&self) -> Option<String> {
        let factor = |one: &String| if one.contains(' ') { format!("({one})") } else { one.clone() };
        Some(self.shape.as_ref()?.iter().map(factor).collect::<Vec<_>>().join(" * "))
    }
}

/// Absolute and relative.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Absolute.
    pub atol: f64,
    /// Relative.
    pub rtol: f64,
    /// Why they are as wide as they are; a task above 0.01 needs it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

const TEXTS: [&str; 15] = [
    include_str!("../operators/fused_add_rmsnorm.toml"),
    include_str!("../operators/fused_add_rmsnorm_group_quant_fp8.toml"),
    include_str!("../operators/gelu_and_mul.toml"),
    include_str!("../operators/gelu_tanh_and_mul.toml"),
    include_str!("../operators/merge_attn_states.toml"),
    include_str!("../operators/per_token_group_quant.toml"),
    include_str!("../operators/per_token_quant_fp8.toml"),
    include_str!("../operators/qknorm.toml"),
    include_str!("../operators/qknorm_rope.toml"),
    include_str!("../operators/rmsnorm.toml"),
    include_str!("../operators/rope.toml"),
    include_str!("../operators/silu_and_mul.toml"),
    include_str!("../operators/silu_and_mul_group_quant_fp8.toml"),
    include_str!("../operators/silu_and_mul_quant_fp8.toml"),
    include_str!("../operators/topk_sum.toml"),
];

/// An operator that was looked at, and cannot be taken out yet.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// What SGLang, or its kernel, is called: the first is the one for people.
    pub names: Vec<String>,
    /// Its file, relative to the sources of its level, or the library that has it.
    pub file: String,
    /// The reason.
    pub why: String,
}

impl Refused {
    /// Whether it is called so.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.names.iter().any(|one| one == name)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refusals {
    refused: Vec<Refused>,
}

static REFUSED: LazyLock<Vec<Refused>> = LazyLock::new(|| {
    let text = include_str!("../operators/refused.toml");
    toml::from_str::<Refusals>(text).expect("a test reads the embedded refusals").refused
});

/// Operators that were looked at, and why they cannot be taken out yet.
#[must_use]
pub fn refused() -> &'static [Refused] {
    &REFUSED
}

/// All that can be taken out, by name.
///
/// # Panics
/// Where an embedded operator is none, which a test rules out.
#[must_use]
pub fn all() -> Vec<Operator> {
    let read = |text: &&str| toml::from_str(text).expect("a test reads every embedded operator");
    TEXTS.iter().map(read).collect()
}

/// The one of this name.
///
/// # Errors
/// A sentence with the nearest names, where there is none; with the reason, where it is known not to come out.
pub fn named(name: &str) -> Result<Operator, String> {
    let all = all();
    if let Some(found) = all.iter().find(|operator| operator.name == name) {
        return Ok(found.clone());
    }
    if let Some(Refused { file, why, .. }) = refused().iter().find(|one| one.is(name)) {
        return Err(format!("{name:?} ({file}) cannot be taken out: {why}; `warpsmith sglang list` shows what can"));
    }
    let words = |name: &str| name.to_lowercase().split('_').map(str::to_owned).collect::<Vec<_>>();
    let shared = |other: &str| words(other).iter().filter(|word| words(name).contains(word)).count();
    let mut near: Vec<(usize, &str)> = all.iter().map(|one| (shared(&one.name), one.name.as_str())).collect();
    near.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let nearest: Vec<&str> = near.iter().filter(|(shared, _)| *shared > 0).take(3).map(|(_, name)| *name).collect();
    let nearest = if nearest.is_empty() { String::new() } else { format!("; the nearest are {}", nearest.join(", ")) };
    Err(format!(
        "{name:?} is no operator that can be taken out{nearest}; `warpsmith sglang list` shows all, and why others cannot"
    ))
}

impl Operator {
    /// The C symbol of its entry in a task.
    #[must_use]
    pub fn entry(&self) -> String {
        format!("run_{}", self.name)
    }

    /// The name of its source in a task's folder.
    #[must_use]
    pub fn source(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or(&self.file)
    }

    /// A type by its name.
    ///
    /// # Errors
    /// A sentence with those that it can be taken out in.
    pub fn precision(&self, name: &str) -> Result<Precision, String> {
        let found = self.dtypes.iter().find(|one| one.name() == name);
        let known = || self.dtypes.iter().map(|one| one.name()).collect::<Vec<_>>().join(" or ");
        found
            .copied()
            .ok_or_else(|| format!("{} cannot be taken out in {name:?}: expected --dtype {}", self.name, known()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_is_whole() {
        for operator in all() {
            let name = &operator.name;
            let all = || operator.argument.iter().chain(&operator.between);
            let known = |one: &str| all().any(|argument| argument.name == one);
            let calls = std::iter::once(&operator.call).chain(&operator.call.then);
            assert!(calls.flat_map(|call| &call.positional).all(|one| known(one)), "{name}");
            assert_eq!(operator.parts.is_empty(), operator.call.then.is_empty(), "{name}");
            assert!(operator.parts.iter().all(|part| named(part).is_ok_and(|part| part.level == Level::J)), "{name}");
            assert!(operator.dtypes.iter().all(|dtype| operator.tolerance.contains_key(dtype)), "{name}");
            let scalars: Vec<&str> =
                operator.argument.iter().filter(|a| a.shape.is_none()).map(|a| a.name.as_str()).collect();
            for case in operator.case.iter().chain(&operator.final_case) {
                assert!(scalars.iter().all(|one| case.contains_key(*one)) && case.len() == scalars.len(), "{name}");
                assert!(!operator.case.contains(case) || !operator.final_case.contains(case), "{name}: {case:?}");
            }
            assert!(scalars.iter().all(|one| operator.draw.contains_key(*one)), "{name}");
            assert_eq!(operator.level == Level::A, !operator.schema.is_empty(), "{name}");
            // What the schema says is changed must be compared.
            for changed in operator.schema.split("Tensor! ").skip(1) {
                let changed = changed.split([',', ')']).next().unwrap_or_default();
                let written = |a: &&Argument| matches!(a.transfer, Some(Transfer::Out | Transfer::InOut));
                assert!(operator.argument.iter().filter(written).any(|a| a.name == changed), "{name}: {changed}");
            }
        }
    }

    #[test]
    fn an_unknown_name_or_type_gets_the_nearest_and_one_that_cannot_be_taken_out_the_reason() {
        let near = named("silu_mul").unwrap_err();
        assert!(near.contains("silu_and_mul") && near.contains("sglang list"), "{near}");
        let far = named("moe").unwrap_err();
        assert!(!far.contains("nearest") && far.contains("sglang list"), "{far}");
        let known = named("kvcache").unwrap_err();
        assert!(known.contains("elementwise/kvcache.cuh") && known.contains("cannot draw such indices"), "{known}");
        let refused = named("topk_sum").and_then(|one| one.precision("fp16")).unwrap_err();
        assert!(refused.contains("expected --dtype bf16"), "{refused}");
    }
}
