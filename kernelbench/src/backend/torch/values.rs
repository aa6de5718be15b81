//! Values as the wire to Python writes them down: trees whose tensors are places in memory.

use serde::{Deserialize, Serialize};

/// Inputs, as the verifier laid them out.
pub(crate) type Input = Written<InputTensor>;
/// An output, as the process describes it that made it.
pub(crate) type Output = Written<OutputTensor>;

/// A Python value; tensors are what `T` says of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Written<T> {
    Scalar(Scalar),
    List(Vec<Self>),
    Other(Kind<T>),
}

/// A value that JSON has no form for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind<T> {
    Tensor(T),
    /// As Python's `repr` writes it.
    Float(String),
    Dtype(String),
    Tuple(Vec<Written<T>>),
    Dict(Vec<(Scalar, Written<T>)>),
}

/// A value that JSON has a form for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Scalar {
    None(()),
    Bool(bool),
    Int(serde_json::Number),
    Text(String),
}

/// A tensor in an arena.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InputTensor {
    /// Its first byte there.
    pub(crate) at: u64,
    pub(crate) shape: Vec<u64>,
    pub(crate) dtype: String,
}

/// A tensor that a process put out. Nothing of it is believed before the verifier has held it against the reference's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OutputTensor {
    pub(crate) shape: Vec<u64>,
    /// In elements.
    pub(crate) stride: Vec<u64>,
    pub(crate) dtype: String,
    /// `cpu` or `cuda`.
    pub(crate) device: String,
    /// Its first byte, in that process.
    pub(crate) address: u64,
    /// From its first byte to its last.
    pub(crate) bytes: u64,
    /// Its first byte in the arena of inputs, where it lies there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inside: Option<u64>,
    /// The allocation that it lies in, by its interprocess handle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handle: Option<String>,
    /// Its first byte there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<u64>,
    /// Bytes of that allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) room: Option<u64>,
}

impl<T> Written<T> {
    /// The tensors, in the order in which they are written down.
    pub(crate) fn tensors(&self) -> Vec<&T> {
        match self {
            Self::Scalar(_) | Self::Other(Kind::Float(_) | Kind::Dtype(_)) => vec![],
            Self::List(items) | Self::Other(Kind::Tuple(items)) => items.iter().flat_map(Self::tensors).collect(),
            Self::Other(Kind::Dict(items)) => items.iter().flat_map(|(_, item)| item.tensors()).collect(),
            Self::Other(Kind::Tensor(tensor)) => vec![tensor],
        }
    }

    /// The same, to be changed.
    pub(crate) fn tensors_mut(&mut self) -> Vec<&mut T> {
        match self {
            Self::Scalar(_) | Self::Other(Kind::Float(_) | Kind::Dtype(_)) => vec![],
            Self::List(items) | Self::Other(Kind::Tuple(items)) => {
                items.iter_mut().flat_map(Self::tensors_mut).collect()
            }
            Self::Other(Kind::Dict(items)) => items.iter_mut().flat_map(|(_, item)| item.tensors_mut()).collect(),
            Self::Other(Kind::Tensor(tensor)) => vec![tensor],
        }
    }
}
