//! Which headers does a task bring along?

use super::{
    Document, TaskError,
    reference::{self, Unreadable},
};
use crate::task::Language;
use std::{collections::BTreeMap, fs, path::Path};
use toml::Spanned;

/// How many headers a task may have.
const MOST: usize = 512;
/// What they may weigh together, in bytes.
const LARGEST: usize = 8 << 20;
/// How deep their folders may lie.
const DEEPEST: usize = 12;

/// The headers in the folder that a task's file names, by their path in it.
pub(super) fn headers(
    document: &Document<'_>,
    name: &Spanned<String>,
    language: Language,
) -> Result<BTreeMap<String, String>, TaskError> {
    if language != Language::Cuda {
        let help = "take the key away: a candidate in this language has the system's headers alone";
        return document.error(name, "only a task in \"cuda\" can bring headers along", help);
    }
    let folder = reference::inside(document, name)?;
    if !folder.is_dir() {
        return document.error(name, "this is no folder", "expected a folder of headers, beside task.toml");
    }
    let mut headers = BTreeMap::new();
    gather(&folder, "", DEEPEST, &mut headers)
        .or_else(|Unreadable(what, help)| document.error(name, format!("this folder is unusable: {what}"), help))?;
    Ok(headers)
}

/// Adds what lies in a folder. Links are refused, whatever they lead to.
fn gather(folder: &Path, prefix: &str, depth: usize, headers: &mut BTreeMap<String, String>) -> Result<(), Unreadable> {
    let broken = |error: std::io::Error| Unreadable(format!("{prefix}: {error}"), "check its permissions".into());
    for entry in fs::read_dir(folder).map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let path = format!("{prefix}{}", plain(&entry.file_name())?);
        let kind = entry.file_type().map_err(broken)?;
        if kind.is_symlink() {
            return Err(Unreadable(format!("{path} is a link"), "copy the file instead of linking to it".into()));
        }
        if kind.is_dir() && depth == 0 {
            return Err(Unreadable(format!("{path} lies too deep"), format!("expected at most {DEEPEST} folders")));
        }
        if kind.is_dir() {
            gather(&entry.path(), &format!("{path}/"), depth - 1, headers)?;
            continue;
        }
        let text = reference::read_text(&entry.path())
            .map_err(|Unreadable(what, help)| Unreadable(format!("{path}: {what}"), help))?;
        headers.insert(path, text);
        if headers.len() > MOST || headers.values().map(String::len).sum::<usize>() > LARGEST {
            let help = format!("expected at most {MOST} headers and {} MiB in all", LARGEST >> 20);
            return Err(Unreadable("it holds too much".into(), help));
        }
    }
    Ok(())
}

/// A name that can stand in an include and in every file system.
fn plain(name: &std::ffi::OsStr) -> Result<&str, Unreadable> {
    let plain = |name: &&str| is_plain(name);
    name.to_str().filter(plain).ok_or_else(|| {
        let help = "expected letters, digits, `_`, `-`, `+` and `.`, and no dot first".to_owned();
        Unreadable(format!("{} is no header's name", name.to_string_lossy()), help)
    })
}

/// Whether this is a part of a header's path.
fn is_plain(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+.".contains(c);
    !part.is_empty() && !part.starts_with('.') && part.len() <= 128 && part.chars().all(plain)
}

/// Whether a header of this path stays in the folder that it is laid into. A task from a run's folder has not been through
/// the reader of task files.
pub(crate) fn stays(path: &str) -> bool {
    path.split('/').count() <= DEEPEST + 1 && path.split('/').all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_stays_in_its_folder() {
        for path in ["a.h", "sgl_kernel/vec.cuh", "c10/cuda/CUDAGuard.h", "array"] {
            assert!(stays(path), "{path}");
        }
        for path in ["", "/etc/x", "../x.h", "a/../../x.h", "a//b", ".x", "a b", "a\nb", &"a/".repeat(20)] {
            assert!(!stays(path), "{path}");
        }
    }
}
