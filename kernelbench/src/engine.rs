//! The engine: a candidate prepared, checked, timed, profiled and certified, written once for every backend.

pub(crate) mod compare;
