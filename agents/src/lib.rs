//! The five actors, the loop that asks them, and the ports to the model and the record.
//!
//! Start reading at [`planner`]: it holds the loop. [`policy`] decides what comes next, [`trajectory`] says what has been.

pub mod answer;
pub mod coder;
pub mod crew;
pub mod device;
pub mod event;
pub mod head;
pub mod judge;
pub mod lease;
pub mod llm;
pub mod log;
pub mod notebook;
pub mod planner;
pub mod policy;
pub mod profiler;
pub mod search;
pub mod tester;
pub mod trajectory;
pub mod validator;
pub mod workflow;
