//! Says to the compiler what tests need and this machine has, and lists the files of the features that come along.

include!("needs.rs");

use std::fs;

fn main() {
    say_what_is_there();
    list_features();
}

/// Every file of `features`, with its path from there: a new architecture is a new folder.
fn list_features() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("features");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = vec![];
    collect(&root, &mut files);
    files.sort();
    let line = |file: &PathBuf| {
        let name = file.strip_prefix(&root).unwrap_or(file).display().to_string();
        format!("    ({name:?}, include_str!({:?})),\n", file.display().to_string())
    };
    let lines: String = files.iter().map(line).collect();
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default()).join("features.rs");
    fs::write(out, format!("&[\n{lines}]\n")).expect("cargo gives a folder that can be written to");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let known = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ["toml", "cu", "hip", "h", "md"].iter().any(|one| ending == *one))
    };
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            println!("cargo::rerun-if-changed={}", path.display());
            collect(&path, files);
        } else if known(&path) {
            files.push(path);
        }
    }
}
