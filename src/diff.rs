//! What changed between two sources?

use serde::Serialize;
use similar::{ChangeTag, TextDiff};
use std::time::Duration;

/// Lines kept around a change.
const CONTEXT: usize = 3;
/// A diff longer than this is cut: its reader has long lost the thread.
const LONGEST: usize = 1500;
/// Sources are untrusted: after this long, the rest counts as replaced.
const PATIENCE: Duration = Duration::from_millis(500);

/// One line of a unified diff.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiffLine {
    /// What it is.
    pub kind: Kind,
    /// Its number in the old source, from 1.
    pub old: Option<usize>,
    /// Its number in the new source, from 1.
    pub new: Option<usize>,
    /// The line without its end; for a gap, what is left out.
    pub text: String,
}

/// What a line of a diff is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// In both.
    Same,
    /// Only in the new.
    Added,
    /// Only in the old.
    Removed,
    /// Lines left out here.
    Gap,
}

/// The changes that lead from `old` to `new`, with three lines around each; empty where nothing changed.
#[must_use]
pub fn between(old: &str, new: &str) -> Vec<DiffLine> {
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
    let mut lines = vec![];
    for group in diff.grouped_ops(CONTEXT) {
        lines.extend(group.first().map(|op| gap(op.old_range().start + 1, op.new_range().start + 1)));
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            lines.push(line(change.tag(), change.old_index(), change.new_index(), change.value()));
        }
    }
    cut(lines)
}

/// The whole difference as `patch` takes it, from the file `old_name` to `new_name`; empty where nothing changed.
#[must_use]
pub fn unified(old: &str, new: &str, old_name: &str, new_name: &str) -> String {
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
    diff.unified_diff().context_radius(CONTEXT).header(old_name, new_name).to_string()
}

/// How many lines were added and how many removed.
#[must_use]
pub fn size(lines: &[DiffLine]) -> (usize, usize) {
    let of = |kind| lines.iter().filter(|line| line.kind == kind).count();
    (of(Kind::Added), of(Kind::Removed))
}

/// The diff as text, as `diff -u` writes it but for its header.
#[must_use]
pub fn text(lines: &[DiffLine]) -> String {
    let sign = |kind| match kind {
        Kind::Same => ' ',
        Kind::Added => '+',
        Kind::Removed => '-',
        Kind::Gap => '@',
    };
    lines.iter().fold(String::new(), |mut text, line| {
        text.push(sign(line.kind));
        text.push_str(&line.text);
        text.push('\n');
        text
    })
}

fn gap(old: usize, new: usize) -> DiffLine {
    DiffLine { kind: Kind::Gap, old: None, new: None, text: format!("@ line {old}, now line {new}") }
}

fn line(tag: ChangeTag, old: Option<usize>, new: Option<usize>, text: &str) -> DiffLine {
    let kind = match tag {
        ChangeTag::Equal => Kind::Same,
        ChangeTag::Insert => Kind::Added,
        ChangeTag::Delete => Kind::Removed,
    };
    let text = text.trim_end_matches(['\n', '\r']).to_owned();
    DiffLine { kind, old: old.map(|at| at + 1), new: new.map(|at| at + 1), text }
}

fn cut(mut lines: Vec<DiffLine>) -> Vec<DiffLine> {
    if lines.len() > LONGEST {
        let left_out = lines.len() - LONGEST;
        lines.truncate(LONGEST);
        lines.push(DiffLine { kind: Kind::Gap, old: None, new: None, text: format!("@ {left_out} more lines") });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_is_a_removal_and_an_addition_with_their_numbers() {
        let lines = between("a\nb\nc\n", "a\nB\nc\n");
        assert_eq!(text(&lines), "@@ line 1, now line 1\n a\n-b\n+B\n c\n");
        assert_eq!((lines[2].old, lines[2].new), (Some(2), None));
        assert_eq!(size(&lines), (1, 1));
    }

    #[test]
    fn a_unified_diff_counts_its_lines_and_says_where_an_end_of_line_is_missing() {
        let told = unified("a\nb\nc", "a\nB\nc\n", "one", "two");
        let same = "--- one\n+++ two\n@@ -1,3 +1,3 @@\n a\n-b\n-c\n\\ No newline at end of file\n+B\n+c\n";
        assert_eq!(told, same);
        assert_eq!(unified("a", "a", "one", "two"), "");
    }

    #[test]
    fn the_same_source_twice_has_no_diff() {
        assert_eq!(between("a\n", "a\n"), []);
    }

    #[test]
    fn a_diff_without_end_is_cut_with_a_word() {
        let new = "x\n".repeat(5000);
        let lines = between("", &new);
        assert_eq!(lines.len(), LONGEST + 1);
        assert!(lines.last().unwrap().text.contains("3501 more lines"), "{:?}", lines.last());
    }
}
