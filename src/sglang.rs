//! How does a kernel go from SGLang into a task, and a faster one back?
//!
//! What is known of its operators is data in `operators/`. An operator's file goes into the task as it is; a binding of ours
//! gives it a C entry, and the headers that it needs lie beside it. The gate says whether that is still the framework's
//! operator.

pub mod closure;
pub mod export;
pub mod extract;
pub mod gate;
pub mod inventory;
pub mod operator;
pub mod render;
pub mod tree;
