//! The machine as it is found here: CPU, GPU (NVML, the CUDA driver) and the cores that kernels run on.

pub(crate) mod cores;
pub mod cpu;
pub(crate) mod driver;
pub mod gpu;
