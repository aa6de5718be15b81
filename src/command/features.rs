//! `warpsmith features`: the features of architectures, and whether they fire

mod list;
mod report;
mod score;
mod verify;

use crate::{
    cli::FeaturesCommand,
    config::{Config, Layers},
    exit::{Exit, Trouble},
    key::Environment,
};
use kernelbench::feature::Features;
use std::{collections::BTreeMap, fs, path::Path};

/// The folder of a user's own features in the working directory.
const USUAL_FOLDER: &str = "features";
/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// The files that make a feature, by how their names end.
const ENDINGS: [&str; 5] = ["toml", "cu", "hip", "h", "md"];

/// Does what is asked about features.
pub(super) fn features(what: &FeaturesCommand, layers: Layers, environment: &Environment) -> Result<Exit, Trouble> {
    let features = library(&layers.config)?;
    match what {
        FeaturesCommand::List(arguments) => list::list(arguments, &features),
        FeaturesCommand::Modules(arguments) => list::modules(arguments, &features),
        FeaturesCommand::Show(arguments) => list::show(arguments, &features),
        FeaturesCommand::Report(arguments) => report::report(arguments, &features),
        FeaturesCommand::Score(arguments) => score::score(arguments, &features, layers, environment),
        FeaturesCommand::Verify(arguments) => verify::verify(arguments, &features, &layers.config),
    }
}

/// The features in force: those that come with the program, and those of the user's folder beside them.
///
/// # Errors
///
/// If the folder cannot be read, or a feature in it is wrong.
pub(crate) fn library(config: &Config) -> Result<Features, Trouble> {
    Ok(own(config)?.unwrap_or_else(Features::embedded))
}

/// The same where there is a user's folder; `None` where there is none.
///
/// # Errors
///
/// As for [`library`].
pub(crate) fn own(config: &Config) -> Result<Option<Features>, Trouble> {
    let named = &config.prompts.features;
    let folder = Path::new(if named.is_empty() { USUAL_FOLDER } else { named });
    if named.is_empty() && !has_columns(folder) {
        return Ok(None);
    }
    let wrong = |why: String| Trouble::usage(format!("{} (prompts.features): {why}", folder.display()));
    let mut files = BTreeMap::new();
    collect(folder, "", &mut files).map_err(wrong)?;
    Features::with(files).map(Some).map_err(|error| wrong(error.to_string()))
}

/// Whether a folder that nobody named holds features: another project may keep something else under this name.
fn has_columns(folder: &Path) -> bool {
    let columns = fs::read_dir(folder).into_iter().flatten().flatten();
    columns.into_iter().any(|entry| entry.path().join("column.toml").is_file())
}

fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(|e| format!("cannot look into {}: {e}", folder.display()))?.flatten() {
        let (path, name) = (entry.path(), format!("{prefix}{}", entry.file_name().to_string_lossy()));
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files)?;
        } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
            let small = fs::metadata(&path).is_ok_and(|about| about.len() <= LARGEST);
            let text = if small {
                fs::read_to_string(&path).map_err(|e| e.to_string())
            } else {
                Err("it is larger than 1 MiB".into())
            };
            files.insert(name, text.map_err(|why| format!("{}: {why}", path.display()))?);
        }
    }
    Ok(())
}
