//! Every test of the measuring from outside, as one program: each file for itself would be linked anew, and at the end of each the
//! cores would wait.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod again;
mod file;
mod python;

mod beside;
mod candidates;
mod cheats;
mod comparison;
mod counters;
mod cuda_objects;
mod eight_bits;
mod emulated;
mod extensions;
mod families;
mod hip;
mod hlsl;
mod load;
mod misbehaving;
mod own_evaluation;
mod primitives;
mod profiler;
mod quantizers;
mod references;
mod simulated;
mod tiling;
mod torch;
mod torch_processes;
