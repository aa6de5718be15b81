//! Which layer wins?

use super::Config;
use crate::ablation::merge;
use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

/// The project's own settings, in the working directory.
const PROJECT_FILE: &str = "warpsmith.toml";
/// The largest file of settings that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// Why the settings cannot be used: which file, which line, what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// This file.
    File(PathBuf),
    /// A flag.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// The merged configuration, and where its values come from.
#[derive(Clone, Debug)]
pub struct Layers {
    /// The merged configuration.
    pub config: Config,
    origins: BTreeMap<String, Origin>,
}

impl Layers {
    /// The defaults under this file; without one, under `warpsmith.toml` in the working directory if it exists.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or holds a key that does not exist or a value that cannot be.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        match file {
            Some(file) => Self::over(file),
            None if Path::new(PROJECT_FILE).exists() => Self::over(Path::new(PROJECT_FILE)),
            None => Ok(Self::of(Config::default())),
        }
    }

    /// These settings, with nothing over them.
    #[must_use]
    pub fn of(config: Config) -> Self {
        Self { config, origins: BTreeMap::new() }
    }

    fn over(file: &Path) -> Result<Self, ConfigError> {
        let text = read(file)?;
        let config: Config = toml::from_str(&text).map_err(|e| ConfigError(explain(file, &text, &e)))?;
        config.check().map_err(|why| ConfigError(format!("{}: {why}", file.display())))?;
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| ConfigError(e.to_string()))?;
        let mut origins = BTreeMap::new();
        each_value(&table, "", &mut |key, _| {
            origins.insert(key.to_owned(), Origin::File(file.to_owned()));
        });
        Ok(Self { config, origins })
    }

    /// Lets these settings win over what is set; `from` says where they come from.
    ///
    /// # Errors
    ///
    /// If there is a key that does not exist or a value that cannot be.
    pub fn overlay(&mut self, from: &str, settings: &toml::Table) -> Result<(), ConfigError> {
        let wrong = |e: &dyn fmt::Display| ConfigError(format!("{from}: {e}"));
        let mut whole = toml::Table::try_from(&self.config).map_err(|e| wrong(&e))?;
        merge(&mut whole, settings);
        let merged: Config = whole.try_into().map_err(|e: toml::de::Error| wrong(&e.message()))?;
        merged.check().map_err(|why| wrong(&why))?;
        let before = std::mem::replace(&mut self.config, merged).model;
        // What is never written down does not come back from a text.
        let model = &mut self.config.model;
        (model.api_key, model.api_key_file) = (before.api_key, before.api_key_file);
        for role in model.roles.values_mut() {
            (role.api_key, role.api_key_file) = (None, None);
        }
        for (role, own) in before.roles {
            let role = model.roles.entry(role).or_default();
            (role.api_key, role.api_key_file) = (own.api_key, own.api_key_file);
        }
        each_value(settings, "", &mut |key, _| {
            self.origins.insert(key.to_owned(), Origin::File(from.into()));
        });
        Ok(())
    }

    /// Lets a flag win over what is set, if it was given.
    pub fn flag<T>(&mut self, key: &str, given: Option<T>, set: impl FnOnce(&mut Config, T)) {
        if let Some(value) = given {
            set(&mut self.config, value);
            self.origins.insert(key.to_owned(), Origin::Flag);
        }
    }

    /// Every value with where it comes from, as TOML; keys left out.
    #[must_use]
    pub fn describe(&self) -> String {
        use std::fmt::Write;
        let text = toml::to_string(&self.config).unwrap_or_default();
        let table: toml::Table = text.parse().unwrap_or_default();
        let mut lines = String::new();
        each_value(&table, "", &mut |key, value| {
            let origin = self.origins.get(key).unwrap_or(&Origin::Default);
            let _ = writeln!(lines, "{key} = {value}   # {origin}");
        });
        lines
    }
}

fn read(file: &Path) -> Result<String, ConfigError> {
    let fail = |why: String| ConfigError(format!("{}: {why}", file.display()));
    let size = fs::metadata(file).map_err(|e| fail(format!("cannot read the settings: {e}")))?.len();
    if size > LARGEST {
        return Err(fail("a file of settings is not larger than 1 MiB".into()));
    }
    fs::read_to_string(file).map_err(|e| fail(format!("cannot read the settings: {e}")))
}

/// File, line, and what is wrong there; never the line itself, which may hold a key.
fn explain(file: &Path, text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
    let message = error.message().replace('\n', "; ");
    format!("{}:{line}: {message}\n`warpsmith config --defaults` prints every setting with its meaning", file.display())
}

fn each_value(table: &toml::Table, under: &str, see: &mut impl FnMut(&str, &toml::Value)) {
    for (name, value) in table {
        let key = if under.is_empty() { name.clone() } else { format!("{under}.{name}") };
        match value {
            toml::Value::Table(inner) => each_value(inner, &key, see),
            value => see(&key, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<Layers, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("warpsmith.toml");
        fs::write(&file, text).unwrap();
        Layers::load(Some(&file)).map_err(|e| e.to_string())
    }

    #[test]
    fn an_unknown_key_is_an_error_with_its_line_and_without_its_value() {
        let error = with("[model]\nspec = 'openai:x'\napi_kee = 'sk-typo'\n").unwrap_err();
        assert!(error.contains("warpsmith.toml:3: unknown field `api_kee`"), "{error}");
        assert!(!error.contains("sk-typo"), "{error}");
    }

    #[test]
    fn a_word_that_is_no_choice_is_refused_where_the_file_is_read_with_its_line_and_the_choices() {
        for (setting, choices) in [
            ("[run]\nshapes = 'mine'", "expected one of \"task\", \"model\", found \"mine\"; empty for the default"),
            ("[run]\nplanner = 'me'", "expected one of \"rule\", \"model\""),
            ("[workshop]\nheaders = 'thin'", "expected one of \"slim\", \"stock\", found \"thin\""),
            ("[workshop]\nprofiler = 'nsys'", "expected one of \"cupti\", \"ncu\", \"torch\", \"static\", \"none\""),
            ("[workshop]\nbaselines = 'eager, jit'", "expected one of \"compile\", \"max-autotune\", found \"jit\""),
            ("[workshop]\ndevice = 'gpu'", "expected \"cpu\" or \"cuda:0\""),
            ("[batch]\ngpus = '0,x'", "expected numbers after commas"),
            ("[model]\nspec = 'gpt'", "expected openai:NAME"),
        ] {
            let error = with(setting).unwrap_err();
            assert!(error.contains("warpsmith.toml:2: ") && error.contains(choices), "{setting}: {error}");
        }
        let whole =
            "[run]\nshapes = 'model'\n[workshop]\nbaselines = 'eager,compile'\nprofiler = ''\ndevice = 'cuda:1'\n";
        assert!(with(whole).unwrap().describe().contains("workshop.baselines = \"eager,compile\""));
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let mut layers = with("[run]\nrounds = 3\npolicy = 'astra'\n").unwrap();
        layers.flag("run.rounds", Some(7), |config, rounds| config.run.rounds = rounds);
        let told = layers.describe();
        assert!(told.contains("run.rounds = 7   # flag"), "{told}");
        assert!(told.contains("run.policy = \"astra\"   # /"), "{told}");
        assert!(told.contains("model.retries = 6   # default"), "{told}");
    }
}
