//! What does each command of `warpsmith-metrics` do?

mod report;
mod score;
mod select;
mod write;

use crate::{
    Evidence, Rule, Table, TableError, Wish,
    cli::{Command, ProfilesArgs},
};
use metrics::set::Data;
use sha2::{Digest, Sha256};

/// Why a command could not do what was asked: where, what was expected, what to do.
pub(crate) struct Wrong(pub(crate) String);

impl Wrong {
    fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl From<TableError> for Wrong {
    fn from(error: TableError) -> Self {
        Self(error.to_string())
    }
}

/// Does it.
pub(crate) fn execute(command: &Command) -> Result<(), Wrong> {
    match command {
        Command::Select(arguments) => select::select(arguments),
        Command::Score(arguments) => score::score(arguments),
        Command::Report(arguments) => report::write(arguments),
        Command::Table(arguments) => write::table(&arguments.out),
        Command::Columns(arguments) => write::columns(&arguments.out),
    }
}

/// Prints a line for people or scripts; a reader that went away is no reason to fail.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// What the tables say, and which files they are.
fn evidence(arguments: &ProfilesArgs) -> Result<(Evidence, Vec<Data>), Wrong> {
    let (mut tables, mut data) = (vec![], vec![]);
    for path in &arguments.profiles {
        let bytes = std::fs::read(path).map_err(|e| Wrong::new(format!("{}: {e}", path.display())))?;
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        data.push(Data { file, sha256: hexadecimal(&Sha256::digest(&bytes)) });
        tables.push((path.as_path(), Table::of_bytes(path, bytes)?));
    }
    let table = Table::joined(tables)?;
    Ok((Evidence::of(&table, arguments.present).map_err(Wrong::new)?, data))
}

/// What the flags ask for.
fn wish(arguments: &ProfilesArgs) -> Wish {
    Wish {
        rule: Rule::Stable,
        want: arguments.want,
        top: arguments.top,
        tasks: arguments.tasks,
        percentile: arguments.percentile,
        collinear: arguments.collinear,
        seed: 1,
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
