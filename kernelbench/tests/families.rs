//! Are the families of kernels that come with the project whole, and are their kernels CUDA?
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use warpsmith_kernelbench::{Family, Task, load};

fn families() -> Vec<(PathBuf, Task, Family)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("families");
    let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let read = |path: PathBuf| {
        let task = load::task(&path).unwrap_or_else(|e| panic!("{e}"));
        let family = load::family(&path).unwrap_or_else(|e| panic!("{e}")).unwrap();
        (path, task, family)
    };
    let mut folders: Vec<PathBuf> = folders.collect();
    folders.sort();
    folders.into_iter().map(read).collect()
}

#[test]
fn every_member_of_every_family_can_be_rendered_and_there_are_enough() {
    let families = families();
    assert!(families.len() >= 5);
    for (path, task, family) in families {
        let members = family.draw(usize::MAX, 0).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(members.len() >= 40 && family.designs.len() >= 2, "{}: {}", task.name, members.len());
        let entry = format!("extern \"C\" void {}(", task.context().unwrap().entry);
        for member in members {
            let source = member.candidate.source();
            assert!(source.contains(&entry) && !source.contains("{{") && !source.contains("{%"), "{}", member.name);
        }
    }
}

#[test]
fn what_is_wrong_in_a_family_is_told_with_its_place() {
    let whole = "schema = 1\n[[design]]\nname = \"a\"\ntemplate = \"a.cu\"\nwhere = \"n > 1\"\ngrid = { n = [1, 2] }\n";
    for (from, to, said) in [
        ("", "", "whole"),
        ("schema = 1", "schema = 2", "family.toml:1:10: this version of the format is unknown"),
        ("schema = 1", "schema = 1\ncolour = 1", "family.toml:2:1: unknown field"),
        ("[1, 2]", "[2, 2]", "family.toml:6:14: these are no values to choose from"),
        ("{ n", "{ \"n n\"", "this cannot name a parameter"),
        ("\"a.cu\"", "\"../a.cu\"", "family.toml:4:12: this file must lie in the task's folder"),
        ("\"a.cu\"", "\"b.cu\"", "family.toml:4:12: this file cannot be opened"),
        ("\"a.cu\"", "\"task.toml\"", "design `a`, line 2"),
        ("n > 1", "n >", "where = `n >`"),
        (
            "\nname",
            "\nname = \"a\"\ntemplate = \"a.cu\"\n[[design]]\nname",
            "family.toml:6:8: an earlier design has this name",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let of = Path::new(env!("CARGO_MANIFEST_DIR")).join("families/transpose");
        let task = fs::read_to_string(of.join("task.toml")).unwrap();
        fs::write(folder.path().join("task.toml"), format!("# {{{{ nothing \n{task}")).unwrap();
        fs::copy(of.join("reference.cu"), folder.path().join("reference.cu")).unwrap();
        fs::write(folder.path().join("a.cu"), "// {{ n }}\nvoid transpose();").unwrap();
        fs::write(folder.path().join("family.toml"), whole.replacen(from, to, 1)).unwrap();
        let told = load::family(folder.path()).map_or_else(|e| e.to_string(), |_| "whole".to_owned());
        assert!(told.contains(said), "{to}: {told}");
    }
}

/// Compiled by a real nvcc, where there is one: one of each design, or as many as `FAMILY_MEMBERS` says.
#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn the_references_and_drawn_members_are_cuda() {
    let nvcc = warpsmith_kernelbench::cuda::find_nvcc().unwrap();
    let more = std::env::var("FAMILY_MEMBERS").ok().and_then(|number| number.parse().ok());
    for (path, task, family) in families() {
        let drawn = family.draw(more.unwrap_or(family.designs.len()), 0).unwrap();
        let sources = drawn.iter().map(|member| (member.name.as_str(), member.candidate.text()));
        for (name, source) in sources.chain([("reference", task.reference().to_owned())]) {
            compiles(&nvcc, &source).unwrap_or_else(|log| panic!("{}: {name}: {log}", path.display()));
        }
    }
}

fn compiles(nvcc: &Path, source: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("member.cu");
    fs::write(&file, source).unwrap();
    let mut command = Command::new(nvcc);
    command.args(["-arch=sm_90a", "-std=c++17", "-O1", "-Werror=all-warnings", "-cubin", "-o"]);
    let built = command.arg(folder.path().join("cubin")).arg(&file).output().unwrap();
    if built.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&built.stderr).into_owned()) }
}
