//! Which metrics are asked for, and why these?
//!
//! A set is a file: `metrics/sets/cudaforge24.toml` comes with the program, others are made by `warpsmith metrics select`.

use crate::catalog;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap};

/// `CudaForge`'s 24 metrics, and what an architecture has in the place of those it lacks.
const CUDAFORGE24: &str = include_str!("../sets/cudaforge24.toml");
const HOPPER24: &str = include_str!("../sets/hopper24.toml");
/// The most metrics a set may have: more than any profiler has.
const MOST: usize = 10_000;

/// A set of metrics, as its file writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricSet {
    /// The set's name.
    pub name: String,
    /// Where it comes from, if it was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Its metrics, in order.
    pub metric: Vec<Metric>,
}

/// One metric of a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Its name, as Nsight Compute calls it.
    pub name: String,
    /// What it says; empty where the set does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub meaning: String,
    /// The base unit of its values where it was selected; empty for a plain number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// The number that it was chosen by, by the set's rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// What an architecture (a compute capability) has in its place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nearest: BTreeMap<String, String>,
    /// What is read in its place on an architecture where it exists and misleads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub instead: BTreeMap<String, String>,
    /// Pearson's correlation with the runtime within each task; positive where more of it takes longer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub r: BTreeMap<String, f64>,
    /// Spearman's, likewise.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rho: BTreeMap<String, f64>,
    /// The metrics that it stands for: aliases of it, or as good as that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instead_of: Vec<String>,
}

/// What a computed set was computed from, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The program and its version.
    pub program: String,
    /// The rule's name.
    pub rule: String,
    /// How many metrics were wanted.
    pub want: usize,
    /// The cut that was made, in words and numbers.
    pub cut: String,
    /// The architecture of the profiles: `sm_90`.
    pub architecture: String,
    /// The GPUs of the profiles.
    pub gpu: Vec<String>,
    /// The drivers' versions.
    pub driver: Vec<String>,
    /// The versions of Nsight Compute.
    pub ncu: Vec<String>,
    /// The thresholds and seeds in force, by the names of their flags.
    pub parameters: BTreeMap<String, f64>,
    /// How many metrics fell out, by the reason.
    pub left_out: BTreeMap<String, usize>,
    /// The metrics that are the runtime under another name, and were left out as such.
    #[serde(default)]
    pub runtime: Vec<String>,
    /// The files of profiles.
    pub data: Vec<Data>,
    /// The tasks.
    pub task: Vec<Sampled>,
}

/// A file of profiles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Its name, without its folder.
    pub file: String,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

/// A task whose kernels were profiled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampled {
    /// Its name.
    pub name: String,
    /// How many kernels.
    pub kernels: usize,
    /// How many times as long the slowest took as the fastest.
    pub spread: f64,
}

impl MetricSet {
    /// The set that comes with the program.
    ///
    /// # Panics
    ///
    /// Never: the file is part of the program, and tested.
    #[must_use]
    pub fn cudaforge24() -> Self {
        Self::parse(CUDAFORGE24).expect("the set that comes with the program is well-formed")
    }

    /// Everything that Nsight Compute reads with its own full set, more than 2,000 metrics: a set without a list.
    #[must_use]
    pub fn full() -> Self {
        Self { name: "full".to_owned(), provenance: None, metric: vec![] }
    }

    /// Whether it is [`MetricSet::full`]; a set from a file never is.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.metric.is_empty()
    }

    /// The set of this name, or of the file of this name, which `read` reads.
    ///
    /// # Errors
    ///
    /// Where there is no such file, or what it holds is no set.
    pub fn of_name_or_file(name: &str, read: impl FnOnce(&str) -> std::io::Result<String>) -> Result<Self, String> {
        if let Some(set) = Self::known(name).filter(|set| !set.is_full()) {
            return Ok(set);
        }
        let text =
            read(name).map_err(|e| format!("{name}: {e}; expected a file of a set, or cudaforge24, hopper24"))?;
        Self::parse(&text).map_err(|why| format!("{name}: {why}"))
    }

    /// The set that has this name and no file.
    #[must_use]
    pub fn known(name: &str) -> Option<Self> {
        match name {
            "cudaforge24" => Some(Self::cudaforge24()),
            "hopper24" => Self::parse(HOPPER24).ok(),
            "full" => Some(Self::full()),
            _ => None,
        }
    }

    /// Reads the text of a set's file.
    ///
    /// # Errors
    ///
    /// In words: the line and what was expected, or a name that cannot be a metric's or stands there twice.
    pub fn parse(text: &str) -> Result<Self, String> {
        let set: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        if set.metric.is_empty() || set.metric.len() > MOST {
            return Err(format!("the set has {} metrics; expected from 1 to {MOST}", set.metric.len()));
        }
        let mut seen = std::collections::BTreeSet::new();
        for metric in &set.metric {
            if let Some(name) = metric.names().find(|name| !speakable(name)) {
                return Err(format!("{name:?} is no name of a metric: letters, digits, '_', '.', ':' and '-'"));
            }
            if !seen.insert(&metric.name) {
                return Err(format!("the set has {} twice", metric.name));
            }
        }
        Ok(set)
    }

    /// It as the text of its file, the same each time.
    ///
    /// # Panics
    ///
    /// Never: all that a set holds can be written.
    #[must_use]
    pub fn text(&self) -> String {
        toml::to_string(self).expect("all that a set holds can be written")
    }
}

impl Metric {
    /// A metric of this name, and nothing else known.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// What it says: in the set's words, else in the catalogue's, else by its name.
    #[must_use]
    pub fn says(&self) -> Cow<'_, str> {
        if self.meaning.is_empty() { catalog::meaning(&self.name) } else { Cow::Borrowed(&self.meaning) }
    }

    /// Its name and those of what stands for it elsewhere.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let others = self.nearest.values().chain(self.instead.values());
        std::iter::once(self.name.as_str()).chain(others.map(String::as_str))
    }
}

/// Names are handed to a profiler, in one list with commas.
fn speakable(name: &str) -> bool {
    let known = |letter: char| letter.is_ascii_alphanumeric() || "_.:-".contains(letter);
    (1..=300).contains(&name.len()) && name.chars().all(known) && !name.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_comes_with_the_program_is_found_by_its_name() {
        for name in ["cudaforge24", "hopper24"] {
            let set = MetricSet::known(name).expect("it comes with the program");
            assert_eq!((set.name.as_str(), set.metric.len()), (name, 24));
        }
    }

    #[test]
    fn the_set_that_comes_with_the_program_has_the_24_and_survives_its_own_text() {
        let set = MetricSet::cudaforge24();
        assert_eq!(set.metric.len(), 24);
        assert_eq!(MetricSet::parse(&set.text()).unwrap(), set);
    }

    #[test]
    fn a_set_from_elsewhere_is_refused_with_the_line_or_the_name() {
        let error = |text: &str| MetricSet::parse(text).unwrap_err();
        assert!(error("name = 'x'\n[[metric]]\nname = 'a'\nneares = 3").contains("line 4"));
        assert!(error("name = 'x'\nmetric = []").contains("0 metrics"));
        assert!(error("name = 'x'\n[[metric]]\nname = 'a,b --set full'").contains("no name"));
        assert!(error("name = 'x'\n[[metric]]\nname = 'a'\n[[metric]]\nname = 'a'").contains("twice"));
    }
}
