//! The machine as it is found here: CPU, GPU (NVML) and the cores that kernels run on.

pub(crate) mod cores;
pub mod cpu;
pub mod gpu;
