//! What was read of a kernel that was timed and profiled: a row of a table, before it is one.

use serde::{Deserialize, Serialize};

/// Where a profile was taken: what another machine would read otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// As compilers name it: `sm_90`.
    pub architecture: String,
    /// The GPU, as it calls itself.
    pub gpu: String,
    /// The driver's version.
    pub driver: String,
    /// The version of Nsight Compute.
    pub ncu: String,
}

/// How a kernel was launched, as far as it was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The grid, in blocks: `(4096, 1, 1)`.
    pub grid: Option<String>,
    /// The block, in threads.
    pub block: Option<String>,
    /// Registers a thread.
    pub registers: Option<u32>,
    /// Shared memory of a block, static and dynamic, in bytes.
    pub shared_bytes: Option<u64>,
}

/// One metric of one kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The metric, as Nsight Compute calls it.
    pub metric: String,
    /// The value's unit, as printed; empty for a plain number.
    pub unit: String,
    /// What it read; `None` where it read nothing.
    pub value: Option<f64>,
}

/// One candidate of a task, timed and profiled with the full set. The kernel that its time is spent in stands for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiled {
    /// The task's name.
    pub task: String,
    /// The candidate, by the hash of its source.
    pub kernel: String,
    /// The name of the kernel that was profiled.
    pub kernel_name: String,
    /// How that was launched.
    pub launch: Launch,
    /// The verified time of the candidate on its task, in nanoseconds: measured without a profiler.
    pub runtime_ns: f64,
    /// Where it was profiled.
    pub setup: Setup,
    /// What was read, no metric twice.
    pub measured: Vec<Measured>,
}
