//! What is a run without one of its parts?
//!
//! An ablation is a few variants of one run over the same tasks. Its folder holds what was asked for and a run folder a
//! variant, so that each is resumed, scored and reported like any other.

mod folder;
mod spec;
mod table;

pub use folder::{AblationFolder, Asked};
pub(crate) use spec::merge;
pub use spec::{Planned, Spec, Variant};
pub use table::{Row, Table};
