//! What the settings have the Coder told of the architecture, or let it read page by page.

use super::super::features;
use crate::{config::Config, exit::Trouble, wiring};
use kernelbench::feature::{Column, Features, Module};
use prompts::{Context, Documents};
use std::{fs, path::Path};

/// The most tokens that a folder's texts may come to: more fits into no prompt.
const MOST_TOKENS: usize = 200_000;
/// The most bytes of a folder's texts.
const MOST_BYTES: u64 = 64 << 20;
/// The longest name of a text, in characters: with a number and a page's behind it, it can be named in a reply.
const LONGEST_NAME: usize = 52;
/// Files that are texts, by how their names end.
const ENDINGS: [&str; 9] = ["md", "txt", "h", "cuh", "hpp", "cu", "hip", "py", "rst"];

/// What the settings name.
pub(in crate::command) enum Told {
    /// It stands in every prompt of the Coder.
    Context(Context),
    /// The Coder reads pages of it.
    Library(Documents),
}

/// The context that the settings name; none where they name none.
///
/// # Errors
///
/// If it cannot be read, or is none.
pub(in crate::command) fn told(config: &Config) -> Result<Option<Told>, Trouble> {
    let named = config.prompts.context.as_str();
    let wrong = |why: String| Trouble::usage(format!("prompts.context = {named:?}: {why}"));
    let expected = "expected modules:K with K up to 6, lexical, folder:PATH or library:PATH";
    let of_column = |context: &dyn Fn(&Column) -> Context| {
        let features = features::library(config)?;
        let column = column(&features, config).ok_or_else(|| wrong("there are no features here".to_owned()))?;
        Ok::<_, Trouble>(Some(Told::Context(context(column))))
    };
    match named.split_once(':').unwrap_or((named, "")) {
        ("", _) => Ok(None),
        ("lexical", "") => of_column(&Context::lexical),
        ("modules", count) => match count.parse::<usize>() {
            Ok(count) if count <= 6 => of_column(&|column| Context::modules(column, count)),
            _ => Err(wrong(expected.to_owned())),
        },
        ("folder", path) => folder(Path::new(path)).map(Told::Context).map(Some).map_err(wrong),
        ("library", path) => library(Path::new(path)).map(Told::Library).map(Some).map_err(wrong),
        _ => Err(wrong(expected.to_owned())),
    }
}

/// The GPU's column; where there is no GPU, the first, as a simulation has it.
fn column<'a>(features: &'a Features, config: &Config) -> Option<&'a Column> {
    let own = wiring::gpu_arch(config).map(|arch| features.of_arch(&arch));
    own.unwrap_or_else(|| features.columns().first())
}

/// The texts of a folder, in the order of their names.
fn folder(path: &Path) -> Result<Context, String> {
    let module = |(name, text): (String, String)| Module { text: format!("# {name}\n\n{text}"), name };
    let context = Context { api: texts(path, false)?.into_iter().map(module).collect(), ..Context::default() };
    match context.tokens() {
        more if more > MOST_TOKENS => Err(format!(
            "{} holds {more} tokens, and {MOST_TOKENS} are the most: leave fewer there, or let the Coder read pages of it, by \
             library:{}",
            path.display(),
            path.display()
        )),
        _ => Ok(context),
    }
}

/// The texts of a folder and of those below it, in pages.
fn library(path: &Path) -> Result<Documents, String> {
    Ok(Documents::new(texts(path, true)?))
}

/// The texts of a folder, with `below` of those in it too, each by a name that can stand in a prompt and in a reply: its path
/// with `.` in the place of what parts folders, and no two alike.
fn texts(path: &Path, below: bool) -> Result<Vec<(String, String)>, String> {
    let (mut folders, mut files, mut bytes) = (vec![path.to_owned()], vec![], 0);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|e| format!("cannot look into {}: {e}", folder.display()))?;
        for file in entries.flatten().map(|entry| entry.path()) {
            // What a link leads to may lie anywhere: of a whole tree none is followed.
            let about = if below { fs::symlink_metadata(&file) } else { fs::metadata(&file) };
            let Ok(about) = about else { continue };
            let named = file.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
            if about.is_dir() && below {
                folders.push(file);
            } else if about.is_file() && named {
                bytes += about.len();
                files.push(file);
            }
        }
    }
    if bytes > MOST_BYTES {
        let found = format!("{} holds {} MiB of texts", path.display(), bytes >> 20);
        return Err(format!("{found}, and {} are the most: leave fewer there", MOST_BYTES >> 20));
    }
    files.sort();
    let mut texts: Vec<(String, String)> = vec![];
    for file in files {
        let bytes = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let name = name(file.strip_prefix(path).unwrap_or(&file));
        let numbered = (2..).map(|nth| format!("{name}-{nth}"));
        let is_free = |name: &String| texts.iter().all(|(taken, _)| taken != name);
        let name = std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name);
        texts.push((name, String::from_utf8_lossy(&bytes).into_owned()));
    }
    if texts.is_empty() {
        return Err(format!("{} has no texts; they end with {}", path.display(), ENDINGS.join(", ")));
    }
    Ok(texts)
}

/// A path as a name: letters, digits, `_`, `-` and `.`, the end of it where it is long.
fn name(path: &Path) -> String {
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: Vec<char> = parts.join(".").chars().map(plain).collect();
    name[name.len().saturating_sub(LONGEST_NAME)..].iter().collect()
}
