//! Profilers: Nsight Compute, perf, cachegrind and torch's own, each asked in turn, and the sanitizers beside them.

pub mod cpu;
pub(crate) mod cuda;
pub(crate) mod cuda_memcheck;
pub(crate) mod cuda_survey;
pub mod ncu;
pub(crate) mod sanitizer;
pub(crate) mod standalone;
pub(crate) mod torch;
