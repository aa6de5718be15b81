//! Does docs/BIAS.md claim only what a test shows?

use std::{fs, path::Path};

const PAGE: &str = include_str!("../docs/BIAS.md");

/// The rows of the page's tables, cell by cell.
fn rows() -> Vec<Vec<&'static str>> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit());
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
    for row in rows() {
        for test in row[3].split('`').skip(1).step_by(2) {
            assert!(
                text.contains(&format!("#[test]\nfn {test}()")) || text.contains(&format!("#[test]\n    fn {test}()")),
                "row {}: no test {test}",
                row[0]
            );
        }
    }
}

#[test]
fn the_fifty_kinds_are_there_each_with_an_answer() {
    let rows = rows();
    assert_eq!(
        rows.iter().map(|row| row[0].to_owned()).collect::<Vec<_>>(),
        (1..=50).map(|n: u32| n.to_string()).collect::<Vec<_>>()
    );
    assert!(rows.iter().all(|row| row.len() == 5 && row[1..].iter().all(|cell| !cell.is_empty())));
}
