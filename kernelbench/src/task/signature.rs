//! The signature of a problem: the values that its module is constructed with, is called with, and gives back.
//!
//! A problem's file says these in Python; they are known once the reference has been opened, and then shown to models.

use serde::{Deserialize, Serialize};

/// The values of one problem, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Signature {
    /// What `get_init_inputs()` returns.
    pub init: Vec<ModuleValue>,
    /// What a call is given: what `get_inputs()` returns, as it is cast and laid out.
    pub inputs: Vec<ModuleValue>,
    /// The tensors that a call gives back.
    pub outputs: Vec<ModuleValue>,
    /// Floating-point operations of the reference's matrix products, convolutions and attentions in one call, two a
    /// multiply-add; `None` where they could not be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops: Option<u64>,
    /// How many operations a call takes by the file's own word, `operations`: what rates are told by, and nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stated: Option<u64>,
}

/// One value of a signature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModuleValue {
    /// What it is called: the parameter's name, and its place where it is inside a list or a dictionary.
    pub name: String,
    /// How it is laid out, where it is a tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor: Option<TensorLayout>,
    /// The value as Python writes it, where it is none; at most 80 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}

impl ModuleValue {
    /// Whether it is a tensor of an element type that begins so.
    fn is_of(&self, dtype: &str) -> bool {
        self.tensor.as_ref().is_some_and(|tensor| tensor.dtype.starts_with(dtype))
    }
}

/// How a tensor is laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorLayout {
    /// The element type by torch's name.
    pub dtype: String,
    /// The length of each axis.
    pub shape: Vec<u64>,
    /// The stride of each axis, in elements.
    pub stride: Vec<u64>,
}

impl Signature {
    /// Whether nothing of it is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a call or the constructor is given floats of eight bits, which no precision of the evaluation changes.
    #[must_use]
    pub fn draws_eight_bits(&self) -> bool {
        self.inputs.iter().chain(&self.init).any(|value| value.is_of("float8_"))
    }

    /// Whether a call is given numbers in E4M3.
    #[must_use]
    pub fn draws_e4m3(&self) -> bool {
        self.inputs.iter().any(|value| value.is_of("float8_e4m3fn"))
    }
}
