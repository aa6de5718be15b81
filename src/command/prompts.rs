//! `warpsmith prompts`: what is said to models.

use super::say;
use crate::{
    cli::NameArgs,
    config::Config,
    exit::{Exit, Trouble},
};
use prompts::Prompts;
use std::{fs, path::Path};

/// The largest template that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// Lists the templates with their hashes, or prints one.
pub(super) fn prompts(arguments: &NameArgs, config: &Config) -> Result<Exit, Trouble> {
    let library = library(config)?;
    match &arguments.name {
        None if arguments.json => say(&super::json(&library.hashes())),
        None => library.hashes().iter().for_each(|(name, hash)| say(&format!("{name:<20}  {}", hash.short()))),
        Some(name) => {
            let known = || Prompts::names().collect::<Vec<_>>().join(", ");
            let text = library
                .source(name)
                .ok_or_else(|| Trouble::usage(format!("there is no template {name:?}; there are {}", known())))?;
            say(&if arguments.json { super::json(&text) } else { text.trim_end().to_owned() });
        }
    }
    Ok(Exit::Done)
}

/// The templates in force: the embedded ones, with those of the settings' folder in their place.
pub(super) fn library(config: &Config) -> Result<Prompts, Trouble> {
    let folder = Path::new(&config.prompts.folder);
    if folder.as_os_str().is_empty() {
        return Ok(Prompts::embedded());
    }
    let wrong = |why: String| Trouble::usage(format!("{} (prompts.folder): {why}", folder.display()));
    let own = texts(folder, "").map_err(wrong)?;
    Prompts::with(own).map_err(|e| wrong(e.to_string()))
}

/// The templates in a folder and in those below it, as `folder/name`, each with its text.
fn texts(folder: &Path, prefix: &str) -> Result<Vec<(String, String)>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("cannot look into {}: {e}", folder.display()))?;
    let mut texts = vec![];
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = format!("{prefix}{}", path.file_stem().unwrap_or_default().to_string_lossy());
        let about = fs::symlink_metadata(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        if about.is_dir() {
            texts.extend(self::texts(&path, &format!("{name}/"))?);
        } else if about.len() > LARGEST {
            return Err(format!("{}: a template is not larger than 1 MiB", path.display()));
        } else {
            texts.push((name, fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?));
        }
    }
    Ok(texts)
}
