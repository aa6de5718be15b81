//! Clocks, what requests are timed by, and what disturbs them.

pub(crate) mod calibration;
pub(crate) mod floor;
pub(crate) mod gpu_clock;
pub(crate) mod numbers;
pub(crate) mod overhead;
pub(crate) mod pairs;
pub(crate) mod reading;
pub(crate) mod watch;
