//! Which problems of KernelBench make a named selection?

use super::numbers::Numbers;
use crate::exit::Trouble;
use serde::Deserialize;
use std::{collections::BTreeMap, path::Path};

/// The suites that come with the program.
const EMBEDDED: [(&str, &str); 8] = [
    ("smoke", include_str!("../../kernelbench/suites/smoke.toml")),
    ("level1", include_str!("../../kernelbench/suites/level1.toml")),
    ("level2", include_str!("../../kernelbench/suites/level2.toml")),
    ("level3", include_str!("../../kernelbench/suites/level3.toml")),
    ("level4", include_str!("../../kernelbench/suites/level4.toml")),
    ("kb250", include_str!("../../kernelbench/suites/kb250.toml")),
    ("dstar", include_str!("../../kernelbench/suites/dstar.toml")),
    ("sound", include_str!("../../kernelbench/suites/sound.toml")),
];

/// A selection of problems, by level and number.
#[derive(Clone, Debug)]
pub struct Suite {
    /// What it is, in a sentence.
    pub summary: String,
    /// Whether problems against which something is known are left out.
    pub sound: bool,
    levels: BTreeMap<u8, Numbers>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    summary: String,
    #[serde(default)]
    sound: bool,
    levels: BTreeMap<String, Ids>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    List(Vec<u32>),
    Text(String),
}

impl Suite {
    /// The names of the suites that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// A suite by its name, or from a file.
    ///
    /// # Errors
    ///
    /// If there is none, or the file is wrong.
    pub fn named(name: &str) -> Result<Self, Trouble> {
        if let Some((_, text)) = EMBEDDED.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        if !Path::new(name).is_file() {
            let known: Vec<_> = Self::names().collect();
            let known = known.join(", ");
            return Err(Trouble::usage(format!(
                "there is no suite {name:?}, neither built in ({known}) nor as a file"
            )));
        }
        let text = std::fs::read_to_string(name);
        Self::parse(name, &text.map_err(|e| Trouble::usage(format!("{name}: cannot read the suite: {e}")))?)
    }

    fn parse(name: &str, text: &str) -> Result<Self, Trouble> {
        let wrong = |why: String| Trouble::usage(format!("{name}: this is not a suite: {why}"));
        let Written { summary, sound, levels } = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let read = |(level, ids): (String, Ids)| {
            let level = level.parse().map_err(|_| format!("{level:?} is no level"))?;
            Ok::<_, String>((
                level,
                match ids {
                    Ids::List(ids) => ids.into_iter().collect(),
                    Ids::Text(text) => text.parse()?,
                },
            ))
        };
        let levels = levels.into_iter().map(read).collect::<Result<_, _>>().map_err(wrong)?;
        Ok(Self { summary, sound, levels })
    }

    /// Whether it holds the problem of this number in this level.
    #[must_use]
    pub fn holds(&self, level: Option<u8>, number: Option<u32>) -> bool {
        let (Some(level), Some(number)) = (level, number) else { return false };
        self.levels.get(&level).is_some_and(|numbers| numbers.holds(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(suite: &Suite) -> usize {
        (1..=4).map(|level| (1..=200).filter(|number| suite.holds(Some(level), Some(*number))).count()).sum()
    }

    #[test]
    fn the_suites_have_as_many_problems_as_their_sources_say() {
        for (name, problems) in [("kb250", 250), ("dstar", 25), ("level3", 50), ("level4", 20), ("smoke", 8)] {
            assert_eq!(count(&Suite::named(name).unwrap()), problems, "{name}");
        }
        assert!(Suite::names().all(|name| Suite::named(name).is_ok()));
    }

    #[test]
    fn what_is_no_suite_says_which_there_are() {
        assert!(Suite::named("kb251").unwrap_err().message.contains("kb250"));
    }
}
