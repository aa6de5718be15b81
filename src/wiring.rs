//! Which real thing stands behind each port?

mod machine;
mod model;

pub use machine::{CHILD, cache_folder, native};
pub use model::{Answering, Spec};
