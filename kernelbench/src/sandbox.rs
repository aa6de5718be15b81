//! Confined child processes: started, filtered, asked, timed, and blamed when they fail.

pub(crate) mod confine;
pub(crate) mod entry;
pub(crate) mod filter;
pub(crate) mod kernel_child;
pub(crate) mod kernel_process;
pub(crate) mod layer;
pub(crate) mod peer;
pub(crate) mod pool;
pub(crate) mod process;
mod queue;
pub(crate) mod signals;
pub(crate) mod socket;
pub(crate) mod spawn;
pub(crate) mod start;
pub(crate) mod tree;
