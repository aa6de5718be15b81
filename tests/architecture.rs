//! Is the program built as ARCHITECTURE.md and docs/FILES.md say?

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// From left to right: each may use those before it.
const ROOMS: [&str; 10] = [
    "metrics",
    "kernelbench/arrays",
    "kernelbench",
    "prompts",
    "agents",
    "metrics/selection",
    "sglang",
    ".",
    "hosts",
    "mcp",
];
/// Rooms beside the line, which the program alone uses, with all that they may use themselves: no other room waits for
/// polars, and SGLang has nothing to do with models.
const ASIDE: [(&str, &[&str]); 2] = [("selection", &["metrics"]), ("sglang", &["metrics", "kernelbench"])];
/// Folders that hold sources, in a room.
const SOURCES: [&str; 4] = ["src", "tests", "benches", "examples"];
/// The most lines a source file may have.
const LONGEST: usize = 600;
/// The most files that may use one another in a circle.
const LONGEST_CYCLE: usize = 10;

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

/// What stands in docs/FILES.md, and what should.
fn listed() -> (String, String) {
    let mut should = "# Every source file\n\nEach with the sentence that it opens with.\n\n".to_owned();
    for name in sources() {
        let opening = opening(&read(&name)).unwrap_or_else(|| panic!("{name} does not open with `//!` and a sentence"));
        should += &["- `", &name, "`: ", &opening, "\n"].concat();
    }
    (fs::read_to_string(root().join("docs/FILES.md")).unwrap_or_default(), should)
}

#[test]
fn files_md_lists_every_source_file_and_no_other() {
    let (is, should) = listed();
    if std::env::var_os("WRITE_ARCHITECTURE").is_some() {
        fs::write(root().join("docs/FILES.md"), &should).unwrap();
        return;
    }
    let missing: Vec<&str> = should.lines().filter(|line| !is.contains(line)).collect();
    let gone: Vec<&str> = is.lines().filter(|line| !should.contains(line)).collect();
    assert!(
        is == should,
        "docs/FILES.md differs from the tree: missing {missing:#?}, no longer so {gone:#?}; \
         to set it right: WRITE_ARCHITECTURE=1 cargo test --test all architecture::"
    );
}

/// The folders that a row of the map names, `a/b`, `c` and `d` of one row lying in one folder.
#[test]
fn the_map_in_architecture_md_names_folders_that_are_there() {
    let page = read("ARCHITECTURE.md");
    let map = page.split("| Folder | What is in it |").nth(1).expect("ARCHITECTURE.md has a map of the folders");
    let rows = map.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells: Vec<&str> = rows.filter_map(|row| row.split('|').nth(1)).collect();
    assert!(cells.len() > 12, "{cells:?}");
    for cell in cells {
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        let parent = Path::new(names[0]).parent().expect("it is relative");
        for name in &names {
            let there = |at: &Path| root().join(at).is_dir() || root().join(at).with_extension("rs").is_file();
            let of_its_room = Path::new(names[0]).ancestors().nth(1).expect("it is relative").parent();
            let places =
                [Some(Path::new(name).to_owned()), Some(parent.join(name)), of_its_room.map(|room| room.join(name))];
            assert!(places.iter().flatten().any(|place| there(place)), "{name} of {cell}");
        }
    }
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
                let aside = |name: &str| ASIDE.iter().find(|(aside, _)| *aside == name);
                assert!(aside(used).is_none() || *room == ".", "{room} uses {used}, which is for the program");
                let may = aside(room.rsplit('/').next().unwrap_or_default())
                    .is_none_or(|(_, may)| may.contains(&used.as_str()));
                assert!(its_room.is_none() || may, "{room} uses {used}");
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

/// A file that no program of tests has as a module would never run, and nobody would see it.
#[test]
fn every_file_of_tests_is_part_of_a_program() {
    for name in sources().iter().filter(|name| name.contains("tests/") && !name.split('/').any(|part| part == "src")) {
        let path = Path::new(name);
        let (folder, module) = (path.parent().unwrap(), path.file_stem().unwrap().display().to_string());
        let (program, module) = match (module.as_str(), folder.ends_with("tests")) {
            ("main", true) => continue,
            ("mod", _) => (folder.with_file_name("main.rs"), folder.file_name().unwrap().display().to_string()),
            (_, true) => (folder.join("main.rs"), module),
            _ => (folder.with_extension("rs"), module),
        };
        // A package whose tests are a program each has no such file.
        if let Ok(program) = fs::read_to_string(root().join(&program)) {
            let manifest = root().join(folder.with_file_name("Cargo.toml"));
            let manifest = fs::read_to_string(manifest).unwrap_or_default();
            let alone = manifest.contains(&format!("path = \"tests/{module}.rs\""));
            assert!(alone || program.contains(&format!("\nmod {module};\n")), "{name} is never run");
        } else {
            assert!(program.ends_with("main.rs"), "{name} is never run");
        }
    }
}

/// The paths that the `use` lines of a source name, braces written out; those of its tests left out.
fn used(source: &str) -> Vec<String> {
    let own = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = own.lines().map(|line| line.split("//").next().unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join("\n");
    let starts = text.match_indices("use ").filter(|(at, _)| {
        let before = text[..*at].rsplit('\n').next().unwrap_or_default().trim();
        before.is_empty() || before == "pub" || before.starts_with("pub(")
    });
    starts.flat_map(|(at, _)| expanded(text[at + 4..].split(';').next().unwrap_or_default())).collect()
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn expanded(path: &str) -> Vec<String> {
    let path = path.trim();
    let Some((head, rest)) = path.split_once('{') else {
        let named = path.split(" as ").next().unwrap_or_default().trim();
        return if named.is_empty() { vec![] } else { vec![named.to_owned()] };
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut from, mut parts) = (0, 0, vec![]);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[from..]);
    let whole = |part: String| format!("{head}{part}").trim_end_matches("::self").to_owned();
    parts.into_iter().flat_map(expanded).map(whole).collect()
}

/// Which file of a crate uses which, by their module paths: `sandbox::peer`. The crate's root is left out, for it names all.
fn imports(src: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = vec![];
    collect(&root().join(src), &mut found);
    let module = |path: &Path| {
        let inside = path.strip_prefix(root().join(src)).expect("it lies there").with_extension("");
        inside.iter().map(|part| part.to_string_lossy().into_owned()).collect::<Vec<_>>().join("::")
    };
    let files: BTreeMap<String, PathBuf> = found.into_iter().map(|path| (module(&path), path)).collect();
    let resolve = |from: &str, path: &str| {
        let mut base: Vec<&str> = from.split("::").collect();
        let mut rest: Vec<&str> = path.split("::").collect();
        match rest[0] {
            "crate" => base.clear(),
            "super" => {}
            "self" => rest.insert(0, "self"),
            _ => return None,
        }
        while rest.first() == Some(&"super") {
            base.pop();
            rest.remove(0);
        }
        rest.retain(|part| !["crate", "self"].contains(part));
        let whole: Vec<&str> = base.into_iter().chain(rest).collect();
        (1..=whole.len()).rev().map(|end| whole[..end].join("::")).find(|name| files.contains_key(name))
    };
    let edges = |(name, path): (&String, &PathBuf)| {
        let source = fs::read_to_string(path).expect("a source can be read");
        let used = used(&source);
        let targets = used.iter().filter_map(|used| resolve(name, used)).filter(|target| target != name);
        (name.clone(), targets.collect())
    };
    files.iter().filter(|(name, _)| *name != "lib").map(edges).collect()
}

/// Files that reach each other, in groups of more than one.
fn cycles(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(next) = open.pop() {
            for target in imports.get(&next).into_iter().flatten() {
                if seen.insert(target.clone()) {
                    open.push(target.clone());
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> = imports.keys().map(|name| (name, reached(name))).collect();
    let mut groups: Vec<BTreeSet<String>> = vec![];
    for (name, seen) in &reach {
        let group: BTreeSet<String> =
            seen.iter().filter(|other| reach.get(other).is_some_and(|back| back.contains(*name))).cloned().collect();
        if group.len() > 1 && !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

#[test]
fn no_backend_uses_another_and_no_cycle_of_imports_is_long() {
    let imports = imports("kernelbench/src");
    assert!(imports.len() > 100, "{}", imports.len());
    let backend = |name: &str| name.strip_prefix("backend::")?.split("::").next().map(str::to_owned);
    for (name, targets) in &imports {
        for target in targets {
            let (from, to) = (backend(name), backend(target));
            assert!(from.is_none() || to.is_none() || from == to, "{name} uses {target}");
        }
    }
    let longest = cycles(&imports).into_iter().max_by_key(BTreeSet::len).unwrap_or_default();
    assert!(longest.len() <= LONGEST_CYCLE, "{} files use one another: {longest:#?}", longest.len());
}

#[test]
fn use_lines_are_read_with_all_their_braces() {
    let source = "use super::a;\n// use crate::no;\npub(crate) use crate::{b, c::{self, d as e},\n f};\nlet x = 1;\n";
    assert_eq!(used(source), ["super::a", "crate::b", "crate::c", "crate::c::d", "crate::f"]);
}

/// What decides, and must be said in one place alone: by what shows it, and the file that may hold it.
const SINGLE: [(&str, &str); 9] = [
    ("CLONE_NEWNET", "kernelbench/src/sandbox/confine.rs"),
    ("Step::Become {", "kernelbench/src/sandbox/confine.rs"),
    ("Step::DieWith(self.parent)", "kernelbench/src/sandbox/confine.rs"),
    ("CapSet::Bounding", "kernelbench/src/sandbox/confine.rs"),
    ("--module_id_file_name", "kernelbench/harness/nvcc_halves.sh"),
    ("const LEVEL: f64 = 0.95", "metrics/src/bootstrap.rs"),
    ("const RESAMPLINGS", "metrics/src/bootstrap.rs"),
    (".isfinite() &", "kernelbench/harness/tolerance.py"),
    ("isnan(r)", "kernelbench/src/backend/cuda/tolerance.h"),
];

#[test]
fn what_decides_is_defined_once() {
    let own = |name: &String| name.starts_with("src/") || name.contains("/src/");
    let mut files: Vec<PathBuf> = sources().iter().filter(|name| own(name)).map(|name| root().join(name)).collect();
    for folder in ["kernelbench/harness", "kernelbench/src/backend/cuda", "sglang/python"] {
        let mut open = vec![root().join(folder)];
        while let Some(folder) = open.pop() {
            for path in fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.expect("a folder").path()) {
                if path.is_dir() { open.push(path) } else { files.push(path) }
            }
        }
    }
    files.sort();
    files.dedup();
    for (sign, place) in SINGLE {
        let holds = |path: &&PathBuf| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.split("#[cfg(test)]").next().is_some_and(|own| own.contains(sign))
        };
        let found: Vec<&PathBuf> = files.iter().filter(holds).collect();
        assert_eq!(found, [&root().join(place)], "{sign}");
    }
}

/// What shows that a script judges by a rule or a statistic of its own.
const NO_SCRIPT: [&str; 4] = ["allclose(", "0.975", ".choices(", "geometric_mean("];

#[test]
fn no_script_has_a_rule_or_an_interval_of_its_own() {
    let mut open = vec![root().join("kernelbench/harness"), root().join("sglang/python")];
    let mut scripts = 0;
    while let Some(place) = open.pop() {
        if place.is_dir() {
            open.extend(fs::read_dir(&place).into_iter().flatten().map(|entry| entry.expect("a folder").path()));
        } else if place.extension().is_some_and(|ending| ending == "py") {
            let text = fs::read_to_string(&place).expect("a script can be read");
            let found = NO_SCRIPT.iter().find(|sign| text.contains(**sign));
            assert_eq!(found, None, "{}: what decides is Rust's, or in tolerance.py", place.display());
            scripts += 1;
        }
    }
    assert!(scripts > 25, "{scripts}");
}
