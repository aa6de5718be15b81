//! How does a kernel become a patch of SGLang's source?

use super::{Layout, swap::Kernel};
use crate::{Error, extract::Scratch};
use kernelbench::Hash;
use similar::TextDiff;
use std::{
    env, fs,
    io::{self, Write},
    path::Path,
    process::{Command, Stdio},
};

/// Where a file that is compiled at run time lies, by layout.
const RUN_TIME: [(&str, &str); 4] = [
    ("kernels", "python/sglang/kernels/jit/csrc"),
    ("jit_kernel", "python/sglang/jit_kernel/csrc"),
    ("site-packages-kernels", "sglang/kernels/jit/csrc"),
    ("site-packages-jit_kernel", "sglang/jit_kernel/csrc"),
];
/// And one that is compiled ahead of time.
const AHEAD: [(&str, &str); 2] = [("aot", "python/sglang/kernels/aot/csrc"), ("sgl-kernel", "sgl-kernel/csrc")];

/// A patch for each layout that SGLang's source has had, or for the tree that is named alone.
///
/// # Errors
///
/// If two kernels would change one file, all kernels are the originals, or the tree is not the one that the kernel replaces.
pub fn patch(kernels: &[Kernel], tree: Option<&Path>) -> Result<Layout, Error> {
    let mut laid = Layout::default();
    for (place, kernel) in kernels.iter().enumerate() {
        let origin = kernel.found.origin();
        if kernels[..place].iter().any(|other| other.found.origin().file == origin.file) {
            return Err(Error::request(format!(
                "{}: two kernels replace this file (by type or operator), and a patch has place for one: export one of the runs, or --as plugin, which holds both",
                origin.file
            )));
        }
        if kernel.found.is_original() {
            let why = "the candidate is the original; there is nothing to patch";
            laid.notes.push(format!("{} ({}): {why}", kernel.operator(), kernel.dtype()));
            continue;
        }
        let layouts = if kernel.is_run_time() { &RUN_TIME[..] } else { &AHEAD[..] };
        let chosen: Vec<_> = match tree {
            Some(tree) => vec![layout_of(tree, layouts, kernel)?],
            None => layouts.to_vec(),
        };
        for (layout, root) in chosen {
            let path = format!("{root}/{}", origin.file);
            let text = diff(&path, &kernel.found.context().reference, &kernel.found.source);
            if let Some(tree) = tree {
                applies(tree, &path, &text)?;
            }
            laid.file(format!("{}-{}-{layout}.patch", kernel.operator(), kernel.dtype()), text);
        }
        laid.notes.push(format!(
            "{} ({}): a patch has no guard: it changes all calls of {}, also those of other types and shapes, which the certificate says nothing of",
            kernel.operator(), kernel.dtype(), origin.file
        ));
        if !kernel.is_run_time() {
            laid.notes.push(format!(
                "{}: this file is compiled ahead of time: the patch needs a build of sglang-kernel",
                origin.file
            ));
        }
    }
    if laid.files.is_empty() {
        return Err(Error::request(laid.notes.join("; ")));
    }
    laid.next.push(
        "git apply --check FILE && git apply FILE   # in sglang's tree; in site-packages: patch -p1 < FILE".into(),
    );
    Ok(laid)
}

/// A change of one file, as git reads it.
#[must_use]
pub fn diff(path: &str, old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let changes = diff.unified_diff().context_radius(3).header(&format!("a/{path}"), &format!("b/{path}")).to_string();
    format!("diff --git a/{path} b/{path}\n{changes}")
}

/// The layout of this tree, if the file in it is the one that the kernel replaces.
fn layout_of(
    tree: &Path,
    layouts: &[(&'static str, &'static str)],
    kernel: &Kernel,
) -> Result<(&'static str, &'static str), Error> {
    let origin = kernel.found.origin();
    let at = |root: &str| tree.join(root).join(&origin.file);
    let Some(layout) = layouts.iter().find(|(_, root)| at(root).is_file()) else {
        let places: Vec<_> = layouts.iter().map(|(_, root)| format!("{root}/{}", origin.file)).collect();
        return Err(Error::request(format!(
            "{}: there is no {} in it: this is no tree of sglang, or a version that moved the file; take out the operator anew from this version",
            tree.display(),
            places.join(" and no ")
        )));
    };
    let path = at(layout.1);
    let text = fs::read(&path).map_err(|e| Error::request(format!("{}: cannot read it: {e}", path.display())))?;
    if Hash::of(&text).as_str() != origin.sha256 {
        return Err(Error::request(format!(
            "{}: it is another text than the one that was taken out: undo changes to it, check out that version, or take the operator out of this one; the kernel replaces the file of sglang {}, sha256 {}",
            path.display(),
            origin.version,
            origin.sha256
        )));
    }
    Ok(*layout)
}

/// Asks git whether it would apply, on a copy of the file in a folder of its own: in the tree git would start the filters that
/// the tree names.
fn applies(tree: &Path, path: &str, text: &str) -> Result<(), Error> {
    let machine = |why: String| Error::machine(format!("the patch cannot be tried: {why}"));
    let scratch = Scratch::new().map_err(machine)?;
    let copy = scratch.0.join(path);
    let copied = fs::create_dir_all(copy.parent().unwrap_or(&copy)).and_then(|()| fs::copy(tree.join(path), &copy));
    copied.map_err(|e| machine(format!("{}: {e}", copy.display())))?;
    let told = tried(&scratch.0, text).map_err(|e| machine(format!("git cannot be started: {e}")))?;
    let why = String::from_utf8_lossy(&told.stderr);
    let wrong =
        || Error::request(format!("{}: git says that the patch does not apply: {}", tree.display(), why.trim()));
    if told.status.success() { Ok(()) } else { Err(wrong()) }
}

/// What git says of the patch in this folder, which is in no repository for it.
fn tried(folder: &Path, text: &str) -> io::Result<std::process::Output> {
    let mut git = Command::new("git");
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
        git.env_remove(name);
    }
    git.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder)).env("GIT_CONFIG_NOSYSTEM", "1");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").arg("-C").arg(folder).args(["apply", "--check", "-"]);
    let mut git = git.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    // Where git reads no further it has said why.
    let _ = git.stdin.take().map(|mut input| input.write_all(text.as_bytes()));
    git.wait_with_output()
}
