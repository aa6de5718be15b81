//! How do profiles become a file, the same file each time?

use super::{Measured, Profiled, Table, TableError, seal};
use polars::prelude::*;
use std::{collections::HashSet, path::Path};

impl Table {
    /// The table of these profiles, in whatever order they come.
    ///
    /// # Errors
    ///
    /// Where a profile says what a table cannot hold.
    pub fn new(profiles: &[Profiled]) -> Result<Self, TableError> {
        let mut sorted: Vec<&Profiled> = profiles.iter().collect();
        sorted.sort_by_key(|profile| (&profile.task, &profile.kernel));
        for pair in sorted.windows(2) {
            if (&pair[0].task, &pair[0].kernel) == (&pair[1].task, &pair[1].kernel) {
                return Err(TableError::profile(&pair[0].task, &pair[0].kernel, "it was profiled twice; keep one"));
            }
        }
        for profile in &sorted {
            check(profile)?;
        }
        let mut rows: Vec<(&Profiled, &Measured)> = vec![];
        for profile in sorted {
            let mut measured: Vec<&Measured> = profile.measured.iter().collect();
            measured.sort_by_key(|measured| &measured.metric);
            rows.extend(measured.into_iter().map(|measured| (profile, measured)));
        }
        Ok(Self { frame: frame(&rows) })
    }

    /// Writes it to a file, as a whole or not at all.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TableError> {
        let part = path.with_extension("parquet.part");
        std::fs::write(&part, self.bytes()).map_err(TableError::io(&part))?;
        std::fs::rename(&part, path).map_err(TableError::io(path))
    }

    /// It as a Parquet file.
    ///
    /// # Panics
    ///
    /// Never: its columns are of types that Parquet has, and memory takes all of it.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let seal = seal::seal(&self.parquet(None)).expect("what was just written has a footer");
        self.parquet(Some(KeyValueMetadata::from_static(vec![(seal::KEY.to_owned(), seal)])))
    }

    fn parquet(&self, named: Option<KeyValueMetadata>) -> Vec<u8> {
        let mut bytes = vec![];
        let writer =
            ParquetWriter::new(&mut bytes).with_compression(ParquetCompression::Zstd(None)).set_parallel(false);
        let written = writer.with_key_value_metadata(named).finish(&mut self.frame.clone());
        written.expect("the columns are of types that Parquet has");
        bytes
    }
}

fn check(profile: &Profiled) -> Result<(), TableError> {
    let wrong = |why: String| Err(TableError::profile(&profile.task, &profile.kernel, why));
    let said = [(&profile.task, "task"), (&profile.kernel, "kernel"), (&profile.setup.architecture, "architecture")];
    if let Some((_, what)) = said.iter().find(|(text, _)| text.is_empty()) {
        return wrong(format!("its {what} is not said"));
    }
    if !(profile.runtime_ns.is_finite() && profile.runtime_ns > 0.0) {
        return wrong(format!("{} ns is no time", profile.runtime_ns));
    }
    if profile.measured.is_empty() {
        return wrong("no metric was read".to_owned());
    }
    let mut seen = HashSet::new();
    match profile.measured.iter().find(|measured| measured.metric.is_empty() || !seen.insert(&measured.metric)) {
        Some(measured) => wrong(format!("the metric {:?} has no name or stands there twice", measured.metric)),
        None => Ok(()),
    }
}

fn frame(rows: &[(&Profiled, &Measured)]) -> DataFrame {
    let text = |name: &str, of: fn(&(&Profiled, &Measured)) -> String| {
        Column::new(name.into(), rows.iter().map(of).collect::<Vec<_>>())
    };
    let perhaps = |name: &str, of: fn(&(&Profiled, &Measured)) -> Option<String>| {
        Column::new(name.into(), rows.iter().map(of).collect::<Vec<_>>())
    };
    let columns = vec![
        text("task", |row| row.0.task.clone()),
        text("kernel", |row| row.0.kernel.clone()),
        text("kernel_name", |row| row.0.kernel_name.clone()),
        perhaps("grid", |row| row.0.launch.grid.clone()),
        perhaps("block", |row| row.0.launch.block.clone()),
        Column::new("registers".into(), rows.iter().map(|row| row.0.launch.registers).collect::<Vec<_>>()),
        Column::new("shared_bytes".into(), rows.iter().map(|row| row.0.launch.shared_bytes).collect::<Vec<_>>()),
        Column::new("runtime_ns".into(), rows.iter().map(|row| row.0.runtime_ns).collect::<Vec<_>>()),
        text("metric", |row| row.1.metric.clone()),
        text("unit", |row| row.1.unit.clone()),
        Column::new("value".into(), rows.iter().map(|row| finite(row.1.value)).collect::<Vec<_>>()),
        text("architecture", |row| row.0.setup.architecture.clone()),
        text("gpu", |row| row.0.setup.gpu.clone()),
        text("driver", |row| row.0.setup.driver.clone()),
        text("ncu", |row| row.0.setup.ncu.clone()),
    ];
    DataFrame::new(rows.len(), columns).expect("every column has one value for each row")
}

pub(super) fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}
