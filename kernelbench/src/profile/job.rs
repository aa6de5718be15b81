//! The files by which a process under a tool is given its job, in its folder.

/// The pipe on which it gets the job.
pub(crate) const JOB: &str = "job";
/// The file that says that it waits for its job.
pub(crate) const READY: &str = "ready";
/// The file that says that it has imported what it needs, and waits for the word to use the device.
pub(crate) const IMPORTED: &str = "imported";
/// The file that says that it waits for the word to have its profiler read a launch of its own.
pub(crate) const WARM: &str = "warm";
/// The file that says that its profiler reads a launch of its own.
pub(crate) const READING: &str = "reading";
/// The file that says that it has loaded the candidate, and waits for the word to go on.
pub(crate) const LOADED: &str = "loaded";
