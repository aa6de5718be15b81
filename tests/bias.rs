//! Do docs/BIAS.md and docs/BIAS-kernelbench.md claim only what a test shows?

use kernelbench::torch::OPEN;
use std::{collections::BTreeSet, fs, path::Path};

const PAGE: &str = include_str!("../docs/BIAS.md");
const PROBLEMS: &str = include_str!("../docs/BIAS-kernelbench.md");

/// The rows of a page's tables, cell by cell.
fn rows(page: &'static str) -> Vec<Vec<&'static str>> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit());
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// All Rust sources of the rooms, as one text.
fn sources(folder: &Path, text: &mut String) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, text);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

#[test]
fn every_test_that_is_named_exists() {
    let mut text = String::new();
    sources(Path::new(env!("CARGO_MANIFEST_DIR")), &mut text);
    for row in rows(PAGE) {
        for test in row[3].split('`').skip(1).step_by(2) {
            assert!(
                text.contains(&format!("#[test]\nfn {test}()")) || text.contains(&format!("#[test]\n    fn {test}()")),
                "row {}: no test {test}",
                row[0]
            );
        }
    }
}

/// A cell's parts that are no words such as "none" and "as 8": the files of cheats that it names, and the tests in italics.
fn named(cell: &str) -> (Vec<&str>, Vec<String>) {
    let parts = || cell.split(", ").map(str::trim);
    let files = parts().filter(|part| part.as_bytes()[0].is_ascii_digit()).collect();
    let tests = parts().filter_map(|part| part.strip_prefix('*')?.strip_suffix('*'));
    (files, tests.map(|test| test.replace(' ', "_")).collect())
}

#[test]
fn what_stands_against_cheats_on_problems_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    sources(here, &mut text);
    let rows = rows(PROBLEMS);
    let mut files = BTreeSet::new();
    for row in &rows {
        let (cheats, tests) = named(row[4]);
        for cheat in cheats {
            let source =
                fs::read_to_string(here.join(format!("kernelbench/tests/cheats/{cheat}.py"))).unwrap_or_default();
            assert!(source.starts_with(&format!("# kind: {},", row[0])), "row {}: no cheat {cheat}", row[0]);
            files.insert(format!("{cheat}.py"));
        }
        for test in tests {
            assert!(text.contains(&format!("]\nfn {test}()")), "row {}: no test {test}", row[0]);
        }
    }
    let there = fs::read_dir(here.join("kernelbench/tests/cheats")).into_iter().flatten().flatten();
    assert_eq!(files, there.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect());
    assert!(rows.iter().map(|row| row[0].to_owned()).eq((1..=53).map(|n: u32| n.to_string())));
}

#[test]
fn a_certificate_names_the_kinds_that_are_open() {
    let open = rows(PROBLEMS).into_iter().filter(|row| row[3].starts_with("open"));
    let open: BTreeSet<u32> = open.map(|row| row[0].parse().unwrap_or(0)).collect();
    assert_eq!(open, OPEN.iter().flat_map(|open| open.kinds.iter().copied()).collect());
}

#[test]
fn every_kind_is_there_once_with_an_answer() {
    let rows = rows(PAGE);
    let mut kinds = rows.iter().filter_map(|row| row[0].parse().ok()).collect::<Vec<u32>>();
    kinds.sort_unstable();
    assert_eq!(kinds, (1..=63).collect::<Vec<_>>());
    assert!(rows.iter().all(|row| row.len() == 5 && row[1..].iter().all(|cell| !cell.is_empty())));
}
