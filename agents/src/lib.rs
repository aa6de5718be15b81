//! The five actors, the loop that asks them, and the ports to the model and the record.
//!
//! Start reading at [`planner`]: it holds the loop.

pub mod event;
pub mod llm;
pub mod log;
pub mod policy;
pub mod trajectory;
