//! Is the program built as ARCHITECTURE.md says?

use std::{
    fs,
    path::{Path, PathBuf},
};

/// From left to right: each may use those before it. The annex of `metrics` stands at the program's side: no other room
/// waits for polars.
const ROOMS: [&str; 6] = ["metrics", "kernelbench", "prompts", "agents", "metrics/selection", "."];
/// Folders that hold sources, in a room.
const SOURCES: [&str; 4] = ["src", "tests", "benches", "examples"];
/// The most lines a source file may have.
const LONGEST: usize = 600;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Every Rust source of the project, by its path from the root.
fn sources() -> Vec<String> {
    let mut found = vec![];
    for room in ROOMS {
        for folder in SOURCES {
            collect(&root().join(room).join(folder), &mut found);
        }
    }
    let mut names: Vec<String> = found
        .iter()
        .map(|path| {
            path.strip_prefix(root()).expect("it was found under the root").display().to_string().replace("./", "")
        })
        .collect();
    names.sort_by_key(|name| (ROOMS.iter().position(|room| name.starts_with(&format!("{room}/"))), name.clone()));
    names
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.expect("a folder of sources can be read").path()) {
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The sentence that a source opens with.
fn opening(source: &str) -> Option<String> {
    let lines =
        source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).take_while(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join(" ");
    let end = [". ", "? "].iter().filter_map(|end| text.find(end)).min().map_or(text.len(), |at| at + 1);
    (!text.is_empty()).then(|| text[..end].trim_end_matches('.').to_owned())
}

/// What stands in ARCHITECTURE.md, and what should: the part after its last heading is the list.
fn listed() -> (String, String) {
    let text = read("ARCHITECTURE.md");
    let at = text.rfind("\n## Every source file\n").expect("ARCHITECTURE.md ends with the list of sources");
    let head = &text[..at];
    let mut list = String::new();
    for name in sources() {
        let opening = opening(&read(&name)).unwrap_or_else(|| panic!("{name} does not open with `//!` and a sentence"));
        list += &["- `", &name, "`: ", &opening, "\n"].concat();
    }
    let should = format!("{head}\n## Every source file\n\nEach with the sentence that it opens with.\n\n{list}");
    (text, should)
}

#[test]
fn architecture_md_lists_every_source_file_and_no_other() {
    let (is, should) = listed();
    if std::env::var_os("WRITE_ARCHITECTURE").is_some() {
        fs::write(root().join("ARCHITECTURE.md"), &should).unwrap();
        return;
    }
    let missing: Vec<&str> = should.lines().filter(|line| !is.contains(line)).collect();
    let gone: Vec<&str> = is.lines().filter(|line| !should.contains(line)).collect();
    assert!(
        is == should,
        "ARCHITECTURE.md differs from the tree: missing {missing:#?}, no longer so {gone:#?}; \
         to set it right: WRITE_ARCHITECTURE=1 cargo test --test architecture"
    );
}

#[test]
fn a_room_uses_only_rooms_to_its_left() {
    for (at, room) in ROOMS.iter().enumerate() {
        let manifest: toml::Table = read(&format!("{room}/Cargo.toml")).parse().unwrap();
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let names = manifest.get(table).and_then(|t| t.as_table()).map(|t| t.keys()).into_iter().flatten();
            for used in names {
                let its_room = ROOMS.iter().position(|room| room.rsplit('/').next() == Some(used));
                assert!(its_room.is_none_or(|its_room| its_room < at), "{room} uses {used}, which is not to its left");
            }
        }
    }
}

#[test]
fn no_source_file_is_too_long_to_be_read() {
    for name in sources() {
        let lines = read(&name).lines().count();
        assert!(lines <= LONGEST, "{name} has {lines} lines: split it");
    }
}
