//! Clocks, and what disturbs them.

pub(crate) mod clock;
pub(crate) mod watch;
