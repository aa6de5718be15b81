//! How does a task, a machine, a failure or a measurement read inside a template?
//!
//! Each function here turns one type into the plain values that templates name.

mod failure;
mod machine;
mod measurement;
mod roofs;
mod task;
mod text;

pub(crate) use failure::failure;
pub(crate) use machine::{bytes, machine};
pub(crate) use measurement::{products, profile, timed, tokens};
pub(crate) use task::{candidate, scalars_that_vary, task};
pub(crate) use text::{clean, cut_line, fenced, one_line};
