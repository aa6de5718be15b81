//! What did Nsight Compute read, of which launch, and in which units?
//!
//! Reads what `ncu --csv --page raw` prints: a row of names, a row of units, a row a launch, and around these the words of
//! ncu and of the program under it, which are no CSV.

pub(crate) mod asked;
pub(crate) mod dominant;
pub(crate) mod permit;
pub(crate) mod table;
#[cfg(test)]
mod tests;

pub use asked::{command, profile, readings};
pub use dominant::{Dominant, Launches, base, dominant, of_call};
pub use table::Unread;

pub(crate) use asked::{everything, is_called, is_of_ranges, kernels, names};
pub(crate) use permit::Permit;

use metrics::Reading;
use std::{collections::HashMap, sync::Arc};
use table::Table;

/// A kernel's duration.
pub const DURATION: &str = "gpu__time_duration.sum";
/// The columns that say which launch a row is of; all others are metrics.
const IDENTITY: [&str; 11] = [
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
];

/// All that was printed.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The launches, in order; at least one.
    pub launches: Vec<Launched>,
    /// What Nsight Compute warned of: metrics that it could not read, clocks that it left alone.
    pub warnings: Vec<String>,
}

/// One launch: its kernel, and all that was read of it.
#[derive(Clone, Debug)]
pub struct Launched {
    /// The kernel's name.
    pub kernel: String,
    /// The GPU's compute capability.
    pub capability: String,
    /// Its grid and its block, in blocks and in threads.
    pub shape: [[u64; 3]; 2],
    columns: Arc<Columns>,
    cells: Vec<Value>,
}

/// What a cell holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number, in the column's unit.
    Number(f64),
    /// Words: a name, a policy, three numbers in brackets.
    Text(String),
    /// Nothing: the cell is empty, or says `n/a`, `no data`, `nan` or `inf`.
    Absent,
}

/// One metric of one launch, as the table has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column<'a> {
    /// Its name, as Nsight Compute calls it.
    pub name: &'a str,
    /// Its unit; empty for plain counts, ratios and words.
    pub unit: &'a str,
    /// What was read.
    pub value: &'a Value,
}

/// The names and units that all launches of a table share.
#[derive(Debug)]
struct Columns {
    names: Vec<String>,
    units: Vec<String>,
    places: HashMap<String, usize>,
}

impl Capture {
    /// Reads all that `ncu --csv --page raw` and the program under it printed.
    ///
    /// # Errors
    ///
    /// Where there is no table, a table without units or launches, a row that is cut off or has too many cells, or more
    /// than one table, so that the program under ncu may have printed one of them.
    pub fn read(printed: &str) -> Result<Self, Unread> {
        let table = Table::read(printed)?;
        let places = table.names.iter().enumerate().rev().map(|(at, name)| (name.clone(), at)).collect();
        let columns = Arc::new(Columns { names: table.names, units: table.units, places });
        let launches = table.rows.into_iter().map(|row| Launched::new(&columns, &row)).collect();
        let warning = |line: &str| line.strip_prefix("==WARNING==").map(|said| said.trim().to_owned());
        Ok(Self { launches, warnings: printed.lines().filter_map(warning).collect() })
    }
}

/// The launches alone.
///
/// # Errors
///
/// As [`Capture::read`], in words.
pub fn read(printed: &str) -> Result<Vec<Launched>, String> {
    Capture::read(printed).map(|capture| capture.launches).map_err(|unread| unread.to_string())
}

impl Launched {
    fn new(columns: &Arc<Columns>, row: &[String]) -> Self {
        let text = |name: &str| columns.places.get(name).map(|at| row[*at].as_str()).unwrap_or_default();
        Self {
            kernel: text("Kernel Name").to_owned(),
            capability: text("CC").to_owned(),
            shape: ["Grid Size", "Block Size"].map(|name| triple(text(name))),
            columns: Arc::clone(columns),
            cells: row.iter().map(|cell| Value::of(cell)).collect(),
        }
    }

    /// All metrics of the launch, numbers and words, in the table's order. Of a capture of the full set, more than 2,000.
    pub fn metrics(&self) -> impl Iterator<Item = Column<'_>> {
        let named = self.columns.names.iter().zip(&self.columns.units).zip(&self.cells);
        let named = named.map(|((name, unit), value)| Column { name, unit, value });
        named.filter(|column| !IDENTITY.contains(&column.name))
    }

    /// The metric of this name; `None` where the table has no such column.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<Column<'_>> {
        let at = *self.columns.places.get(name)?;
        Some(Column { name: &self.columns.names[at], unit: &self.columns.units[at], value: &self.cells[at] })
    }

    /// The number that was read under this name; `None` where none was.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.column(name)?.value.number()
    }

    /// How long it took, in nanoseconds; 0 where nobody asked.
    #[must_use]
    pub fn duration_ns(&self) -> f64 {
        let Some(Column { unit, value: Value::Number(value), .. }) = self.column(DURATION) else { return 0.0 };
        let factor = match unit {
            "us" | "usecond" => 1e3,
            "ms" | "msecond" => 1e6,
            "s" | "second" => 1e9,
            _ => 1.0,
        };
        value * factor
    }

    /// It alone, as one of a call's launches.
    #[must_use]
    pub fn alone(&self) -> Launches {
        let (name, ns) = (self.kernel.clone(), self.duration_ns());
        Launches { name, shape: self.shape, count: 1, ns, facts: vec![] }
    }

    /// What was read under this name, as a reading with this meaning; without a value where nothing was.
    #[must_use]
    pub fn reading(&self, name: &str, meaning: &str) -> Reading {
        let unit = self.column(name).map(|column| column.unit).unwrap_or_default();
        Reading::new(name, self.value(name), unit, meaning)
    }
}

impl Value {
    /// What a cell of the table says.
    #[must_use]
    pub fn of(cell: &str) -> Self {
        let cell = cell.trim();
        let said = cell.strip_prefix("(!)").map_or(cell, str::trim);
        if ["", "n/a", "no data", "nan", "-nan", "inf", "-inf"].contains(&said.to_lowercase().as_str()) {
            return Self::Absent;
        }
        number(said).map_or_else(|| Self::Text(cell.to_owned()), Self::Number)
    }

    /// It as a number; `None` for words and for nothing.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }
}

/// A finite number, perhaps with a comma before every three digits.
fn number(text: &str) -> Option<f64> {
    let whole = text.trim_start_matches(['-', '+']).split(['.', 'e', 'E']).next().unwrap_or_default();
    let mut groups = whole.split(',');
    let grouped = groups.next().is_some_and(|first| first.len() <= 3) && groups.all(|group| group.len() == 3);
    let plain = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    if !plain || (whole.contains(',') && !grouped) {
        return None;
    }
    text.replace(',', "").parse().ok().filter(|value: &f64| value.is_finite())
}

/// Three numbers in brackets.
fn triple(text: &str) -> [u64; 3] {
    let mut numbers = text.trim_matches(['(', ')']).split(',').map(|part| part.trim().parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}
