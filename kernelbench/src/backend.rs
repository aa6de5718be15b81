//! Backends: the CPU, CUDA without Python, and torch.

pub mod cuda;
pub mod native;
pub mod torch;
