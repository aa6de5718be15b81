//! Pass@1: does a model's first reply bring a feature in as well as the example does, and if not, how does it fail
//! (Hawkeye, B.1 and B.2)?

use super::{Cell, Column};
use crate::result::failure::Failure;
use metrics::feature::{Counter, Counters, Direction};
use serde::{Deserialize, Serialize};

/// The part of the example's reading that a reply must reach.
const ENOUGH: f64 = 0.99;

/// What came of a first reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bucket {
    /// It compiles, is right, and its target counter reaches the example's.
    Passed,
    /// It compiles; nobody could run it.
    Compiles,
    /// Bucket 1: the right strategy, said wrongly. It does not compile, or compiles to something else.
    InvalidSyntax,
    /// Bucket 2: right, and without the feature.
    NoGain,
    /// Bucket 3: what belongs to another architecture.
    WrongArchitecture,
    /// It is right, and its counter could not be read.
    Uncounted,
    /// There is no code in it.
    Unreadable,
}

impl Bucket {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Compiles => "compiles",
            Self::InvalidSyntax => "invalid syntax",
            Self::NoGain => "no gain",
            Self::WrongArchitecture => "wrong architecture",
            Self::Uncounted => "right, not counted",
            Self::Unreadable => "no code",
        }
    }
}

/// How far a reply came.
#[derive(Clone, Copy, Debug)]
pub enum Came<'a> {
    /// It was refused.
    Failed(&'a Failure),
    /// It was built, and there is nothing to run it on.
    Built,
    /// It is right; this was read of the example and of the reply, one beside the other.
    Counted(&'a Counters, &'a Counters),
}

/// In which bucket a reply lies.
#[must_use]
pub fn bucket(column: &Column, cell: &Cell, source: &str, came: Came<'_>) -> Bucket {
    let foreign = is_foreign(column, source);
    match came {
        Came::Built => Bucket::Compiles,
        Came::Failed(_) if foreign => Bucket::WrongArchitecture,
        Came::Failed(_) => Bucket::InvalidSyntax,
        Came::Counted(example, reply) => match cell.target().and_then(|target| reached(target, example, reply)) {
            Some(true) => Bucket::Passed,
            Some(false) if foreign => Bucket::WrongArchitecture,
            Some(false) => Bucket::NoGain,
            None => Bucket::Uncounted,
        },
    }
}

/// Whether a reply's counter comes to the example's, a hundredth short of it at most; none where one was not read.
#[must_use]
pub fn reached(target: &Counter, example: &Counters, reply: &Counters) -> Option<bool> {
    let [example, reply] = [example, reply].map(|read| read.value(&target.name, target.over));
    let (example, reply) = (example?, reply?);
    Some(match target.direction {
        Direction::Higher => reply >= ENOUGH * example,
        // Nothing stays nothing.
        Direction::Lower => reply <= example / ENOUGH,
    })
}

/// Whether a source says what belongs to another architecture, outside its comments.
fn is_foreign(column: &Column, source: &str) -> bool {
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code: String = code.flat_map(|line| [line, "\n"]).collect();
    column.foreign.iter().any(|word| code.contains(word.as_str()))
}

/// The intrinsics and instructions that a compiler's log says do not exist.
#[must_use]
pub fn invented(log: &str) -> Vec<String> {
    let quoted = |line: &str, before: &str, quote: char| {
        let rest = line.split_once(before)?.1;
        Some(rest.split(quote).next()?.to_owned())
    };
    let mut names: Vec<String> = vec![];
    for line in log.lines() {
        let undefined = line.contains("is undefined").then(|| quoted(line, "identifier \"", '"')).flatten();
        let intrinsic = undefined.filter(|name| name.starts_with("__"));
        let instruction = quoted(line, "Not a name of any known instruction: '", '\'');
        names.extend(intrinsic.or(instruction).filter(|name| !names.contains(name)));
    }
    names
}
