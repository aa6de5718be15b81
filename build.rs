//! Says to the compiler what tests need and this machine has, and which commit is built.

include!("kernelbench/needs.rs");

fn main() {
    say_what_is_there();
    println!("cargo::rerun-if-env-changed=WARPSMITH_COMMIT");
    let given = env::var("WARPSMITH_COMMIT").ok().filter(|commit| !commit.is_empty());
    // Only a build that is kept is made anew for every commit.
    let kept = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| kept.then(commit).flatten());
    let commit = commit.map(|commit| format!(" (commit {commit})")).unwrap_or_default();
    println!("cargo::rustc-env=WARPSMITH_VERSION={}{commit}", env::var("CARGO_PKG_VERSION").unwrap_or_default());
}

/// The commit of this checkout, with what was changed since; `None` where this is none, or lies in another's.
fn commit() -> Option<String> {
    if !git(&["rev-parse", "--show-prefix"])?.is_empty() {
        return None;
    }
    for file in ["HEAD", "logs/HEAD", "index"] {
        watch(Path::new(&git(&["rev-parse", "--git-path", file])?));
    }
    git(&["describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=, changed since"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
