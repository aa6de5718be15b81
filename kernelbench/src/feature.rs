//! Features of architectures: one verified example each, with the counters that prove that it ran (Hawkeye §2.3).
//!
//! Rows are strategies that come back on every machine, columns are architectures, a cell is a strategy as one architecture
//! does it. All of it is data: `kernelbench/features/`, and a user's own folder beside it.

mod load;
mod module;
mod rule;
pub mod score;

pub use load::FeatureError;
pub use module::Module;
pub use rule::{Choice, Rule};

use metrics::{Arch, Metric, MetricSet, feature::Sign};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A strategy that comes back on every architecture.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its number, from 1.
    pub number: u8,
    /// What it is called.
    pub title: String,
    /// The kernels that it was seen in (Hawkeye, A.4 and A.5).
    pub lineage: String,
    /// Words of a kernel's source that show it, on whatever architecture.
    #[serde(default)]
    pub marks: Vec<String>,
}

/// The features there are: the rows, and a column for each architecture.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    rows: Vec<Row>,
    operators: BTreeMap<String, Vec<String>>,
    columns: Vec<Column>,
}

/// The features of one architecture.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The folder's name: `hopper`.
    pub name: String,
    /// What a reader knows it as.
    pub title: String,
    /// The architectures that it is for.
    pub archs: Vec<Arch>,
    /// Later architectures that its kernels also build for and are right on; no counter is read there.
    pub also_on: Vec<Arch>,
    /// Words in a kernel's source that belong to other architectures.
    pub foreign: Vec<String>,
    /// Its instructions, as a kernel writes them.
    pub api: Vec<Module>,
    /// Six patterns made of them, in the order in which a budget takes them.
    pub patterns: Vec<Module>,
    /// Its cells, in the order of rows.
    pub cells: Vec<Cell>,
}

/// A strategy as one architecture does it.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The row's number.
    pub row: u8,
    /// Its name, such as `wgmma`.
    pub name: String,
    /// Its folder: `01_wgmma`.
    pub folder: String,
    /// The feature in a sentence.
    pub summary: String,
    /// How far it was proved.
    pub state: State,
    /// The signs that it ran; exactly one is the target.
    pub signs: Vec<Sign>,
    /// Why no instruction tells its kernels apart, where none does.
    pub no_instruction: Option<String>,
    /// What the paper says it gained there.
    pub paper: Option<Paper>,
    /// The cells that are taken over with it in one step.
    pub coupled: Vec<String>,
    /// When a reader of a profile thinks of it.
    pub rules: Vec<Rule>,
    /// The protocol behind the syntax, and its traps.
    pub guide: String,
    /// All its files by their names, as they are.
    pub files: BTreeMap<String, String>,
}

/// How far a cell was proved.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Both kernels are right on a GPU, and the counters tell them apart there.
    Measured(Measured),
    /// Both kernels build, and the instruction is in one and not in the other.
    Compiled,
    /// The architecture has no such thing; why.
    Unsupported(String),
}

impl State {
    /// In a word.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Measured(_) => "measured",
            Self::Compiled => "compiled",
            Self::Unsupported(_) => "unsupported",
        }
    }
}

/// What a cell's two kernels came to on a GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The GPU.
    pub gpu: String,
    /// The day.
    pub date: String,
    /// How many times as fast as the naive kernel the optimized one is.
    pub speedup: f64,
    /// What each counter read in the naive kernel and in the optimized one; of `launches` too.
    pub read: BTreeMap<String, [f64; 2]>,
}

/// A row of the paper's Table 4.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// What was counted, in the paper's words.
    pub counter: String,
    /// By how much it moved; infinite from zero.
    pub counter_gain: f64,
    /// How many times as fast it was.
    pub time_gain: f64,
}

impl Features {
    /// Those that come with the program.
    ///
    /// # Panics
    /// Never: a test reads them all.
    #[must_use]
    pub fn embedded() -> Self {
        load::features(&load::embedded()).expect("the features that come with the program are tested")
    }

    /// Those that come with the program, and those of these files beside them: a path such as `hopper/01_wgmma/guide.md`,
    /// and its text. A cell takes the place of one in the same folder, file by file.
    ///
    /// # Errors
    /// The first file that is missing or wrong, and what was expected.
    pub fn with(files: BTreeMap<String, String>) -> Result<Self, FeatureError> {
        let mut all = load::embedded();
        all.extend(files);
        load::features(&all)
    }

    /// The rows, in order.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows whose marks a kernel's source has, comments left aside. A mark shows that somebody meant it, not that it ran.
    #[must_use]
    pub fn rows_in(&self, source: &str) -> Vec<u8> {
        let code: Vec<&str> = source.lines().map(|line| line.split("//").next().unwrap_or(line)).collect();
        let shown = |row: &&Row| row.marks.iter().any(|mark| code.iter().any(|line| line.contains(mark.as_str())));
        self.rows.iter().filter(shown).map(|row| row.number).collect()
    }

    /// The row of a cell.
    #[must_use]
    pub fn row(&self, cell: &Cell) -> Option<&Row> {
        self.rows.iter().find(|row| row.number == cell.row)
    }

    /// The columns: those with measured cells by name, and then the others.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The column of this name, or of this architecture (`sm_90`).
    ///
    /// # Errors
    /// In words, with the columns there are.
    pub fn column(&self, name: &str) -> Result<&Column, String> {
        let arch = name.parse::<Arch>().ok();
        let same =
            |column: &&Column| column.name == name || arch.as_ref().is_some_and(|arch| column.archs.contains(arch));
        self.columns.iter().find(same).ok_or_else(|| {
            let known: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
            format!("there is no architecture {name:?} among the features; there are {}", known.join(", "))
        })
    }

    /// The column of a machine, if there is one.
    #[must_use]
    pub fn of_arch(&self, arch: &Arch) -> Option<&Column> {
        self.columns.iter().find(|column| column.archs.contains(arch))
    }
}

impl Column {
    /// The cell of this name, of this folder, or of this row's number.
    ///
    /// # Errors
    /// In words, with the cells there are.
    pub fn cell(&self, name: &str) -> Result<&Cell, String> {
        let number = name.parse::<u8>().ok();
        let same = |cell: &&Cell| cell.name == name || cell.folder == name || Some(cell.row) == number;
        self.cells.iter().find(same).ok_or_else(|| {
            let known: Vec<&str> = self.cells.iter().map(|cell| cell.name.as_str()).collect();
            format!("{} has no feature {name:?}; it has {}", self.name, known.join(", "))
        })
    }

    /// A set of metrics with the counters of all cells and their rules behind its own, each once.
    #[must_use]
    pub fn asked(&self, mut set: MetricSet) -> MetricSet {
        if set.is_full() {
            return set;
        }
        for name in self.cells.iter().flat_map(Cell::counters) {
            if !set.metric.iter().any(|metric| metric.name == name) {
                set.metric.push(Metric::named(name));
            }
        }
        set
    }
}

impl Cell {
    /// The counters that its signs read.
    pub fn counters(&self) -> impl Iterator<Item = &str> {
        self.signs.iter().filter_map(|sign| match sign {
            Sign::Counter(counter) => Some(counter.name.as_str()),
            Sign::Instruction(_) | Sign::Launches(_) => None,
        })
    }

    /// The instructions that its signs look for.
    pub fn instructions(&self) -> impl Iterator<Item = &str> {
        self.signs.iter().filter_map(|sign| match sign {
            Sign::Instruction(name) => Some(name.as_str()),
            Sign::Counter(_) | Sign::Launches(_) => None,
        })
    }

    /// The counter that it is told by.
    #[must_use]
    pub fn target(&self) -> Option<&metrics::feature::Counter> {
        self.signs.iter().find_map(|sign| match sign {
            Sign::Counter(counter) if counter.target => Some(counter),
            _ => None,
        })
    }

    /// The kernel that does without the feature.
    #[must_use]
    pub fn naive(&self) -> &str {
        self.kernel("naive")
    }

    /// The kernel that uses the feature.
    #[must_use]
    pub fn optimized(&self) -> &str {
        self.kernel("optimized")
    }

    fn kernel(&self, name: &str) -> &str {
        let of = |ending: &str| self.files.get(&format!("{name}.{ending}"));
        of("cu").or_else(|| of("hip")).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests;
