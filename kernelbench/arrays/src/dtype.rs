//! The type of an element.

use serde::{Deserialize, Serialize};

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE single.
    F32,
    /// IEEE double.
    F64,
    /// IEEE half; in C and C++ a `uint16_t` that holds its bits, in CUDA `__half`.
    F16,
    /// bfloat16; in C and C++ a `uint16_t` that holds its bits, in CUDA `__nv_bfloat16`.
    Bf16,
    /// Eight bits of floating point, OCP's E4M3; in C and C++ a `uint8_t` that holds its bits, in CUDA `__nv_fp8_e4m3`.
    E4m3,
    /// 32-bit signed.
    I32,
    /// 64-bit signed.
    I64,
}

impl Dtype {
    /// Bytes an element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::E4m3 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
}
