//! The kinds of profilers for problems, in the order in which they are tried.

use serde::{Deserialize, Serialize};

/// The first profiler of the chain that is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfilerKind {
    /// CUPTI's range profiler, by the process itself.
    #[default]
    Cupti,
    /// Nsight Compute.
    Ncu,
    /// Torch's own profiler.
    Torch,
    /// The compiled code, without running it.
    Static,
    /// None: the timing and the roofline alone.
    None,
}

impl ProfilerKind {
    /// Its name, as settings write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cupti => "cupti",
            Self::Ncu => "ncu",
            Self::Torch => "torch",
            Self::Static => "static",
            Self::None => "none",
        }
    }
}
