//! What the settings have the Coder told of the architecture, and how many tokens that is.

use super::super::features;
use crate::{config::Config, exit::Trouble, wiring};
use kernelbench::feature::{Column, Features, Module};
use prompts::Context;
use std::{fs, path::Path};

/// The most tokens that a folder's texts may come to: more fits into no prompt.
const MOST_TOKENS: usize = 200_000;
/// Files that are texts, by how their names end.
const ENDINGS: [&str; 9] = ["md", "txt", "h", "cuh", "hpp", "cu", "hip", "py", "rst"];

/// The context that the settings name; none where they name none.
///
/// # Errors
///
/// If it cannot be read, or is none.
pub(in crate::command) fn told(config: &Config) -> Result<Option<Context>, Trouble> {
    let named = config.prompts.context.as_str();
    let wrong = |why: String| Trouble::usage(format!("prompts.context = {named:?}: {why}"));
    let expected = "expected modules:K with K up to 6, lexical, or folder:PATH";
    let of_column = |context: &dyn Fn(&Column) -> Context| {
        let features = features::library(config)?;
        let column = column(&features, config).ok_or_else(|| wrong("there are no features here".to_owned()))?;
        Ok::<_, Trouble>(Some(context(column)))
    };
    match named.split_once(':').unwrap_or((named, "")) {
        ("", _) => Ok(None),
        ("lexical", "") => of_column(&Context::lexical),
        ("modules", count) => match count.parse::<usize>() {
            Ok(count) if count <= 6 => of_column(&|column| Context::modules(column, count)),
            _ => Err(wrong(expected.to_owned())),
        },
        ("folder", path) => folder(Path::new(path)).map(Some).map_err(wrong),
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
    let mut files: Vec<_> = fs::read_dir(path)
        .map_err(|e| format!("cannot look into {}: {e}", path.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|file| file.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)))
        .collect();
    files.sort();
    let mut api = vec![];
    for file in files {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        api.push(Module { text: format!("# {name}\n\n{text}"), name });
    }
    if api.is_empty() {
        return Err(format!("{} has no texts; they end with {}", path.display(), ENDINGS.join(", ")));
    }
    let context = Context { api, ..Context::default() };
    match context.tokens() {
        more if more > MOST_TOKENS => {
            Err(format!("{} holds {more} tokens, and {MOST_TOKENS} are the most: leave fewer there", path.display()))
        }
        _ => Ok(context),
    }
}
