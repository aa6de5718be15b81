//! Which lines are Nsight Compute's table, and is it whole?

/// How the row of names begins.
const HEADING: &str = "\"ID\",\"Process ID\"";
/// Columns without which no launch can be told from another.
const NEEDED: [&str; 4] = ["Kernel Name", "Block Size", "Grid Size", "CC"];

/// Why what was printed cannot be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Unread {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub why: String,
}

/// The table, as texts; all rows are as long as the names.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) names: Vec<String>,
    pub(super) units: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// Finds the table in what was printed.
    pub(super) fn read(printed: &str) -> Result<Self, Unread> {
        let mut rest = printed.lines().enumerate().map(|(at, line)| (at + 1, line));
        let (first, heading) = rest
            .find_map(|(at, line)| Some((at, &line[line.find(HEADING)?..])))
            .ok_or_else(|| instead_of_a_table(printed))?;
        let names = cells(first, heading)?;
        if let Some(missing) = NEEDED.iter().find(|needed| !names.iter().any(|name| name == *needed)) {
            return Err(unread(first, format!("the row of names has no {missing:?}: it is cut off, or not ncu's")));
        }
        let mut table = vec![];
        // A line that does not begin as a row does is a word of ncu or of the program under it.
        for (at, line) in rest {
            if line.contains(HEADING) {
                return Err(unread(at, format!("a second table; the first is in line {first}, and one is not ncu's")));
            }
            if line.starts_with('"') {
                table.push((at, row(at, line, names.len())?));
            }
        }
        let mut rows = table.into_iter();
        let (at, units) = rows.next().ok_or_else(|| unread(first, "the row of units does not follow".into()))?;
        if !units[0].is_empty() {
            return Err(unread(at, "expected the row of units, which has no ID; found a launch".into()));
        }
        let rows: Vec<Vec<String>> = rows.map(|(_, row)| row).collect();
        if rows.is_empty() {
            return Err(unread(at, "no launch follows: no kernel was launched between start and stop".into()));
        }
        Ok(Self { names, units, rows })
    }
}

fn row(at: usize, line: &str, expected: usize) -> Result<Vec<String>, Unread> {
    let found = cells(at, line)?;
    match found.len() {
        count if count == expected => Ok(found),
        count if count < expected => {
            Err(unread(at, format!("the row is cut off: it has {count} cells, and {expected} have names")))
        }
        count => Err(unread(at, format!("the row has {count} cells, and only {expected} have names"))),
    }
}

/// The cells of one line. All are in quotes: one that is opened and not closed is where it was cut off.
fn cells(at: usize, line: &str) -> Result<Vec<String>, Unread> {
    if !line.matches('"').count().is_multiple_of(2) || !line.ends_with('"') {
        return Err(unread(at, "the row is cut off: its last cell is not closed".into()));
    }
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
    let first = reader.records().next().transpose().map_err(|error| unread(at, error.to_string()))?;
    Ok(first.map(|row| row.iter().map(str::to_owned).collect()).unwrap_or_default())
}

/// What was said where a table was expected: an error of ncu's, else the last line.
fn instead_of_a_table(printed: &str) -> Unread {
    let lines = || printed.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let told = lines().find(|(_, line)| line.contains("==ERROR==") || line.contains("Error"));
    let Some((at, said)) = told.or_else(|| lines().last()) else {
        return unread(1, "nothing was printed; expected the table of `ncu --csv --page raw`".into());
    };
    let said: String = said.trim().chars().take(300).collect();
    unread(at + 1, format!("no table of `ncu --csv --page raw`, which begins with {HEADING}; instead: {said}"))
}

fn unread(line: usize, why: String) -> Unread {
    Unread { line, why }
}
