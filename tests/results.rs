//! Are the figures in docs/RESULTS.md and its topics those of the data, and the data's those of the raw files?

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The pages with tables that are made from data.
fn pages() -> Vec<PathBuf> {
    let docs = docs();
    let topics = fs::read_dir(docs.join("results")).expect("docs/results is a folder");
    let topics = topics.map(|entry| entry.expect("it can be read").path());
    let mut pages: Vec<PathBuf> = topics.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.push(docs.join("RESULTS.md"));
    pages.sort();
    pages
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The lines of a file of data.
fn rows(path: &Path) -> Vec<Value> {
    let row = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{}: {e}: {line}", path.display()));
    read(path).lines().map(row).collect()
}

/// A column as a page's comment names it: `title = path format`, or a name that is both.
struct Column<'a> {
    title: &'a str,
    path: &'a str,
    format: &'a str,
}

impl<'a> Column<'a> {
    fn of(text: &'a str) -> Self {
        let named = text.split_once(" = ");
        let (title, rest) = named.unwrap_or((text, text));
        let digits = |format: &str| named.is_some() && format.parse::<i32>().is_ok();
        let known = |format: &str| format == "code" || format.starts_with("link:") || digits(format);
        let (path, format) = rest.rsplit_once(' ').filter(|(_, format)| known(format)).unwrap_or((rest, ""));
        let title = if title == rest { path } else { title };
        Self { title: title.trim(), path: path.trim(), format }
    }

    fn cell(&self, row: &Value) -> String {
        let value = row.get(self.path).or_else(|| row.pointer(&format!("/{}", self.path.replace('.', "/"))));
        match value.unwrap_or_else(|| panic!("{row} has no {}", self.path)) {
            Value::String(text) if self.format == "code" => format!("`{}`", text.replace('|', "\\|")),
            Value::String(text) => match self.format.strip_prefix("link:") {
                Some(folder) => format!("[{}]({folder}{text})", text.rsplit('/').next().unwrap_or_default()),
                None => text.replace('|', "\\|"),
            },
            Value::Number(number) => {
                let digits = self.format.trim_start_matches('+').parse().unwrap_or(0);
                let value = number.as_f64().unwrap_or_default();
                if self.format.starts_with('+') { format!("{value:+.digits$}") } else { format!("{value:.digits$}") }
            }
            Value::Null => String::new(),
            other => panic!("{other} is no cell"),
        }
    }
}

/// The table that a comment asks for, of the file that it names, which lies beside the page.
fn table(page: &Path, wish: &str) -> String {
    let (file, columns) = wish.split_once(": ").expect("`table FILE: columns`");
    let columns: Vec<Column> = columns.split(';').map(Column::of).collect();
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let titles = columns.iter().map(|column| column.title.to_owned()).collect();
    let rule = columns.iter().map(|_| "---".to_owned()).collect();
    let mut text = line(titles) + &line(rule);
    for row in rows(&page.parent().expect("a page lies in a folder").join(file)) {
        text += &line(columns.iter().map(|column| column.cell(&row)).collect());
    }
    text
}

/// The page with every table made anew.
fn made(page: &Path, text: &str) -> String {
    let mut parts = text.split("<!-- table ");
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (wish, rest) = part.split_once(" -->\n").expect("a table's comment ends");
        let (_, after) = rest.split_once("<!-- end -->").unwrap_or_else(|| panic!("{wish}: no <!-- end -->"));
        made += &["<!-- table ", wish, " -->\n\n", &table(page, wish), "\n<!-- end -->", after].concat();
    }
    made
}

#[test]
fn every_table_is_made_of_its_data() {
    for page in pages() {
        let is = read(&page);
        let should = made(&page, &is);
        if std::env::var_os("WRITE_RESULTS").is_some() {
            fs::write(&page, should).unwrap();
        } else {
            assert!(is == should, "{} differs from its data: `just results` sets it right", page.display());
        }
    }
}

/// The numbers of a text, with their signs and commas.
fn numbers(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_digit() || ".,+-".contains(c)));
    let bare = words.map(|word| word.trim_end_matches(['.', ',', '-']));
    bare.filter(|word| word.chars().any(|c| c.is_ascii_digit())).collect()
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_else(|| panic!("{row} has no {name}"))
}

#[test]
fn what_is_claimed_stands_in_the_raw_file() {
    for (file, value) in [("claims.jsonl", "value"), ("missed.jsonl", "reached")] {
        for row in rows(&docs().join("results/data").join(file)) {
            let raw = read(&docs().join("results").join(text(&row, "raw")));
            let quotes: Vec<&str> = row["quotes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            for quote in &quotes {
                assert!(raw.contains(quote), "`{quote}` is not in the raw file of {row}");
            }
            for number in numbers(text(&row, value)) {
                let found = quotes.iter().any(|quote| numbers(quote).contains(&number));
                assert!(found || row["derived"].is_string(), "{number} of {row} is in none of its quotes");
            }
            assert!(docs().join("results").join(text(&row, "topic")).is_file(), "{row}");
        }
    }
}

/// Tables whose runs' output was not kept: what was written down then is their raw file.
const WRITTEN_DOWN: [&str; 7] = ["batch", "cheats", "cost", "kernelbench", "noise", "scheduling", "sglang"];

#[test]
fn what_was_written_down_by_hand_stands_in_the_log() {
    let log = read(&docs().join("results/log/2026-11-22.md"));
    for name in WRITTEN_DOWN {
        for row in rows(&docs().join(format!("results/data/{name}.jsonl"))) {
            for cell in row.as_object().into_iter().flat_map(|row| row.values()).filter_map(Value::as_str) {
                assert!(log.contains(cell), "{name}.jsonl: `{cell}` is not in the log");
            }
        }
    }
}

#[test]
fn the_readme_says_nothing_that_is_not_claimed() {
    let readme = include_str!("../README.md");
    let claims = read(&docs().join("results/data/claims.jsonl"));
    let table: Vec<&str> = readme.lines().skip_while(|line| !line.starts_with("| What was measured")).collect();
    let lines: Vec<&str> = table.into_iter().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(lines.len(), 7, "README.md has a table of seven rows");
    for line in lines {
        let cell = line.split('|').nth(2).expect("a row has two cells at least");
        for number in numbers(cell) {
            assert!(numbers(&claims).contains(&number), "{number} of README.md is in no claim: {line}");
        }
        assert!(line.contains("](docs/results/"), "{line} has no link");
    }
}
