//! Profilers: Nsight Compute, perf, cachegrind and torch's own, each asked in turn, and the sanitizers beside them.

pub(crate) mod compute_sanitizer;
pub mod cpu;
pub(crate) mod cuobjdump;
pub(crate) mod job;
pub(crate) mod kind;
pub mod ncu;
pub(crate) mod own;
pub(crate) mod sanitizer;
pub(crate) mod tool;
pub(crate) mod torch;
pub(crate) mod waiting;
