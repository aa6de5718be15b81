//! SGLang: its operators as tasks, faster kernels put back in their place, and both compared with the original.
//!
//! What is known of its operators is data in `operators/`. An operator's file goes into the task as it is; a binding of ours
//! gives it a C entry, and the headers that it needs lie beside it. The gate says whether that is still the framework's
//! operator. Nothing here knows of models, actors or how a run is recorded.

pub mod chain;
pub mod closure;
pub mod error;
pub mod export;
pub mod extract;
pub mod gate;
pub mod inventory;
pub mod operator;
pub mod render;
pub mod speedups;
pub mod survey;
pub mod tree;
pub mod validate;

pub use error::Error;
