//! Hints: what is known in general of making tensor operators fast, in words, with the target's factors (QiMeng-TensorOp §3.1).
//!
//! A hint is a file: lines `technique:`, `part:` (sketch or primitives) and `factors:`, an empty line, and a text in which
//! the factors' values stand by name. Those of a user's folder are beside the embedded ones, or in their place.

use metrics::{
    Machine, MachineKind,
    factors::{Factors, Group, NAMES},
};
use minijinja::{Environment, Value, syntax::SyntaxConfig};
use std::collections::BTreeMap;

/// The hints that come with the program.
const EMBEDDED: [(&str, &str); 5] = [
    ("tiling.md", include_str!("../hints/tiling.md")),
    ("reordering.md", include_str!("../hints/reordering.md")),
    ("vectorization.md", include_str!("../hints/vectorization.md")),
    ("layout.md", include_str!("../hints/layout.md")),
    ("pipeline.md", include_str!("../hints/pipeline.md")),
];

/// Which of the two calls a hint is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// The sketch.
    Sketch,
    /// The primitives.
    Primitives,
}

/// One hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The technique's name.
    pub technique: String,
    /// Which call it is for.
    pub part: For,
    /// The kinds of factors that it rests on.
    pub factors: Vec<Group>,
    text: String,
}

/// The hints there are, by the names of their files.
#[derive(Clone, Debug)]
pub struct Hints(BTreeMap<String, Hint>);

/// A file that is no hint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {why}")]
pub struct HintError {
    /// The file.
    pub file: String,
    /// What is wrong.
    pub why: String,
}

impl Hints {
    /// Those that come with the program.
    ///
    /// # Panics
    /// Never: a test reads them all.
    #[must_use]
    pub fn embedded() -> Self {
        let files = EMBEDDED.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned()));
        Self(BTreeMap::new()).with(files).expect("the embedded hints are tested")
    }

    /// The same with these files beside them, or in the place of those of their names.
    ///
    /// # Errors
    /// The first file that is no hint.
    pub fn with(mut self, files: impl IntoIterator<Item = (String, String)>) -> Result<Self, HintError> {
        for (file, text) in files {
            let hint = Hint::parse(&text).map_err(|why| HintError { file: file.clone(), why })?;
            self.0.insert(file, hint);
        }
        Ok(self)
    }

    /// All, each technique of the paper in its order, then others.
    pub fn all(&self) -> impl Iterator<Item = &Hint> {
        let usual = EMBEDDED.iter().filter_map(|(file, _)| self.0.get(*file));
        usual
            .chain(self.0.iter().filter(|(file, _)| !EMBEDDED.iter().any(|(own, _)| own == file)).map(|(_, hint)| hint))
    }

    /// The hints for a call on a machine: pairs of the technique and the text with the machine's values.
    #[must_use]
    pub fn rendered(&self, part: For, machine: &Machine, factors: &Factors) -> Vec<(String, String)> {
        let values = values(machine, factors);
        let hints = self.all().filter(|hint| hint.part == part);
        hints.map(|hint| (hint.technique.clone(), hint.text(&values).unwrap_or_else(|_| hint.text.clone()))).collect()
    }
}

fn values(machine: &Machine, factors: &Factors) -> Value {
    let known = NAMES.iter().filter_map(|(_, name, _)| Some(((*name).to_owned(), Value::from(factors.value(name)?))));
    let gpu = ("gpu".to_owned(), Value::from(machine.kind == MachineKind::Gpu));
    known.chain([gpu]).collect::<BTreeMap<String, Value>>().into()
}

impl Hint {
    fn parse(file: &str) -> Result<Self, String> {
        let expected = "expected lines `technique: NAME`, `part: sketch` or `part: primitives`, and `factors: ..`, an empty line, and the text";
        let (head, text) = file.split_once("\n\n").ok_or(expected)?;
        let field = |name: &str| {
            head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim).ok_or(expected)
        };
        let part = match field("part")? {
            "sketch" => For::Sketch,
            "primitives" => For::Primitives,
            other => return Err(format!("`part: {other}`: {expected}")),
        };
        let group = |name: &str| Group::ALL.into_iter().find(|group| group.name() == name.trim());
        let named: Option<Vec<Group>> = field("factors")?.split(',').map(group).collect();
        let known = Group::ALL.map(Group::name).join(", ");
        let factors = named.ok_or_else(|| format!("its factors are not all among {known}"))?;
        let hint = Self { technique: field("technique")?.to_owned(), part, factors, text: text.trim().to_owned() };
        hint.text(&Value::from(())).map_err(|why| why.to_string())?;
        Ok(hint)
    }

    fn text(&self, values: &Value) -> Result<String, minijinja::Error> {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
        environment.set_syntax(syntax);
        Ok(environment.render_str(&self.text, values)?.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn there_are_the_five_techniques_and_each_names_its_factors() {
        let hints = Hints::embedded();
        let named: Vec<(&str, For, usize)> =
            hints.all().map(|hint| (hint.technique.as_str(), hint.part, hint.factors.len())).collect();
        let (sketch, primitives) = (For::Sketch, For::Primitives);
        let expected = [
            ("Tiling", sketch, 2),
            ("Reordering", sketch, 1),
            ("Vectorization", primitives, 2),
            ("Layout", sketch, 2),
            ("Pipeline", primitives, 3),
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn a_hint_has_the_targets_values_and_a_users_file_is_beside_them_or_in_ones_place() {
        let machine = Machine {
            facts: vec![metrics::Fact { name: "L1 data cache".into(), value: "48 KiB, lines of 64 bytes".into() }],
            ..example::machine()
        };
        let own = "technique: Huge pages\npart: sketch\nfactors: memory\n\nPages of {{ l1d }} would be small.\n";
        let mine =
            [("pages.md".to_owned(), own.to_owned()), ("layout.md".to_owned(), own.replace("Huge pages", "Own"))];
        let hints = Hints::embedded().with(mine).unwrap();
        let rendered = hints.rendered(For::Sketch, &machine, &Factors::of(&machine));
        let names: Vec<&str> = rendered.iter().map(|(technique, _)| technique.as_str()).collect();
        assert_eq!(names, ["Tiling", "Reordering", "Own", "Huge pages"]);
        assert!(rendered[0].1.contains("half of the first-level cache (48 KiB)"), "{}", rendered[0].1);
        assert_eq!(rendered[3].1, "Pages of 48 KiB would be small.");
    }

    #[test]
    fn what_is_no_hint_is_told_with_its_file() {
        let told = |text: &str| Hints::embedded().with([("a.md".to_owned(), text.to_owned())]).unwrap_err().to_string();
        for (text, why) in [
            ("", "a.md: expected lines `technique: NAME`"),
            ("technique: T\npart: both\nfactors: memory\n\nx", "`part: both`"),
            ("technique: T\npart: sketch\nfactors: luck\n\nx", "memory, instructions, registers, multiprocessors"),
            ("technique: T\npart: sketch\nfactors: memory\n\n{% if %}", "syntax error"),
        ] {
            assert!(told(text).contains(why), "{}", told(text));
        }
    }
}
