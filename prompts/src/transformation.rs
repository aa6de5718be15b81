//! Transformations: written specifications of one small change to a kernel context, as data (PEAK §3.2).
//!
//! A transformation is a list of passes; a pass is at most three calls of a model, each of which rewrites one region. It may
//! add tuning parameters and import hand-written text.

use kernelbench::{Candidate, Space, load, region};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The most calls that a pass may make: one a region (PEAK §4.1).
const MOST_CALLS: usize = 3;
/// The backends that transformations may be for, by their names in files.
pub const BACKENDS: [&str; 4] = ["cuda", "hip", "hlsl", "cpu"];

/// A transformation.
#[derive(Clone, Debug, PartialEq)]
pub struct Transformation {
    /// Its name, such as `TB-Tiling`.
    pub name: String,
    /// What it does, in a sentence or two: the model reads it.
    pub summary: String,
    /// The backends that it is for.
    pub backends: Vec<String>,
    /// The architectures that it is for; any where there is none.
    pub arch: Vec<String>,
    /// The kernels that it is for; any where there is none.
    pub kernels: Vec<String>,
    /// Where its name and its counts come from.
    pub origin: Origin,
    /// The tuning parameters that it adds.
    pub parameters: Space,
    /// The tuning parameters that the context must have.
    pub needs: Vec<String>,
    /// The tuning parameters that the context has no longer afterwards.
    pub retires: Vec<String>,
    /// The hand-written texts that it brings along, by name.
    pub imports: Vec<String>,
    /// How often it is tried before the context stays what it was.
    pub tries: u32,
    /// In order.
    pub passes: Vec<Pass>,
}

/// Where a transformation's name and its counts of passes and calls come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// PEAK's Table 2.
    #[serde(rename = "table-2")]
    Table2,
    /// Named in PEAK's Table 4 or §4.2; passes and calls are this project's split of the twelve that are left.
    #[serde(rename = "table-4")]
    Table4,
    /// One that PEAK counts among its sixteen and names nowhere (§1.1): its name and calls are this project's.
    Unnamed,
    /// This project's own, or a user's.
    Ours,
}

impl Origin {
    /// As lists say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Table2 => "Table 2",
            Self::Table4 => "Table 4, our split",
            Self::Unnamed => "unnamed, our split",
            Self::Ours => "ours",
        }
    }
}

/// A pass: its result may be incomplete or wrong, but for the last one's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pass {
    /// What it is for, in a sentence.
    pub aim: String,
    /// Its calls, in order.
    #[serde(default, rename = "call")]
    pub calls: Vec<RegionCall>,
}

/// One call of a model: the region that it rewrites, and how.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionCall {
    /// Which region.
    pub region: String,
    /// What is to be done there.
    pub text: String,
}

/// A transformation as it stands in its file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    summary: String,
    backends: Vec<String>,
    #[serde(default)]
    arch: Vec<String>,
    #[serde(default)]
    kernels: Vec<String>,
    #[serde(default = "ours")]
    origin: Origin,
    #[serde(default)]
    parameter: toml::Table,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    retires: Vec<String>,
    #[serde(default)]
    imports: Vec<String>,
    #[serde(default = "three")]
    tries: u32,
    #[serde(default)]
    pass: Vec<Pass>,
}

fn ours() -> Origin {
    Origin::Ours
}

fn three() -> u32 {
    3
}

/// Why a file is no transformation: which file, and what is wrong, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {why}")]
pub struct TransformationError {
    /// The file.
    pub file: String,
    /// What is wrong.
    pub why: String,
}

impl Transformation {
    /// Reads one; `file` is for the error.
    ///
    /// # Errors
    /// Where it is not TOML of this form, has a pass without a call or with more than three, a region twice in a pass, an
    /// unknown region, backend or placeholder, or parameters without values.
    pub fn parse(file: &str, text: &str) -> Result<Self, TransformationError> {
        let wrong = |why: String| TransformationError { file: file.to_owned(), why };
        let written: Written = toml::from_str(text).map_err(|e| wrong(e.to_string().trim_end().to_owned()))?;
        let parameters = load::parameters(&written.parameter).map_err(&wrong)?;
        let Written { name, summary, backends, arch, kernels, origin, needs, retires, imports, tries, pass, .. } =
            written;
        let passes = pass;
        let whole =
            Self { name, summary, backends, arch, kernels, origin, parameters, needs, retires, imports, tries, passes };
        whole.check().map(|()| whole).map_err(wrong)
    }

    /// How many calls it makes in all.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.passes.iter().map(|pass| pass.calls.len()).sum()
    }

    /// Its calls in order, each with the number of its pass, from 1.
    pub fn each_call(&self) -> impl Iterator<Item = (usize, &Pass, &RegionCall)> {
        let passes = self.passes.iter().enumerate();
        passes.flat_map(|(at, pass)| pass.calls.iter().map(move |call| (at + 1, pass, call)))
    }

    /// Whether it may be applied to a context of this backend with this space; in words why not.
    ///
    /// # Errors
    /// That it is for other backends, or which parameter is missing.
    pub fn fits(&self, backend: &str, tuning: &Space) -> Result<(), String> {
        let name = &self.name;
        if !self.backends.iter().any(|known| known == backend) {
            return Err(format!("{name} is for {}; this context is for {backend}", self.backends.join(", ")));
        }
        if let Some(missing) = self.needs.iter().chain(&self.retires).find(|name| !tuning.grid.contains_key(*name)) {
            let known: Vec<&str> = tuning.grid.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(format!(
                "{name} builds on the tuning parameter {missing}, which the context does not have (it has {known}): \
                 apply the transformation that adds it first"
            ));
        }
        self.space(tuning).map(drop).map_err(|why| format!("{name}: {why}"))
    }

    /// The space of a context after it: with the parameters that it adds, without those that it retires.
    ///
    /// # Errors
    /// In words: a parameter that is there already, or a constraint that names one that is not.
    pub fn space(&self, tuning: &Space) -> Result<Space, String> {
        tuning.without(&self.retires).widened(&self.parameters)
    }

    fn check(&self) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(plain) {
            return Err(format!(
                "{:?} cannot be its name: expected up to 64 letters, digits, `_`, `-` and `.`",
                self.name
            ));
        }
        if let Some(other) = self.backends.iter().find(|name| !BACKENDS.contains(&name.as_str())) {
            return Err(format!("there is no backend {other:?}; there are {}", BACKENDS.join(", ")));
        }
        if self.passes.is_empty() || self.tries == 0 {
            return Err(
                "it has no pass, or no try: expected a [[pass]] with a [[pass.call]], and tries of 1 or more".into()
            );
        }
        for (at, pass) in self.passes.iter().enumerate() {
            self.check_pass(pass).map_err(|why| format!("pass {} {why}", at + 1))?;
        }
        Ok(())
    }

    fn check_pass(&self, pass: &Pass) -> Result<(), String> {
        let calls = pass.calls.len();
        if calls == 0 || calls > MOST_CALLS {
            return Err(format!("has {calls} calls; a pass has one to three, one a region"));
        }
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for RegionCall { region, text } in &pass.calls {
            if !region::REGIONS.contains(&region.as_str()) {
                return Err(format!("rewrites {region:?}; the regions are macros, device and host"));
            }
            if !seen.insert(region) {
                return Err(format!("rewrites the region {region} twice; a pass has one call a region"));
            }
            let known = |name: &String| self.parameters.grid.contains_key(name) || self.needs.contains(name);
            if let Some(name) = Candidate::new(text.as_str()).placeholders().iter().find(|name| !known(name)) {
                return Err(format!(
                    "({region}) names {{{{{name}}}}}, which is neither a parameter that it adds nor one that it needs"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "Unroll"
summary = "Unrolls a loop."
backends = ["cpu"]
needs = ["TILE"]
[parameter.TIMES]
values = [1, 2]
[[pass]]
aim = "Unroll."
[[pass.call]]
region = "device"
text = "Unroll it {{TIMES}} times, {{TILE}} at most."
"#;

    fn wrong(old: &str, new: &str) -> String {
        assert!(GOOD.contains(old), "{old}");
        Transformation::parse("mine.toml", &GOOD.replacen(old, new, 1)).unwrap_err().to_string()
    }

    fn space(name: &str) -> Space {
        load::parameters(&format!("{name} = [1, 2]").parse().unwrap()).unwrap()
    }

    #[test]
    fn a_file_becomes_passes_of_calls_with_their_parameters() {
        let unroll = Transformation::parse("mine.toml", GOOD).unwrap();
        assert_eq!((unroll.calls(), unroll.tries, unroll.origin), (1, 3, Origin::Ours));
        assert_eq!(unroll.parameters.points(), 2);
        assert_eq!(unroll.each_call().map(|(pass, _, call)| (pass, call.region.as_str())).next(), Some((1, "device")));
    }

    #[test]
    fn what_is_no_transformation_is_told_in_a_sentence() {
        let call = "[[pass.call]]\nregion = \"device\"\n";
        let four = |region: &str| format!("[[pass.call]]\nregion = \"{region}\"\ntext = \"x\"\n");
        let three = format!("{}{}{}{call}", four("macros"), four("host"), four("device"));
        for (old, new, why) in [
            (call, three.as_str(), "mine.toml: pass 1 has 4 calls; a pass has one to three, one a region"),
            (call, &format!("{}{call}", four("device")), "pass 1 rewrites the region device twice"),
            ("\"device\"", "\"kernel\"", "pass 1 rewrites \"kernel\"; the regions are macros, device and host"),
            ("{{TIMES}}", "{{TIME}}", "pass 1 (device) names {{TIME}}, which is neither a parameter that it adds nor"),
            ("[1, 2]", "[]", "`TIMES` has no values to choose from: expected values = "),
            ("[\"cpu\"]", "[\"gpu\"]", "there is no backend \"gpu\"; there are cuda, hip, hlsl, cpu"),
            ("summary", "sumary", "unknown field `sumary`"),
            ("Unroll\"", "a b\"", "\"a b\" cannot be its name"),
        ] {
            let said = wrong(old, new);
            assert!(said.starts_with("mine.toml: ") && said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_transformation_is_refused_where_its_backend_or_a_parameter_is_missing() {
        let unroll = Transformation::parse("mine.toml", GOOD).unwrap();
        assert_eq!(unroll.fits("cpu", &space("TILE")), Ok(()));
        assert_eq!(unroll.fits("cuda", &space("TILE")).unwrap_err(), "Unroll is for cpu; this context is for cuda");
        let missing = unroll.fits("cpu", &space("BLOCK")).unwrap_err();
        assert!(
            missing.contains("builds on the tuning parameter TILE") && missing.contains("it has BLOCK"),
            "{missing}"
        );
        let retiring = Transformation { retires: vec!["BLOCK".to_owned()], ..unroll.clone() };
        assert!(retiring.fits("cpu", &space("TILE")).unwrap_err().contains("builds on the tuning parameter BLOCK"));
        let after = retiring.space(&space("TILE").widened(&space("BLOCK")).unwrap()).unwrap();
        assert_eq!(after.grid.keys().collect::<Vec<_>>(), ["TILE", "TIMES"]);
        let twice = unroll.fits("cpu", &space("TILE").widened(&space("TIMES")).unwrap()).unwrap_err();
        assert_eq!(twice, "Unroll: the context has the tuning parameter `TIMES` already");
    }
}
