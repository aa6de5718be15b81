//! Which kernels does this SGLang have, and why can some not be taken out?

use super::{
    operator::{self, Level, Operator},
    tree::Tree,
};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// One kernel that the framework calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Found {
    /// How it is built, `J` or `A`.
    pub level: &'static str,
    /// The framework's name of it: what it gives `load_jit`, or the operator's of torch.
    pub name: String,
    /// Its files, where they are named there.
    pub files: Vec<String>,
    /// Where it is asked for.
    pub place: String,
    /// Why it cannot be taken out, where it is none of the operators.
    pub why_not: Option<String>,
}

/// The operators that can be taken out of this SGLang, and why one cannot be taken out of this one.
#[must_use]
pub fn operators(tree: &Tree) -> Vec<(Operator, Option<String>)> {
    operator::all()
        .into_iter()
        .map(|one| {
            let why = file(tree, &one).err();
            (one, why)
        })
        .collect()
}

/// Where an operator's file is; of a chain the folder in which all its parts' files are.
///
/// # Errors
/// A sentence that says where it was looked for and what to do.
pub fn file(tree: &Tree, operator: &Operator) -> Result<PathBuf, String> {
    let sources = match operator.level {
        Level::J => tree.jit.as_ref().ok_or("there is no folder of kernels that are compiled at run time")?,
        Level::A => tree.aot.as_ref().ok_or(
            "it is compiled ahead of time, and wheels do not have its source: give a source tree of the same version with --sglang",
        )?,
    };
    if !operator.parts.is_empty() {
        let parts = operator.parts.iter().map(|part| self::file(tree, &operator::named(part)?));
        return parts.collect::<Result<Vec<_>, _>>().map(|_| sources.join("csrc"));
    }
    let file = sources.join("csrc").join(&operator.file);
    if file.is_file() {
        return Ok(file);
    }
    Err(format!(
        "{} is not there: SGLang {} keeps {} elsewhere or has it no more; take a version from 0.5.17 on, or one that this program knows",
        file.display(),
        tree.version,
        operator.file
    ))
}

/// Every call of `load_jit`, and every operator of torch that the sources register.
#[must_use]
pub fn all(tree: &Tree) -> Vec<Found> {
    let mut found = Vec::new();
    walk(&tree.package, "py", &mut |path, text| {
        let place = path.strip_prefix(tree.site()).unwrap_or(path).display().to_string();
        found
            .extend(calls(text, "load_jit(").filter(|call| call.contains("cuda_files")).map(|call| jit(&call, &place)));
    });
    if let Some(aot) = &tree.aot {
        walk(&aot.join("csrc"), "cc", &mut |path, text| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let others = ["rocm", "musa", "metal", "cpu"];
            if !others.iter().any(|other| name.contains(other)) {
                found.extend(calls(text, "m.def(").filter_map(|call| aot_operator(&call, &name)));
            }
        });
    }
    found.sort();
    found.dedup();
    found
}

fn jit(call: &str, place: &str) -> Found {
    let name = strings(call).next().unwrap_or_default();
    let files: Vec<String> = match call.split_once("cuda_files") {
        // What begins with a hyphen is a flag that stands in the same brackets.
        Some((_, rest)) => {
            strings(rest.split(']').next().unwrap_or_default()).filter(|file| !file.starts_with('-')).collect()
        }
        None => vec![],
    };
    let known = operator::all().into_iter().any(|one| one.level == Level::J && files.contains(&one.file));
    let refused = operator::refused().iter().find(|refused| files.contains(&refused.file));
    let why_not = match refused {
        _ if known => None,
        Some(refused) => Some(refused.why.clone()),
        None if call.contains("extra_dependencies") => {
            Some("it needs headers of other projects, and nobody has described its arguments".into())
        }
        None if files.is_empty() => Some("its files are computed when it is called".into()),
        None if files.len() > 1 => Some("it has several files".into()),
        None => Some(NOBODY.into()),
    };
    Found { level: "J", name, files, place: place.to_owned(), why_not }
}

/// Why an operator cannot be taken out that nobody has looked at.
pub const NOBODY: &str = "nobody has described its arguments and shapes yet";

fn aot_operator(call: &str, place: &str) -> Option<Found> {
    let schema: String = strings(call).collect();
    let name = schema.split('(').next()?.trim().to_owned();
    let known = operator::all()
        .into_iter()
        .any(|one| one.level == Level::A && one.schema.split('(').next() == Some(name.as_str()));
    let refused = operator::refused().iter().find(|refused| refused.is(&name));
    let why_not = (!known).then(|| refused.map_or_else(|| NOBODY.to_owned(), |refused| refused.why.clone()));
    (!name.is_empty()).then(|| Found { level: "A", name, files: vec![], place: place.to_owned(), why_not })
}

/// What stands between the parentheses of each call of this name.
fn calls<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    text.match_indices(name).filter_map(move |(at, _)| {
        let before = text[..at].chars().next_back();
        let rest = &text[at + name.len()..];
        let mut depth = 1;
        let end = rest.find(|c: char| {
            depth += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth == 0
        })?;
        let called = before.is_none_or(|c| !c.is_alphanumeric() && c != '_') && !text[..at].ends_with("def ");
        called.then(|| rest[..end].to_owned())
    })
}

/// The strings between double quotes.
fn strings(text: &str) -> impl Iterator<Item = String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned)
}

/// Every file of this ending below a folder, links left alone.
fn walk(folder: &Path, ending: &str, each: &mut dyn FnMut(&Path, &str)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths.iter().filter(|path| !path.is_symlink()) {
        if path.is_dir() {
            walk(path, ending, each);
        } else if path.extension().is_some_and(|one| one == ending)
            && let Ok(text) = fs::read_to_string(path)
        {
            each(path, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_with_what_they_name() {
        let text = "def load_jit(a):\n  pass\nx = load_jit(\n  \"one\", *args(1),\n  cuda_files=[\"a/b.cuh\"],\n)\n";
        let found: Vec<Found> = calls(text, "load_jit(").map(|call| jit(&call, "x.py")).collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].files.as_slice()), ("one", &["a/b.cuh".to_owned()][..]));
        assert_eq!(found[0].why_not.as_deref(), Some(NOBODY));
        let known = jit("\"activation\", cuda_files=[\"elementwise/activation.cuh\"]", "x.py");
        assert_eq!(known.why_not, None);
        let schema = aot_operator("\"moe_sum(Tensor input, \" \n \"Tensor! output) -> ()\"", "x.cc");
        assert_eq!(schema.map(|one| one.name).as_deref(), Some("moe_sum"));
    }
}
