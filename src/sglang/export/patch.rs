//! How does a kernel become a patch of SGLang's source?

use super::{Layout, swap::Kernel};
use crate::{exit::Trouble, sglang::tree::QUIET_GIT};
use kernelbench::Hash;
use similar::TextDiff;
use std::{fs, path::Path, process::Command};

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
/// If two kernels would change one file, a kernel is the original, or the tree is not the one that the kernel replaces.
pub fn patch(kernels: &[Kernel], tree: Option<&Path>) -> Result<Layout, Trouble> {
    let mut laid = Layout::default();
    for (place, kernel) in kernels.iter().enumerate() {
        let origin = kernel.found.origin();
        if kernels[..place].iter().any(|other| other.found.origin().file == origin.file) {
            return Err(Trouble::usage(format!(
                "{}: two kernels replace this file (by type or operator), and a patch has place for one: export one of the runs, or --as plugin, which holds both",
                origin.file
            )));
        }
        if kernel.found.source == kernel.found.context().reference {
            return Err(Trouble::usage(format!(
                "{}: the candidate is the original; there is nothing to patch",
                origin.file
            )));
        }
        let layouts = if kernel.is_run_time() { &RUN_TIME[..] } else { &AHEAD[..] };
        let chosen: Vec<_> = match tree {
            Some(tree) => vec![layout_of(tree, layouts, kernel)?],
            None => layouts.to_vec(),
        };
        for (layout, root) in chosen {
            let text =
                diff(&format!("{root}/{}", origin.file), &kernel.found.context().reference, &kernel.found.source);
            if let Some(tree) = tree {
                applies(tree, &text)?;
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
) -> Result<(&'static str, &'static str), Trouble> {
    let origin = kernel.found.origin();
    let at = |root: &str| tree.join(root).join(&origin.file);
    let Some(layout) = layouts.iter().find(|(_, root)| at(root).is_file()) else {
        let places: Vec<_> = layouts.iter().map(|(_, root)| format!("{root}/{}", origin.file)).collect();
        return Err(Trouble::usage(format!(
            "{}: there is no {} in it: this is no tree of sglang, or a version that moved the file; take out the operator anew from this version",
            tree.display(),
            places.join(" and no ")
        )));
    };
    let path = at(layout.1);
    let text = fs::read(&path).map_err(|e| Trouble::usage(format!("{}: cannot read it: {e}", path.display())))?;
    if Hash::of(&text).as_str() != origin.sha256 {
        return Err(Trouble::usage(format!(
            "{}: {}; the kernel replaces the file of sglang {}, sha256 {}",
            path.display(),
            if is_changed(tree, &path) {
                "it has changes that are not committed: commit or undo them first"
            } else {
                "it is another text than the one that was taken out: check out that version, or take the operator out of this one"
            },
            origin.version,
            origin.sha256
        )));
    }
    Ok(*layout)
}

/// Whether git knows of changes to this file.
fn is_changed(tree: &Path, path: &Path) -> bool {
    let told = Command::new("git")
        .args(QUIET_GIT)
        .arg("-C")
        .arg(tree)
        .args(["status", "--porcelain", "--"])
        .arg(absolute(path))
        .output();
    told.is_ok_and(|told| told.status.success() && !told.stdout.is_empty())
}

fn absolute(path: &Path) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Asks git whether it would apply.
fn applies(tree: &Path, text: &str) -> Result<(), Trouble> {
    use std::{io::Write, process::Stdio};
    let wrong =
        |why: String| Trouble::usage(format!("{}: git says that the patch does not apply: {why}", tree.display()));
    let mut git = Command::new("git")
        .arg("-C")
        .arg(tree)
        .args(["apply", "--check", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Trouble::machine(format!("git cannot be started, which checks the patch: {e}")))?;
    if let Some(mut input) = git.stdin.take() {
        input.write_all(text.as_bytes()).map_err(|e| wrong(e.to_string()))?;
    }
    let told = git.wait_with_output().map_err(|e| wrong(e.to_string()))?;
    if told.status.success() { Ok(()) } else { Err(wrong(String::from_utf8_lossy(&told.stderr).trim().to_owned())) }
}
