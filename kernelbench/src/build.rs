//! Compilers: the system's for C and C++, nvcc for CUDA, clang for HIP, each confined and with a cache of builds.

pub(crate) mod cache;
pub(crate) mod cc;
pub(crate) mod compiler;
pub(crate) mod flags;
pub(crate) mod hip;
pub(crate) mod hlsl;
pub(crate) mod nvcc;
pub(crate) mod script;
mod shaders;
pub(crate) mod unit;
