//! Which variants are compared, over which tasks, and in what do they differ?

use crate::exit::Trouble;
use agents::llm::Role;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

/// The ablations that come with the program.
const EMBEDDED: [(&str, &str); 16] = [
    ("cudaforge-table1", include_str!("../../agents/ablations/cudaforge-table1.toml")),
    ("cudaforge-table3", include_str!("../../agents/ablations/cudaforge-table3.toml")),
    ("cudaforge-table5", include_str!("../../agents/ablations/cudaforge-table5.toml")),
    ("cudaforge-figure3", include_str!("../../agents/ablations/cudaforge-figure3.toml")),
    ("qimeng-table2", include_str!("../../agents/ablations/qimeng-table2.toml")),
    ("qimeng-figure4a", include_str!("../../agents/ablations/qimeng-figure4a.toml")),
    ("qimeng-figure5", include_str!("../../agents/ablations/qimeng-figure5.toml")),
    ("qimeng-figure4b", include_str!("../../agents/ablations/qimeng-figure4b.toml")),
    ("hawkeye-context", include_str!("../../agents/ablations/hawkeye-context.toml")),
    ("hawkeye-modules", include_str!("../../agents/ablations/hawkeye-modules.toml")),
    ("hawkeye-features", include_str!("../../agents/ablations/hawkeye-features.toml")),
    ("hawkeye-accept", include_str!("../../agents/ablations/hawkeye-accept.toml")),
    ("hawkeye-models", include_str!("../../agents/ablations/hawkeye-models.toml")),
    ("hawkeye-agents", include_str!("../../agents/ablations/hawkeye-agents.toml")),
    ("astra-table3", include_str!("../../agents/ablations/astra-table3.toml")),
    ("roles", include_str!("../../agents/ablations/roles.toml")),
];
/// Settings that a file of variants may not hold: which key goes to which address, which programs are started and which hosts
/// work is said where the program is started.
const NOT_HERE: [&str; 6] = ["api_key", "api_key_file", "base_url", "validators", "python", "hosts"];
/// The most runs that one file asks for.
const MOST: usize = 1000;

/// What is compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Its name: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// What it is, in a sentence, with its source.
    pub summary: String,
    /// The tasks: a folder or a suite, as `warpsmith batch` takes it.
    pub tasks: String,
    /// Whether all variants get the first variant's first candidates.
    #[serde(default)]
    pub share_seed_candidate: bool,
    /// Settings of all variants, as in `warpsmith.toml`.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub settings: toml::Table,
    /// The variants; the others are compared with the first.
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
    /// What a paper has of them, to stand beside what is measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paper: Vec<Paper>,
}

/// A line of a paper's table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The variant that it is of, or what else the paper compares with.
    pub variant: String,
    /// On which tasks and which machine.
    pub of: String,
    /// The share of tasks with a correct candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correct: Option<f64>,
    /// The median speedup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// What a quarter of the tasks exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_quartile: Option<f64>,
    /// The mean speedup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perf: Option<f64>,
    /// The share of tasks that are faster than the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_1: Option<f64>,
}

/// One variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// The policy's name or file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// How many candidates are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// The model of each role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<Role, String>,
    /// How many runs of it are made, each with replies of its own.
    #[serde(default = "once")]
    pub repeats: u32,
    /// Further settings, as in `warpsmith.toml`.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub settings: toml::Table,
}

fn once() -> u32 {
    1
}

/// A run that is to be made.
#[derive(Clone, Debug)]
pub struct Planned<'a> {
    /// Its name, which its folder has too: the variant's, with a number from the second repeat on.
    pub name: String,
    /// The variant.
    pub variant: &'a Variant,
}

impl Spec {
    /// The names of the ablations that come with the program, each with its summary.
    pub fn embedded() -> impl Iterator<Item = (&'static str, String)> {
        EMBEDDED
            .iter()
            .map(|(name, text)| (*name, Self::parse(name, text).map(|spec| spec.summary).unwrap_or_default()))
    }

    /// The text of an ablation that comes with the program, to start one's own from.
    #[must_use]
    pub fn text(name: &str) -> Option<&'static str> {
        EMBEDDED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// An ablation by its name, or from a file.
    ///
    /// # Errors
    ///
    /// If there is none, or it is wrong: where, and what was expected.
    pub fn named(name: &str) -> Result<Self, Trouble> {
        if let Some(text) = Self::text(name) {
            return Self::parse(name, text);
        }
        let known: Vec<&str> = EMBEDDED.iter().map(|(name, _)| *name).collect();
        if !Path::new(name).is_file() {
            let known = known.join(", ");
            return Err(Trouble::usage(format!(
                "there is no ablation {name:?}, neither built in ({known}) nor as a file"
            )));
        }
        let text = std::fs::read_to_string(name)
            .map_err(|e| Trouble::usage(format!("{name}: cannot read the ablation: {e}")))?;
        Self::parse(name, &text)
    }

    /// Reads one; `from` is for the error.
    ///
    /// # Errors
    ///
    /// Where it is wrong, and what was expected.
    pub fn parse(from: &str, text: &str) -> Result<Self, Trouble> {
        let wrong = |why: String| Trouble::usage(format!("{from}: this is not an ablation: {why}"));
        let spec: Self = toml::from_str(text).map_err(|e| wrong(format!("\n{e}")))?;
        spec.check().map_err(wrong)?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), String> {
        plain(&self.name)?;
        let mut names: Vec<&str> = self.variants.iter().map(|variant| variant.name.as_str()).collect();
        names.iter().try_for_each(|name| plain(name))?;
        names.sort_unstable();
        if let Some(twice) = names.chunk_by(|a, b| a == b).find(|same| same.len() > 1) {
            return Err(format!("two variants are called {:?}", twice.first().unwrap_or(&"")));
        }
        let runs: usize = self.variants.iter().map(|variant| variant.repeats as usize).sum();
        if runs == 0 || runs > MOST || self.variants.iter().any(|variant| variant.repeats == 0) {
            return Err(format!("it asks for {runs} runs, expected at least one of each variant and at most {MOST}"));
        }
        for settings in self.variants.iter().map(|variant| &variant.settings).chain([&self.settings]) {
            if let Some(key) = NOT_HERE.iter().find(|key| holds(settings, key)) {
                return Err(format!(
                    "it sets {key}: keys, addresses and programs belong into warpsmith.toml or the environment"
                ));
            }
        }
        Ok(())
    }

    /// The runs to be made, in order.
    pub fn runs(&self) -> impl Iterator<Item = Planned<'_>> {
        let name = |variant: &Variant, repeat: u32| match repeat {
            1 => variant.name.clone(),
            more => format!("{}.{more}", variant.name),
        };
        self.variants.iter().flat_map(move |variant| {
            (1..=variant.repeats).map(move |repeat| Planned { name: name(variant, repeat), variant })
        })
    }

    /// What a variant sets: what all have, then its own.
    #[must_use]
    pub fn settings_of(&self, variant: &Variant) -> toml::Table {
        let mut settings = toml::Table::new();
        // All methods run on the same shapes (CudaForge §3.2).
        merge(&mut settings, &table(&["run", "shapes"], "task".into()));
        merge(&mut settings, &self.settings);
        if let Some(policy) = &variant.policy {
            merge(&mut settings, &table(&["run", "policy"], policy.as_str().into()));
        }
        if let Some(rounds) = variant.rounds {
            merge(&mut settings, &table(&["run", "rounds"], i64::from(rounds).into()));
        }
        for (role, model) in &variant.models {
            merge(&mut settings, &table(&["model", "roles", role.name(), "model"], model.as_str().into()));
        }
        merge(&mut settings, &variant.settings);
        settings
    }
}

/// Lets the values of one table win over another's, key by key.
pub(crate) fn merge(under: &mut toml::Table, over: &toml::Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(toml::Value::Table(under)), toml::Value::Table(over)) => merge(under, over),
            _ => drop(under.insert(key.clone(), value.clone())),
        }
    }
}

fn table(keys: &[&str], value: toml::Value) -> toml::Table {
    let (first, rest) = keys.split_first().expect("a setting has a name");
    let value = if rest.is_empty() { value } else { toml::Value::Table(table(rest, value)) };
    [((*first).to_owned(), value)].into_iter().collect()
}

fn holds(settings: &toml::Table, key: &str) -> bool {
    settings.iter().any(|(name, value)| name == key || value.as_table().is_some_and(|table| holds(table, key)))
}

fn plain(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if (1..=60).contains(&name.len()) && !name.starts_with('.') && name.chars().all(plain) {
        return Ok(());
    }
    Err(format!("{name:?} cannot be a name: letters, digits, '.', '_' and '-', not more than 60"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::policy::{Policy, Shapes};

    #[test]
    fn every_ablation_that_comes_along_can_be_read_and_names_policies_that_exist() {
        for (name, text) in EMBEDDED {
            let spec = Spec::parse(name, text).unwrap();
            assert_eq!(spec.name, name);
            for variant in &spec.variants {
                let settings = spec.settings_of(variant);
                let policy = settings["run"].get("policy").and_then(|policy| policy.as_str()).unwrap();
                assert!(Policy::embedded(policy).is_some(), "{name}: {policy}");
                let mut layers = crate::config::Layers::of(crate::config::Config::default());
                layers.overlay(name, &settings).unwrap();
                assert_eq!(layers.config.run.shapes, Some(Shapes::Task));
            }
        }
    }

    #[test]
    fn what_is_said_last_wins_and_what_a_variant_leaves_open_is_common() {
        let text = "name = 'a'\nsummary = ''\ntasks = 't'\n[settings.run]\nrounds = 3\npolicy = 'astra'\n\
                    [[variant]]\nname = 'one'\n[[variant]]\nname = 'two'\nrounds = 5\nmodels = { judge = 'm' }\nrepeats = 2\n";
        let spec = Spec::parse("a", text).unwrap();
        let runs: Vec<String> = spec.runs().map(|run| run.name).collect();
        assert_eq!(runs, ["one", "two", "two.2"]);
        let rounds = |at: usize| spec.settings_of(&spec.variants[at])["run"]["rounds"].as_integer().unwrap();
        assert_eq!((rounds(0), rounds(1)), (3, 5));
        assert_eq!(spec.settings_of(&spec.variants[1])["model"]["roles"]["judge"]["model"].as_str(), Some("m"));
    }

    #[test]
    fn a_file_from_elsewhere_leads_no_key_anywhere_and_no_folder_out() {
        let spec = |variant: &str| Spec::parse("a", &format!("name = 'a'\nsummary = ''\ntasks = 't'\n{variant}"));
        for (variant, word) in [
            ("[[variant]]\nname = '../x'\n", "cannot be a name"),
            ("[[variant]]\nname = 'x'\nsettings.model.base_url = 'http://elsewhere'\n", "sets base_url"),
            ("[[variant]]\nname = 'x'\n[[variant]]\nname = 'x'\n", "two variants"),
            ("[[variant]]\nname = 'x'\nrepeats = 0\n", "0 runs"),
            ("[[variant]]\nname = 'x'\nroundz = 3\n", "unknown field"),
        ] {
            let error = spec(variant).unwrap_err().to_string();
            assert!(error.contains(word), "{variant}: {error}");
        }
    }
}
