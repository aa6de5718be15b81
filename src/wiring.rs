//! Which real thing stands behind each port?

mod machine;
mod model;

pub use machine::{CHILD, cache_folder, cuda, has_gpu, is_cuda, is_problem, native, torch};
pub use model::{Answering, Spec, unpriced};
