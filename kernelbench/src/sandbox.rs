//! Confined child processes: started, filtered, asked, and blamed when they fail.

pub(crate) mod confine;
pub(crate) mod driver_filter;
pub(crate) mod enclose;
pub(crate) mod filter;
pub(crate) mod launch;
pub(crate) mod peer;
pub(crate) mod process;
pub(crate) mod spawn;
pub(crate) mod tree;
