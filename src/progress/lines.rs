//! How does a line break in a terminal? Between words, and what goes on stands under what it goes on with.

use console::{Term, measure_text_width};
use std::borrow::Cow;

/// Narrower terminals than this are left to themselves.
const LEAST: usize = 30;

/// A text for people as this terminal is to have it; as it is where this is none, and where it is JSON.
pub(crate) fn fitted<'a>(text: &'a str, terminal: &Term) -> Cow<'a, str> {
    let width = terminal.size_checked().filter(|_| terminal.is_term()).map_or(0, |(_, columns)| usize::from(columns));
    if width < LEAST || text.starts_with(['{', '[', '"']) { text.into() } else { broken(text, width).into() }
}

/// The text with its lines broken to this width. A word that is longer stays whole.
fn broken(text: &str, width: usize) -> String {
    text.split('\n').map(|line| line_broken(line, width)).collect::<Vec<_>>().join("\n")
}

fn line_broken(line: &str, width: usize) -> String {
    if measure_text_width(line) <= width {
        return line.to_owned();
    }
    let indent = " ".repeat(indent(line, width));
    let (mut text, mut column, mut first) = (String::new(), 0, true);
    for (blanks, word) in words(line) {
        let wide = measure_text_width(word);
        if !first && column + blanks.len() + wide > width {
            text = text + "\n" + &indent;
            column = indent.len();
        } else {
            text += blanks;
            column += blanks.len();
        }
        text += word;
        column += wide;
        first = false;
    }
    text
}

/// Each word with the blanks before it.
fn words(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let begin = rest.find(|c| c != ' ')?;
        let end = rest[begin..].find(' ').map_or(rest.len(), |at| begin + at);
        let (blanks, word) = (&rest[..begin], &rest[begin..end]);
        rest = &rest[end..];
        Some((blanks, word))
    })
}

/// Where a broken line goes on: under its last column where it has columns, behind its label where it has one.
fn indent(line: &str, width: usize) -> usize {
    let own = line.len() - line.trim_start_matches(' ').len();
    let (mut column, mut gap) = (0, None);
    for (blanks, word) in words(line) {
        column += blanks.len();
        if blanks.len() > 1 && column > own && column <= width * 3 / 4 {
            gap = Some(column);
        }
        column += measure_text_width(word);
    }
    let labelled = own < 5 && line.find(": ").is_some_and(|at| at < own + 24);
    gap.unwrap_or(own + if labelled { 2 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::broken;

    #[test]
    fn lines_break_between_words_at_80_columns_and_go_on_under_their_last_column() {
        let row = "2      optimize  173142b3   2.07× [2.06, 2.08]  Software-prefetch both input streams and the output";
        let judge = format!("  judge, plan: {}", "Keep what is there. ".repeat(8));
        let text = broken(&format!("{row}\n{judge}\nshort\n{}", "x".repeat(100)), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80 || !line.contains(' ')), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with(" input") && lines[1] == format!("{}streams and the output", " ".repeat(48)));
        assert!(lines[3].starts_with("    ") && !lines[3].starts_with("     "), "{text}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&text).len(), words(row).len() + words(&judge).len() + 2, "no word is broken or lost");
    }

    #[test]
    fn colours_take_no_room() {
        let line = format!("\u{1b}[1m{}\u{1b}[0m end", "word ".repeat(15).trim());
        assert_eq!(broken(&line, 80), line);
    }
}
