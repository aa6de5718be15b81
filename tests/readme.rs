//! Does what README.md shows work?

const PAGE: &str = include_str!("../README.md");

/// The first fenced block of this kind.
fn block(kind: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("```{kind}\n")).expect("README.md shows one");
    rest.split_once("```").expect("it ends").0
}

#[test]
fn the_task_that_it_shows_is_a_task() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("task.toml"), block("toml")).unwrap();
    let reference = "#include <cstdint>\nextern \"C\" void scale(const float* x, float* out, float factor, int64_t n) \
                     { for (int64_t i = 0; i < n; ++i) out[i] = factor * x[i]; }\n";
    std::fs::write(folder.path().join("reference.cpp"), reference).unwrap();
    let task = kernelbench::load::task(folder.path()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((task.name.as_str(), task.cases.len(), task.final_cases.len()), ("scale", 1, 1));
}

/// The lines of a recipe of the justfile.
fn recipe(name: &str) -> Vec<&'static str> {
    let lines = include_str!("../justfile").lines().skip_while(|line| !line.starts_with(&format!("{name}:")));
    lines.skip(1).map_while(|line| line.strip_prefix("    ")).collect()
}

#[test]
fn ci_runs_its_two_commands_as_they_stand() {
    assert!(include_str!("../.ci/run").ends_with("\njust ci\n"));
    let ci = include_str!("../justfile").lines().find(|line| line.starts_with("ci:")).expect("the justfile has `ci`");
    for (name, command) in
        [("demo", "cargo run --release -- run examples/silu_and_mul"), ("test", "cargo test --workspace")]
    {
        assert!(ci.split_whitespace().any(|part| part == name), "{ci}");
        assert_eq!(recipe(name), [command]);
        assert!(PAGE.contains(&format!("\n{command}\n")), "README.md does not show {command}");
    }
}

#[test]
fn the_rust_that_it_asks_for_is_the_one_that_the_manifest_asks_for() {
    let version = env!("CARGO_PKG_RUST_VERSION");
    assert!(PAGE.contains(&format!("You need Rust {version} or newer")), "Cargo.toml asks for {version}");
}
