//! Is what a task names a text file inside the task's folder?

use super::{Document, LARGEST_FILE, TaskError};
use crate::{
    result::candidate::Candidate,
    task::{region::regions, space::Space},
};
use std::{
    fs::File,
    io::Read,
    path::{Component, Path, PathBuf},
};
use toml::Spanned;

/// What is wrong with a file, and what to do about it.
pub(super) struct Unreadable(pub(super) String, pub(super) String);

/// The text of a regular file of bearable size.
pub(super) fn read_text(path: &Path) -> Result<String, Unreadable> {
    let broken =
        |error: std::io::Error| Unreadable(format!("it cannot be read: {error}"), "check its permissions".into());
    let metadata = path.metadata().map_err(broken)?;
    if !metadata.is_file() {
        return Err(Unreadable("it is no regular file".into(), "expected a text file".into()));
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(broken)?.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(broken)?;
    if bytes.len() as u64 > LARGEST_FILE {
        let what = format!("it is larger than {} KiB", LARGEST_FILE >> 10);
        return Err(Unreadable(what, "expected a kernel's source or its task file: is it the right file?".into()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let what = format!("it is not UTF-8: byte {} is no part of a character", error.utf8_error().valid_up_to());
        Unreadable(what, "save it as UTF-8 text".into())
    })
}

/// The text of the reference, of a binding or of a template that a task's file names, which defines the entry point.
pub(super) fn beside(document: &Document<'_>, name: &Spanned<String>, entry: &str) -> Result<String, TaskError> {
    let text = text(document, name)?;
    if !text.contains(entry) {
        let help = "expected its source to define the entry point as an extern \"C\" function";
        return document.error(name, format!("this file does not mention the entry point `{entry}`"), help);
    }
    Ok(text)
}

/// A reference with the first values of what it leaves open, and beside it the reference as it was written where it leaves
/// anything open.
pub(super) fn bound(
    document: &Document<'_>,
    name: &Spanned<String>,
    written: String,
    tuning: &Space,
) -> Result<(String, Option<String>), TaskError> {
    if let Err(why) = regions(&written) {
        return document.error(name, format!("the regions of this file cannot be told apart: {why}"), REGIONS_HELP);
    }
    let open = Candidate::new(written);
    if open.open(tuning).is_empty() {
        return Ok((open.text(), None));
    }
    let first = tuning.configurations().ok().and_then(|all| all.into_iter().next()).unwrap_or_default();
    match open.bound(first).written_out(tuning) {
        Ok(parts) => Ok((parts.into_iter().map(|part| part.text).collect(), Some(open.text()))),
        Err(why) => document.error(name, format!("this file cannot be bound: {why}"), OPEN_HELP),
    }
}

const REGIONS_HELP: &str =
    "expected each of macros, device and host once, each behind a line such as `// region: device`";
const OPEN_HELP: &str = "expected every {{NAME}} to be one of [tuning]";

/// The text of a file that a task's file names.
pub(super) fn text(document: &Document<'_>, name: &Spanned<String>) -> Result<String, TaskError> {
    let path = inside(document, name)?;
    read_text(&path)
        .or_else(|Unreadable(what, help)| document.error(name, format!("this file is unusable: {what}"), help))
}

/// Where what a task's file names lies, in its folder and nowhere else.
pub(super) fn inside(document: &Document<'_>, name: &Spanned<String>) -> Result<PathBuf, TaskError> {
    let folder = document.path.parent().unwrap_or(Path::new(""));
    let relative = Path::new(name.get_ref());
    let stays = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if name.get_ref().is_empty() || !stays {
        let help = "expected a path relative to the task's folder, without `..`";
        return document.error(name, "this file must lie in the task's folder", help);
    }
    let path = folder.join(relative);
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match (folder.canonicalize(), path.canonicalize()) {
        (Ok(folder), Ok(real)) if real.starts_with(&folder) => Ok(path),
        (_, Err(error)) => {
            let help = "expected a file that holds a kernel's source, beside task.toml";
            document.error(name, format!("this file cannot be opened: {error}"), help)
        }
        _ => {
            let help = "copy the file into the folder instead of linking to it";
            document.error(name, "this is a link that leads out of the task's folder", help)
        }
    }
}
