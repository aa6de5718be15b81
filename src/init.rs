//! How does a source become a task: a function in C, C++ or CUDA a folder, a module of PyTorch a problem?
//!
//! What a source does not say (which lengths, which shapes, how exact) is guessed so that the task runs, and marked in the
//! text as what to look over.

mod folder;
mod module;
mod signature;

pub use folder::task_file;
pub use module::problem;
pub use signature::{Argument, Element, Signature, signature};
