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
pub use metrics::profiled::{Launch, Measured, Profiled, Setup};

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
