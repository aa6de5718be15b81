//! Every test of the program from outside, as one program: each file for itself would be linked anew, and at the end of each the
//! cores would wait.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../agents/tests/batches/mod.rs"]
mod batches;
mod browser;
mod crowd;
#[path = "../agents/tests/endpoint/mod.rs"]
mod endpoint;
mod program;

mod ablate;
mod architecture;
mod batch;
mod bias;
mod cli;
mod cuda;
mod dist;
mod features;
mod finish;
mod format;
mod handover;
mod hip;
mod invariants;
mod leases;
mod lookups;
mod manners;
mod mistakes;
mod openai;
mod openai_batch;
mod peak;
mod prompts;
mod putback;
mod qimeng;
mod readme;
mod reflect;
mod replay;
mod results;
mod resume;
mod roles;
mod same_code;
mod sampling;
mod scores;
mod sglang;
mod shapes;
mod show;
mod tuning;
mod verify;
mod version;
