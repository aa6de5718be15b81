//! What was read of many kernels, in one tidy file?
//!
//! One row for each task, kernel and metric, in the order of these three, as Parquet (zstd). The same profiles make the same
//! bytes.

mod columns;
mod error;
mod read;
mod seal;
mod write;

pub use error::TableError;

use polars::prelude::{DataFrame, DataType};

/// What one row says of its kernel and its metric, each with the type of its column and whether a row may lack it.
pub(crate) const COLUMNS: [(&str, DataType, bool); 15] = [
    ("task", DataType::String, false),
    ("kernel", DataType::String, false),
    ("kernel_name", DataType::String, false),
    ("grid", DataType::String, true),
    ("block", DataType::String, true),
    ("registers", DataType::UInt32, true),
    ("shared_bytes", DataType::UInt64, true),
    ("runtime_ns", DataType::Float64, false),
    ("metric", DataType::String, false),
    ("unit", DataType::String, false),
    ("value", DataType::Float64, true),
    ("architecture", DataType::String, false),
    ("gpu", DataType::String, false),
    ("driver", DataType::String, false),
    ("ncu", DataType::String, false),
];

/// Where a profile was taken: what another machine would read otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The metric, as Nsight Compute calls it.
    pub metric: String,
    /// The value's unit, as printed; empty for a plain number.
    pub unit: String,
    /// What it read; `None` where it read nothing.
    pub value: Option<f64>,
}

/// One candidate of a task, timed and profiled with the full set. The kernel that its time is spent in stands for it.
#[derive(Clone, Debug, PartialEq)]
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

/// The profiles of one or several files: checked, in order, no row twice.
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) frame: DataFrame,
}

impl Table {
    /// How many rows it has: one for each task, kernel and metric.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.frame.height()
    }
}

/// Writes the profiles to a file, as a whole or not at all.
///
/// # Errors
///
/// Where a profile says what a table cannot hold (a task and kernel twice, a metric twice, a time that is none), and where
/// the file cannot be written.
pub fn write(path: &std::path::Path, profiles: &[Profiled]) -> Result<(), TableError> {
    Table::new(profiles)?.write(path)
}

/// Reads the profiles of a file, in the order of task and kernel.
///
/// # Errors
///
/// Where it cannot be read or is no such table: which column, which row, what was expected.
pub fn read(path: &std::path::Path) -> Result<Vec<Profiled>, TableError> {
    Ok(Table::read(path)?.profiles())
}
