//! Every test of the agents from outside, as one program: each file for itself would be linked anew, and at the end of each the
//! cores would wait.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod batches;
mod endpoint;
mod story;

mod ablations;
mod devices;
mod hawkeye;
mod llm_mailbox;
mod llm_openai;
mod llm_openai_batch;
mod llm_replay;
mod lookups;
mod messages;
mod policy;
mod reflect;
mod search;
mod survive;
mod work;
mod workflow;
