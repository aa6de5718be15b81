//! How do numbers leave for other programs: a column a quantity, a line a task?

use super::{RunScores, TaskScore};
use crate::config::Word;
use metrics::{
    Speedup,
    columns::{Columns, Values},
};

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number, or none.
    Number(Option<f64>),
    /// A whole number, or none.
    Whole(Option<i64>),
    /// Yes or no.
    Flag(bool),
}

/// Columns of the same length, each of one kind of cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// Names and values.
    pub columns: Vec<(String, Vec<Cell>)>,
}

impl Sheet {
    /// The sheet of these lines: each gives the same names in the same order.
    #[must_use]
    pub fn of(lines: impl IntoIterator<Item = Vec<(String, Cell)>>) -> Self {
        let mut sheet = Self::default();
        for line in lines {
            if sheet.columns.is_empty() {
                sheet.columns = line.iter().map(|(name, _)| (name.clone(), vec![])).collect();
            }
            for ((_, column), (_, cell)) in sheet.columns.iter_mut().zip(line) {
                column.push(cell);
            }
        }
        sheet
    }

    /// As comma-separated text with a line of names; what is missing is empty.
    ///
    /// # Errors
    ///
    /// Never in memory.
    pub fn csv(&self) -> Result<String, csv::Error> {
        let mut writer = csv::Writer::from_writer(vec![]);
        writer.write_record(self.columns.iter().map(|(name, _)| name))?;
        for line in 0..self.columns.first().map_or(0, |(_, cells)| cells.len()) {
            writer.write_record(self.columns.iter().map(|(_, cells)| cells[line].csv()))?;
        }
        let bytes = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Column by column, for a file whose columns each have one kind; what is missing stays missing.
    #[must_use]
    pub fn values(&self) -> Columns {
        self.columns.iter().map(|(name, cells)| (name.clone(), values(cells))).collect()
    }
}

/// A column by the kind of its first cell.
fn values(cells: &[Cell]) -> Values {
    match cells.first() {
        Some(Cell::Number(_)) => Values::Number(
            cells.iter().map(|cell| if let Cell::Number(number) = cell { *number } else { None }).collect(),
        ),
        Some(Cell::Whole(_)) => Values::Whole(
            cells.iter().map(|cell| if let Cell::Whole(number) = cell { *number } else { None }).collect(),
        ),
        Some(Cell::Flag(_)) => Values::Flag(cells.iter().map(|cell| *cell == Cell::Flag(true)).collect()),
        Some(Cell::Text(_)) | None => Values::Text(cells.iter().map(Cell::csv).collect()),
    }
}

impl Cell {
    fn csv(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.map(|number| number.to_string()).unwrap_or_default(),
            Self::Whole(number) => number.map(|number| number.to_string()).unwrap_or_default(),
            Self::Flag(flag) => flag.to_string(),
        }
    }

    fn count(number: u64) -> Self {
        Self::Whole(i64::try_from(number).ok())
    }
}

/// A line for each task.
pub(super) fn tasks(run: &RunScores) -> Sheet {
    let mut baselines: Vec<&String> =
        run.tasks.iter().flat_map(|task| task.over.iter().map(|(name, _)| name)).collect();
    baselines.sort_unstable();
    baselines.dedup();
    Sheet::of(run.tasks.iter().map(|task| line(run, task, &baselines)))
}

fn line(run: &RunScores, task: &TaskScore, baselines: &[&String]) -> Vec<(String, Cell)> {
    let text = |text: &str| Cell::Text(text.to_owned());
    let whole = |number: Option<u32>| Cell::Whole(number.map(i64::from));
    let state = serde_json::to_value(task.state).unwrap_or_default();
    let mut line = vec![
        ("run".to_owned(), text(&run.run)),
        ("policy".to_owned(), text(&run.policy)),
        ("model".to_owned(), text(&run.model)),
        ("machine".to_owned(), text(&run.machine)),
        ("simulated".to_owned(), Cell::Flag(run.simulated)),
        ("task".to_owned(), text(&task.task)),
        ("level".to_owned(), whole(task.level.map(u32::from))),
        ("number".to_owned(), whole(task.number)),
        ("precision".to_owned(), text(task.precision.map_or("", Word::word))),
        ("against".to_owned(), text(task.against.as_deref().unwrap_or(""))),
        ("defects".to_owned(), text(&task.defects.join("; "))),
        ("state".to_owned(), text(state.as_str().unwrap_or_default())),
        ("rounds".to_owned(), Cell::count(task.rounds as u64)),
        ("passed".to_owned(), Cell::count(task.passed as u64)),
        ("refused".to_owned(), Cell::count(task.refused as u64)),
        ("correct".to_owned(), Cell::Flag(task.speedup.is_some())),
        ("only_as_drawn".to_owned(), Cell::Flag(task.only_as_drawn)),
        ("faster".to_owned(), Cell::Flag(task.won())),
    ];
    line.extend(speedup("speedup", task.speedup));
    for name in baselines {
        let over = task.over.iter().find(|(known, _)| known == *name).and_then(|(_, speedup)| *speedup);
        line.extend(speedup(&heading(&format!("speedup_over_{name}")), over));
    }
    line.push(("best_in_rounds".to_owned(), Cell::Number(task.best.map(|best| best.ratio))));
    line.push(("round".to_owned(), whole(task.round)));
    line.push(("own_kernels".to_owned(), Cell::Number(task.own_kernels)));
    line.push(("candidate".to_owned(), text(task.candidate.as_ref().map_or("", kernelbench::Hash::as_str))));
    line.extend(spent(task));
    line
}

/// A column's name for programs that split at blanks and commas.
fn heading(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c), "_")
}

fn speedup(name: &str, speedup: Option<Speedup>) -> [(String, Cell); 3] {
    let number = |of: fn(&Speedup) -> f64| Cell::Number(speedup.as_ref().map(of));
    [
        (name.to_owned(), number(|speedup| speedup.ratio)),
        (format!("{name}_low"), number(|speedup| speedup.interval.low)),
        (format!("{name}_high"), number(|speedup| speedup.interval.high)),
    ]
}

fn spent(task: &TaskScore) -> Vec<(String, Cell)> {
    let spent = &task.spent;
    let mut line = vec![
        ("calls".to_owned(), Cell::count(spent.calls)),
        ("input_tokens".to_owned(), Cell::count(spent.input_tokens)),
        ("cached_tokens".to_owned(), Cell::count(spent.cached_tokens)),
        ("output_tokens".to_owned(), Cell::count(spent.output_tokens)),
        ("uncounted_calls".to_owned(), Cell::count(spent.uncounted_calls)),
        ("usd".to_owned(), Cell::Number(Some(spent.usd))),
        ("unpriced_calls".to_owned(), Cell::count(spent.unpriced_calls)),
        ("wall_ms".to_owned(), Cell::count(spent.wall_ms)),
        ("device_ms".to_owned(), Cell::count(spent.device_ms)),
    ];
    line.extend(spent.times().map(|(_, name, ms)| (name.to_owned(), Cell::count(ms))));
    line
}

#[cfg(test)]
mod tests {
    use super::heading;

    #[test]
    fn no_column_s_name_has_a_blank_a_comma_or_a_quote() {
        assert_eq!(
            heading("speedup_over_torch.compile, \"max-autotune\""),
            "speedup_over_torch.compile___max-autotune_"
        );
    }
}
