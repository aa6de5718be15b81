//! `warpsmith prompts`: what is said to models.

pub(super) mod context;
mod render;

use super::{say, verbatim};
use crate::{
    cli::{PromptsArgs, PromptsCommand, RenderArgs},
    config::Config,
    exit::{Exit, Trouble},
};
use prompts::{FirstPage, Prompt, Prompts};
use std::{fs, io::Write, path::Path};

/// The largest template that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// Lists the templates with their hashes, prints one, or renders a prompt.
pub(super) fn prompts(arguments: &PromptsArgs, config: &Config) -> Result<Exit, Trouble> {
    let library = library(config)?;
    if let Some(PromptsCommand::Render(arguments)) = &arguments.render {
        return rendered(arguments, config, &library);
    }
    let arguments = &arguments.name;
    match &arguments.name {
        None if arguments.json => say(&super::json(&library.hashes())),
        None => library.hashes().iter().for_each(|(name, hash)| say(&format!("{name:<20}  {}", hash.short()))),
        Some(name) => {
            let known = || Prompts::names().collect::<Vec<_>>().join(", ");
            let text = library
                .source(name)
                .ok_or_else(|| Trouble::usage(format!("there is no template {name:?}; there are {}", known())))?;
            verbatim(&if arguments.json { super::json(&text) } else { text.trim_end().to_owned() });
        }
    }
    Ok(Exit::Done)
}

/// Prints the prompt; what was missing for it goes to the error stream.
fn rendered(arguments: &RenderArgs, config: &Config, library: &Prompts) -> Result<Exit, Trouble> {
    let (prompt, missing) = render::render(arguments, config, library)?;
    for missing in &missing {
        let _ = writeln!(std::io::stderr().lock(), "note: {missing}");
    }
    verbatim(&if arguments.json { super::json(&prompt) } else { text(&prompt) });
    Ok(Exit::Done)
}

/// A prompt as a person reads it.
fn text(prompt: &Prompt) -> String {
    let turns: Vec<String> =
        prompt.turns.iter().map(|turn| format!("<<< {:?} >>>\n{}", turn.speaker, turn.text)).collect();
    format!("<<< System >>>\n{}\n{}", prompt.system, turns.join("\n"))
}

/// The templates in force: the embedded ones, with those of the settings' folder in their place.
pub(super) fn library(config: &Config) -> Result<Prompts, Trouble> {
    let library = templates(config)?.transforming(super::transform::catalogue(config)?);
    let library = library.hinting(super::hardware::hints(config)?);
    let library = match super::features::own(config)? {
        Some(features) => library.featuring(features),
        None => library,
    };
    let library = match super::pool::shown(config)? {
        Some(pool) => library.pooling(pool),
        None => library,
    };
    let library = library.beginning_with(first(config)?);
    Ok(match context::told(config)? {
        Some(context::Told::Context(context)) => library.in_context(context),
        Some(context::Told::Library(documents)) => library.documented(documents),
        None => library,
    })
}

/// The page that asks for a first candidate.
fn first(config: &Config) -> Result<FirstPage, Trouble> {
    let named = config.prompts.first.as_str();
    let all = || FirstPage::ALL.map(FirstPage::page).join(", ");
    let wrong = || Trouble::usage(format!("prompts.first = {named:?}: there is no such page; there are {}", all()));
    if named.is_empty() { Ok(FirstPage::default()) } else { FirstPage::named(named).ok_or_else(wrong) }
}

fn templates(config: &Config) -> Result<Prompts, Trouble> {
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
