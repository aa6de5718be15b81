//! What `warpsmith` hands over on the standard input, as a file.

use super::Wrong;
use crate::{
    columns::parquet,
    table::{self, Profiled},
};
use metrics::columns::Columns;
use std::{
    io::{BufRead, stdin},
    path::Path,
};

/// The profiles that come in, a line of JSON each, as a table.
pub(super) fn table(out: &Path) -> Result<(), Wrong> {
    let mut profiles: Vec<Profiled> = vec![];
    for (at, line) in stdin().lock().lines().enumerate() {
        let wrong = |why: String| Wrong::new(format!("line {} of what came in: {why}; expected a profile", at + 1));
        let line = line.map_err(|e| wrong(e.to_string()))?;
        profiles.push(serde_json::from_str(&line).map_err(|e| wrong(e.to_string()))?);
    }
    Ok(table::write(out, &profiles)?)
}

/// The columns that come in, as a Parquet file.
pub(super) fn columns(out: &Path) -> Result<(), Wrong> {
    let wrong = |why: &dyn std::fmt::Display| Wrong::new(format!("{}: {why}", out.display()));
    let columns: Columns =
        serde_json::from_reader(stdin().lock()).map_err(|e| wrong(&format!("what came in are no columns: {e}")))?;
    let bytes = parquet(columns).map_err(|e| wrong(&e))?;
    std::fs::write(out, bytes).map_err(|e| wrong(&e))
}
