//! Does one learn which warpsmith this is?
use crate::program;

use std::{path::Path, process::Command};

/// What build.rs says of the version in a build of this profile, of a commit that is told, or of none.
fn says(build: &Path, profile: &str, told: &str) -> String {
    let mut command = Command::new(build);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env("PROFILE", profile).env("WARPSMITH_COMMIT", told);
    let said = String::from_utf8(command.env("CARGO_PKG_VERSION", "1.2.3").output().unwrap().stdout).unwrap();
    let line = said.lines().find_map(|line| line.strip_prefix("cargo::rustc-env=WARPSMITH_VERSION="));
    line.unwrap_or_default().to_owned()
}

#[test]
fn builds_that_are_kept_name_their_commit_and_so_does_whoever_is_told_it() {
    let folder = tempfile::tempdir().unwrap();
    let build = folder.path().join("build");
    let mut compile = Command::new(std::env::var("RUSTC").unwrap_or("rustc".into()));
    compile.args(["--edition", "2024", "build.rs", "-o"]).arg(&build).current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(compile.status().unwrap().success());
    assert_eq!(says(&build, "debug", ""), "1.2.3");
    assert_eq!(says(&build, "debug", "abc"), "1.2.3 (commit abc)");
    let head = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let head = head.map(|output| String::from_utf8(output.stdout).unwrap()).unwrap_or_default();
    let (named, kept) = (head.get(..12).unwrap_or_default(), says(&build, "release", ""));
    assert!(named.is_empty() && kept == "1.2.3" || kept.starts_with(&format!("1.2.3 (commit {named}")), "{kept}");
}

#[test]
fn the_version_is_what_a_run_notes() {
    let (_folder, recorded) = program::place();
    program::simulated(&recorded, &[]).ended(0);
    let header = std::fs::read_to_string(Path::new(&recorded).join("run.toml")).unwrap();
    let told = program::run(&["--version"]).ended(0);
    let version = told.out.trim().strip_prefix("warpsmith ").unwrap();
    assert!(header.contains(&format!("warpsmith = \"{version}\"")), "{header}");
}
