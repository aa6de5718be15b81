//! Where in a task's files is what wrong?

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};
use toml::Spanned;

/// Why a task could not be read: where, what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    file: PathBuf,
    place: Option<Place>,
    what: String,
    help: String,
}

/// A place in a text, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    line: usize,
    column: usize,
    excerpt: String,
    width: usize,
}

/// The task file that is being read.
pub(super) struct Document<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl TaskError {
    /// The same with another word on what to do.
    pub(super) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// An error of a whole file.
    pub(super) fn of_file(file: &Path, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { file: file.to_owned(), place: None, what: what.into(), help: help.into() }
    }

    /// The file in which it is.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The line and the column, each counted from 1, where it is in one place.
    #[must_use]
    pub fn position(&self) -> Option<(usize, usize)> {
        self.place.as_ref().map(|place| (place.line, place.column))
    }

    /// What is wrong, in one line.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What was expected and what to do about it.
    #[must_use]
    pub fn help(&self) -> &str {
        &self.help
    }
}

impl Document<'_> {
    /// An error at this value.
    pub(super) fn error<T, V>(
        &self,
        at: &Spanned<V>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> Result<T, TaskError> {
        Err(self.error_at(at.span(), what, help))
    }

    /// An error at these bytes of the text.
    pub(super) fn error_at(&self, at: Range<usize>, what: impl Into<String>, help: impl Into<String>) -> TaskError {
        let place = Some(Place::of(self.text, at));
        TaskError { file: self.path.to_owned(), place, what: what.into(), help: help.into() }
    }

    /// What the TOML reader found.
    pub(super) fn not_toml(&self, error: &toml::de::Error) -> TaskError {
        let (what, expected) = error.message().split_once('\n').unwrap_or((error.message(), ""));
        let help = match expected.trim() {
            "" => "examples/README.md explains every key, and https://toml.io the language".to_owned(),
            expected => expected.replace('\n', "; "),
        };
        self.error_at(error.span().unwrap_or_default(), what, help)
    }
}

impl Place {
    const WIDEST: usize = 120;

    fn of(text: &str, at: Range<usize>) -> Self {
        let start = if text.is_char_boundary(at.start) { at.start } else { 0 };
        let end = if text.is_char_boundary(at.end) { at.end.max(start) } else { start };
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        Self {
            line: text[..line_start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            excerpt: text[line_start..line_end].trim_end().to_owned(),
            width: text[start..end.min(line_end).max(start)].trim_end().chars().count().max(1),
        }
    }

    /// The line, cut to what a terminal shows, and the column of the caret in it.
    fn cut(&self) -> (String, usize) {
        let skipped = if self.column > Self::WIDEST / 2 { self.column - Self::WIDEST / 4 } else { 0 };
        let shown = self.excerpt.chars().skip(skipped).take(Self::WIDEST).map(printable).collect();
        (shown, self.column - 1 - skipped)
    }
}

/// A file may hold characters that a terminal obeys; none of them reaches it.
fn printable(c: char) -> char {
    if c == '\t' {
        ' '
    } else if c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    {
        '\u{fffd}'
    } else {
        c
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what: String = self.what.chars().map(printable).collect();
        let help: String = self.help.chars().map(printable).collect();
        let Some(place) = &self.place else {
            return write!(f, "{}: {what}\n  = {help}", self.file.display());
        };
        let (excerpt, indent) = place.cut();
        let number = place.line.to_string();
        let margin = " ".repeat(number.len());
        let carets = "^".repeat(place.width.min(Place::WIDEST.saturating_sub(indent)).max(1));
        writeln!(f, "{}:{}:{}: {what}", self.file.display(), place.line, place.column)?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{number} | {excerpt}")?;
        writeln!(f, "{margin} | {}{carets}", " ".repeat(indent))?;
        write!(f, "{margin} = {help}")
    }
}

impl std::error::Error for TaskError {}
