//! What does the framework's call of an operator look like, as far as a kernel in its place must know?

use crate::Error;
use kernelbench::{Case, Number};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Operators by name, as `operators` describes them.
const OPERATORS: [(&str, &str); 15] = [
    ("fused_add_rmsnorm", include_str!("../../operators/fused_add_rmsnorm.toml")),
    ("fused_add_rmsnorm_group_quant_fp8", include_str!("../../operators/fused_add_rmsnorm_group_quant_fp8.toml")),
    ("gelu_and_mul", include_str!("../../operators/gelu_and_mul.toml")),
    ("gelu_tanh_and_mul", include_str!("../../operators/gelu_tanh_and_mul.toml")),
    ("merge_attn_states", include_str!("../../operators/merge_attn_states.toml")),
    ("per_token_group_quant", include_str!("../../operators/per_token_group_quant.toml")),
    ("per_token_quant_fp8", include_str!("../../operators/per_token_quant_fp8.toml")),
    ("qknorm", include_str!("../../operators/qknorm.toml")),
    ("qknorm_rope", include_str!("../../operators/qknorm_rope.toml")),
    ("rmsnorm", include_str!("../../operators/rmsnorm.toml")),
    ("rope", include_str!("../../operators/rope.toml")),
    ("silu_and_mul", include_str!("../../operators/silu_and_mul.toml")),
    ("silu_and_mul_group_quant_fp8", include_str!("../../operators/silu_and_mul_group_quant_fp8.toml")),
    ("silu_and_mul_quant_fp8", include_str!("../../operators/silu_and_mul_quant_fp8.toml")),
    ("topk_sum", include_str!("../../operators/topk_sum.toml")),
];
/// How each is called from Python, once compiled.
const ENTRIES: &str = include_str!("entries.toml");

/// What putting back reads of an operator's description.
#[derive(Debug, Deserialize)]
pub struct Interface {
    /// Its exports' expressions, with `{T}` for the type.
    #[serde(default)]
    pub exports: Vec<String>,
    /// The schema of an operator that was compiled ahead of time.
    #[serde(default)]
    pub schema: String,
    /// What its original is compiled with.
    #[serde(default)]
    pub flags: Vec<String>,
    /// What holds for every call.
    #[serde(default)]
    pub constraints: Vec<String>,
    /// SGLang's own tests of it.
    #[serde(default)]
    pub tests: Vec<String>,
    /// How the framework's Python calls it.
    pub call: Value,
    /// Its arguments.
    pub argument: Vec<Argument>,
    /// What a chain's steps hand over.
    #[serde(default)]
    pub between: Vec<Argument>,
    /// When an output counts as the same, by type.
    pub tolerance: BTreeMap<String, Value>,
    /// The shapes of the loop.
    #[serde(default)]
    pub case: Vec<Value>,
    /// The shapes of the certificate.
    #[serde(default)]
    pub final_case: Vec<Value>,
    /// How it is called once it is compiled.
    #[serde(skip)]
    pub entry: Entry,
}

/// How an operator is called once it is compiled.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What is passed to the export, in order: arguments, or fixed texts in quotes.
    #[serde(default)]
    pub passed: Vec<String>,
    /// Functions of other libraries that the framework calls for it.
    #[serde(default)]
    pub functions: Vec<Value>,
    /// The shapes that validation alone uses.
    #[serde(default)]
    pub validation: Vec<Value>,
    /// Of a chain: the layers in which its steps follow one another, and the steps.
    #[serde(default)]
    pub chain: Option<Value>,
    /// How to say it in PyTorch, for FlashInfer-Bench.
    #[serde(default)]
    pub reference: String,
}

/// An argument of an operator.
#[derive(Clone, Debug, Deserialize)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// Its type; `T` is the operator's.
    pub dtype: String,
    /// Sizes; none for a number.
    #[serde(default)]
    pub shape: Vec<String>,
    /// Which way its content goes.
    pub transfer: Option<String>,
    /// What it holds.
    pub fill: Option<Value>,
}

impl Argument {
    /// Its type, where the operator's is this.
    #[must_use]
    pub fn dtype(&self, dtype: &str) -> String {
        if self.dtype == "T" { dtype.to_owned() } else { self.dtype.clone() }
    }

    /// Whether it is an array.
    #[must_use]
    pub fn is_array(&self) -> bool {
        !self.shape.is_empty()
    }

    /// Whether it is written.
    #[must_use]
    pub fn is_written(&self) -> bool {
        matches!(self.transfer.as_deref(), Some("out" | "in-out"))
    }
}

impl Interface {
    /// That of this operator.
    ///
    /// # Errors
    ///
    /// If this program does not know it.
    pub fn of(operator: &str) -> Result<Self, Error> {
        let text = OPERATORS.iter().find(|(name, _)| *name == operator).map(|(_, text)| *text).ok_or_else(|| {
            let names: Vec<_> = OPERATORS.iter().map(|(name, _)| *name).collect();
            Error::request(format!(
                "{}: this version cannot put this operator back; it knows {}",
                kernelbench::plain(operator),
                names.join(", ")
            ))
        })?;
        let ours =
            |e: toml::de::Error| Error::machine(format!("{operator}: its description in this program is broken: {e}"));
        let mut interface: Self = toml::from_str(text).map_err(ours)?;
        let mut entries: BTreeMap<String, Entry> = toml::from_str(ENTRIES).map_err(ours)?;
        interface.entry = entries.remove(operator).unwrap_or_default();
        Ok(interface)
    }

    /// The arrays, in order.
    pub fn arrays(&self) -> impl Iterator<Item = &Argument> {
        self.argument.iter().filter(|argument| argument.is_array())
    }

    /// The names of sizes, in the order in which shapes name them.
    #[must_use]
    pub fn axes(&self) -> Vec<&str> {
        let mut axes: Vec<&str> = vec![];
        for size in self.arrays().flat_map(|argument| &argument.shape) {
            if is_name(size) && !axes.contains(&size.as_str()) {
                axes.push(size);
            }
        }
        axes
    }

    /// Which values of each axis these shapes have: all of them for an axis that a constraint names, since a kernel may be
    /// made for them, and else the least and the most. A constraint that says no more than a greatest value is none here.
    #[must_use]
    pub fn certified(&self, shapes: &[Case]) -> BTreeMap<String, Certified> {
        self.axes().into_iter().map(|axis| (axis.to_owned(), self.certified_axis(axis, shapes))).collect()
    }

    fn certified_axis(&self, axis: &str, shapes: &[Case]) -> Certified {
        let value = |case: &Case| match case.scalars.get(axis) {
            Some(Number::Integer(value)) => Some(*value),
            _ => None,
        };
        let values: BTreeSet<i64> = shapes.iter().filter_map(value).collect();
        let names_it = |text: &String| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == axis);
        let is_bound = |text: &String| text.contains("<=");
        if self.constraints.iter().filter(|text| !is_bound(text)).any(names_it) {
            Certified::Values(values.into_iter().collect())
        } else {
            Certified::Range(values.first().copied().unwrap_or(1), values.last().copied().unwrap_or(0))
        }
    }
}

/// Which values of an axis were certified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certified {
    /// These.
    Values(Vec<i64>),
    /// From the first to the second, both included.
    Range(i64, i64),
}

impl Certified {
    /// As the plug-in reads it.
    #[must_use]
    pub fn json(&self) -> Value {
        match self {
            Self::Values(values) => json!({ "values": values }),
            Self::Range(least, most) => json!({ "least": least, "most": most }),
        }
    }
}

/// Whether a size is an axis and not an expression.
#[must_use]
pub fn is_name(size: &str) -> bool {
    size.starts_with(|c: char| c.is_alphabetic()) && size.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_can_be_read_and_every_entry_is_of_one() {
        let entries: BTreeMap<String, Entry> = toml::from_str(ENTRIES).unwrap();
        for (name, _) in OPERATORS {
            let interface = Interface::of(name).unwrap();
            let known: Vec<_> = interface.argument.iter().map(|argument| argument.name.as_str()).collect();
            for passed in interface.entry.passed.iter().filter(|passed| !passed.starts_with('\'')) {
                assert!(known.contains(&passed.as_str()), "{name}: {passed} is no argument");
            }
            assert_eq!(interface.exports.is_empty(), interface.entry.passed.is_empty(), "{name}");
        }
        assert!(entries.keys().all(|name| OPERATORS.iter().any(|(known, _)| known == name)));
    }

    #[test]
    fn a_size_that_kernels_are_made_for_is_certified_by_its_values_and_a_number_of_rows_by_its_range() {
        let shapes = cases(&[json!({"tokens": 9, "hidden": 16}), json!({"tokens": 2, "hidden": 64})]);
        let certified = Interface::of("topk_sum").unwrap().certified(&shapes);
        assert_eq!(certified["tokens"], Certified::Range(2, 9), "what bounds it makes no kernel");
        assert_eq!(certified["hidden"], Certified::Values(vec![16, 64]));
    }

    /// The sizes of these shapes.
    fn cases(shapes: &[Value]) -> Vec<Case> {
        let sizes = |shape: &Value| {
            let sizes = shape.as_object().unwrap().iter();
            sizes.filter_map(|(name, value)| Some((name.clone(), Number::Integer(value.as_i64()?)))).collect()
        };
        shapes.iter().map(|shape| Case { name: String::new(), scalars: sizes(shape) }).collect()
    }

    #[test]
    fn every_operator_has_shapes_of_validation_that_are_certified_by_others() {
        for (name, _) in OPERATORS {
            let interface = Interface::of(name).unwrap();
            let known = cases(&[interface.case.clone(), interface.final_case.clone()].concat());
            let certified = interface.certified(&known);
            let shapes = cases(&interface.entry.validation);
            assert!(shapes.len() >= 3, "{name}: {} shapes of validation", shapes.len());
            for shape in shapes {
                assert!(!known.contains(&shape), "{name}: {shape:?} is known to the loop or to the certificate");
                for (axis, certified) in &certified {
                    let Number::Integer(size) = shape.scalars[axis] else { panic!("{name}: {axis}") };
                    assert!(
                        match certified {
                            Certified::Values(values) => values.contains(&size),
                            Certified::Range(least, most) => (least..=most).contains(&&size),
                        },
                        "{name}: {axis} {size} is not certified: {certified:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn sizes_that_a_kernel_may_be_made_for_are_certified_one_by_one() {
        let case = |tokens, hidden| Case {
            name: String::new(),
            scalars: [("tokens", tokens), ("hidden", hidden)].map(|(n, v)| (n.to_owned(), Number::Integer(v))).into(),
        };
        let certified =
            Interface::of("silu_and_mul").unwrap().certified(&[case(16, 4096), case(2048, 1000), case(1, 4096)]);
        assert_eq!(certified["hidden"], Certified::Values(vec![1000, 4096]));
        assert_eq!(certified["tokens"], Certified::Range(1, 2048));
    }
}
