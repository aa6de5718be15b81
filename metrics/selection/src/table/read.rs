//! Is this file a table of profiles, and what does it hold?

use super::{
    COLUMNS, Measured, Profiled, Table, TableError,
    columns::{Columns, say},
    seal,
    write::finite,
};
use polars::prelude::*;
use std::{
    io::Cursor,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 30;
/// What a Parquet file begins and ends with.
const MAGIC: &[u8] = b"PAR1";

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Where it cannot be read or is no such table: which column, which row, what was expected.
    pub fn read(path: &Path) -> Result<Self, TableError> {
        let length = std::fs::metadata(path).map_err(TableError::io(path))?.len();
        if length > LARGEST {
            return Err(TableError::no_table(path, format!("it has {length} bytes, more than {LARGEST}")));
        }
        Self::of_bytes(path, std::fs::read(path).map_err(TableError::io(path))?)
    }

    /// Reads what was read from a file.
    ///
    /// # Errors
    ///
    /// Where it is no such table.
    pub fn of_bytes(path: &Path, bytes: Vec<u8>) -> Result<Self, TableError> {
        whole(path, &bytes)?;
        let names = COLUMNS.iter().map(|(name, ..)| (*name).to_owned()).collect();
        // What is broken inside a file makes polars err here and panic there.
        let head = || {
            let mut reader = ParquetReader::new(Cursor::new(bytes.as_slice()));
            let schema = reader.schema()?;
            PolarsResult::Ok((schema, reader.get_metadata()?.key_value_metadata().clone().unwrap_or_default()))
        };
        let (schema, pairs) = broken(path, catch_unwind(AssertUnwindSafe(head)))?;
        let sealed = pairs.into_iter().find(|pair| pair.key == seal::KEY);
        if sealed.is_some_and(|sealed| sealed.value != seal::seal(&bytes)) {
            return Err(TableError::no_table(path, "it is not what was written: its pages were changed or damaged"));
        }
        for (name, expected, _) in &COLUMNS {
            let Some(field) = schema.get(name) else {
                return Err(TableError::column(path, name, format!("it is missing; expected {expected}")));
            };
            let found = DataType::from_arrow_field(field);
            if found != *expected {
                return Err(TableError::column(path, name, format!("it is of type {found}; expected {expected}")));
            }
        }
        let read = || ParquetReader::new(Cursor::new(bytes)).with_columns(Some(names)).finish();
        let frame = broken(path, catch_unwind(AssertUnwindSafe(read)))?;
        Self::checked(path, &frame)
    }

    /// The rows of several tables as one.
    ///
    /// # Errors
    ///
    /// Where a kernel of a task is in two of them.
    pub fn joined(tables: Vec<(&Path, Self)>) -> Result<Self, TableError> {
        let mut all: Option<DataFrame> = None;
        let mut last = Path::new("");
        for (path, table) in tables {
            all = Some(match all {
                None => table.frame,
                Some(all) => all.vstack(&table.frame).map_err(|e| TableError::no_table(path, e.to_string()))?,
            });
            last = path;
        }
        Self::checked(last, &all.unwrap_or_default())
    }

    /// The profiles, in the order of task and kernel.
    #[must_use]
    pub fn profiles(&self) -> Vec<Profiled> {
        let columns = Columns::of(&self.frame);
        let mut profiles: Vec<Profiled> = vec![];
        for row in 0..self.frame.height() {
            if row == 0 || !columns.same_kernel(row) {
                profiles.push(columns.profile(row));
            }
            let (metric, unit) = (say(columns.metric, row), say(columns.unit, row));
            let measured = Measured { metric, unit, value: finite(columns.value.get(row)) };
            if let Some(profile) = profiles.last_mut() {
                profile.measured.push(measured);
            }
        }
        profiles
    }

    fn checked(path: &Path, frame: &DataFrame) -> Result<Self, TableError> {
        if frame.height() == 0 {
            return Err(TableError::no_table(path, "it has no rows"));
        }
        for (name, _, may_lack) in COLUMNS {
            let column = frame.column(name).expect("it was read");
            if !may_lack && let Some(row) = hole(column) {
                return Err(TableError::column(path, name, format!("row {row} has no value; every row needs one")));
            }
        }
        let frame = frame.sort(["task", "kernel", "metric"], SortMultipleOptions::default().with_maintain_order(true));
        let frame = frame.map_err(|e| TableError::no_table(path, e.to_string()))?;
        let table = Self { frame };
        table.consistent(path)?;
        Ok(table)
    }

    /// No row twice, every kernel with one time on one machine.
    fn consistent(&self, path: &Path) -> Result<(), TableError> {
        let columns = Columns::of(&self.frame);
        for row in 0..self.frame.height() {
            let time = columns.runtime_ns.get(row).unwrap_or(f64::NAN);
            if !(time.is_finite() && time > 0.0) {
                let why = format!("{time} is no time in ns ({})", columns.place(row));
                return Err(TableError::column(path, "runtime_ns", why));
            }
            if row == 0 || !columns.same_kernel(row) {
                continue;
            }
            if columns.metric.get(row) == columns.metric.get(row - 1) {
                let why = format!("a row stands there twice: {}", columns.place(row));
                return Err(TableError::column(path, "metric", why));
            }
            if let Some(name) = columns.differs(row) {
                let why = format!("differs between two rows of one kernel: {}", columns.place(row));
                return Err(TableError::column(path, name, why));
            }
        }
        Ok(())
    }
}

/// The first row without a value.
fn hole(column: &Column) -> Option<usize> {
    if column.null_count() == 0 {
        return None;
    }
    column.is_null().iter().position(|null| null == Some(true))
}

/// Neither empty, nor something else, nor cut off.
fn whole(path: &Path, bytes: &[u8]) -> Result<(), TableError> {
    let why = if bytes.is_empty() {
        "it is empty"
    } else if !bytes.starts_with(MAGIC) {
        "it is no Parquet file"
    } else if bytes.len() < 12 || !bytes.ends_with(MAGIC) {
        "it is cut off: a Parquet file ends with PAR1"
    } else {
        return Ok(());
    };
    Err(TableError::no_table(path, why))
}

fn broken<T>(path: &Path, read: std::thread::Result<PolarsResult<T>>) -> Result<T, TableError> {
    match read {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(error)) => Err(TableError::no_table(path, format!("it is broken inside: {error}"))),
        Err(_) => Err(TableError::no_table(path, "it is broken inside")),
    }
}
