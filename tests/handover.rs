//! Does the program find the one that reads tables of profiles, and say how to get it where there is none?

use crate::program::{self, Told};
use std::{fs, path::Path, process::Command};

/// A copy of the program with nothing beside it, and nothing in PATH but a folder.
fn alone(folder: &Path, arguments: &[&str]) -> Told {
    let copy = folder.join("warpsmith");
    if !copy.exists() {
        program::install(Path::new(env!("CARGO_BIN_EXE_warpsmith")), &copy);
    }
    let mut command = Command::new(copy);
    command.args(arguments).current_dir(folder).env("PATH", folder.join("bin"));
    command.output().map(Told::of).unwrap()
}

#[test]
fn where_it_is_missing_one_sentence_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["metrics", "select", "p.parquet"][..], &["metrics", "score", "--help"]] {
        let told = alone(folder.path(), arguments).ended(3);
        assert!(told.err.contains("cargo install --locked --path metrics/selection"), "{told:?}");
        assert_eq!(told.err.lines().count(), 1, "{told:?}");
    }
    let told = alone(folder.path(), &["mcp", "--http", "127.0.0.1:8931"]).ended(3);
    assert!(told.err.contains("cargo install --locked --path mcp"), "{told:?}");
    let told = alone(folder.path(), &["metrics", "--build", "select", "p.parquet"]).ended(2);
    assert!(told.err.contains("lies in a checkout"), "{told:?}");
}

#[test]
fn a_sampling_does_not_begin_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let task = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernelbench/families/transpose").display().to_string();
    let told = alone(folder.path(), &["metrics", "sample", &task, "--simulate", "--out", "p.parquet"]).ended(3);
    assert!(told.err.contains("warpsmith-metrics") && told.out.is_empty(), "{told:?}");
}

#[test]
fn what_needs_no_table_needs_no_other_program() {
    let folder = tempfile::tempdir().unwrap();
    assert!(alone(folder.path(), &["metrics", "show", "cudaforge24"]).ended(0).out.contains("cudaforge24: 24 metrics"));
}

#[test]
fn it_is_taken_from_path_with_all_words_in_their_order_and_ends_as_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    let stand_in = folder.path().join("bin/warpsmith-metrics");
    program::executable(&stand_in, "#!/bin/sh\necho \"$@\"\nexit 7\n");
    let told = alone(folder.path(), &["metrics", "select", "a.parquet", "--top", "5", "-x"]).ended(7);
    assert_eq!(told.out, "select a.parquet --top 5 -x\n");
    assert_eq!(alone(folder.path(), &["metrics", "report", "--help"]).ended(7).out, "report --help\n");
}

#[test]
fn what_was_sampled_is_chosen_from_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let profiles = concat!(env!("CARGO_MANIFEST_DIR"), "/metrics/profiles/h200.parquet");
    let select = ["metrics", "select", profiles, "--want", "3", "--out", &at("three.toml")];
    program::with_metrics(&select).output().map(Told::of).unwrap().ended(0);
    let said = program::run(&["metrics", "show", &at("three.toml")]).ended(0).out;
    assert!(said.contains("three: 3 metrics") && said.contains("rule stable, 3 wanted"), "{said}");
    let usage = program::with_metrics(&["metrics", "select", "--help"]).output().map(Told::of).unwrap().ended(0).out;
    assert!(usage.contains("Usage: warpsmith metrics select") && usage.contains("--percentile"), "{usage}");
}

#[test]
fn asked_to_it_builds_it_in_the_checkout_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("metrics/selection")).unwrap();
    fs::write(folder.path().join("metrics/selection/Cargo.toml"), "").unwrap();
    let script = |name: &str, text: &str| {
        let path = folder.path().join(name);
        program::executable(&path, &format!("#!/bin/sh\n{text}\n"));
        path
    };
    script("built", "echo \"built: $@\"");
    let cargo = script(
        "cargo",
        "echo \"$@\" > told; /bin/mkdir -p target/release; /bin/cp built target/release/warpsmith-metrics",
    );
    let copy = folder.path().join("warpsmith");
    program::install(Path::new(env!("CARGO_BIN_EXE_warpsmith")), &copy);
    for arguments in [["metrics", "--build", "select", "p.parquet"], ["metrics", "select", "--build", "p.parquet"]] {
        let mut command = Command::new(&copy);
        command.args(arguments).current_dir(folder.path()).env("PATH", "").env("CARGO", &cargo);
        let told = command.env_remove("CARGO_TARGET_DIR").output().map(Told::of).unwrap().ended(0);
        assert_eq!(told.out, "built: select p.parquet\n");
    }
    let told = fs::read_to_string(folder.path().join("told")).unwrap();
    assert!(told.starts_with("build --release --locked -p warpsmith-selection"), "{told}");
}
