//! What an architecture's instructions look like in a kernel, and six patterns made of them: short texts beside the cells
//! (Hawkeye, C.3 and D.8).

use super::load::{FeatureError, Files, wrong};

/// The folder of instructions.
pub(super) const API: &str = "api";
/// The folder of patterns.
pub(super) const PATTERNS: &str = "patterns";
/// The patterns in the order in which a budget of some takes them.
const ORDER: [&str; 6] = ["pipeline", "roles", "epilogue", "persistent", "reduction", "cluster"];

/// A short text about an instruction or a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name: `wgmma`, `pipeline`.
    pub name: String,
    /// What a model is told.
    pub text: String,
}

/// The modules of one kind of a column, in order.
pub(super) fn modules(column: &str, kind: &str, files: &Files) -> Result<Vec<Module>, FeatureError> {
    let prefix = format!("{column}/{kind}/");
    let mut all = vec![];
    for (file, text) in files.iter().filter(|(file, _)| file.starts_with(&prefix)) {
        let Some(name) = file[prefix.len()..].strip_suffix(".md") else {
            return wrong(file, "expected a text that ends with .md");
        };
        if text.trim().is_empty() {
            return wrong(file, "this file is empty");
        }
        all.push(Module { name: name.to_owned(), text: text.clone() });
    }
    let place = |module: &Module| ORDER.iter().position(|name| kind == PATTERNS && *name == module.name);
    all.sort_by_key(|module| place(module).unwrap_or(ORDER.len()));
    Ok(all)
}
