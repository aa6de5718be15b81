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

#[test]
fn ci_runs_its_two_commands() {
    let ci = include_str!("../.ci/run");
    assert!(PAGE.contains("cargo run --release -- run examples/silu_and_mul"));
    assert!(ci.contains("cargo run --release --locked -- run examples/silu_and_mul"));
    assert!(PAGE.contains("\ncargo test --workspace\n") && ci.trim_end().ends_with("\ncargo test --workspace"));
}

#[test]
fn the_rust_that_it_asks_for_is_the_one_that_the_manifest_asks_for() {
    let version = env!("CARGO_PKG_RUST_VERSION");
    assert!(PAGE.contains(&format!("You need Rust {version} or newer")), "Cargo.toml asks for {version}");
}
