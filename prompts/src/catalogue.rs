//! The catalogue of transformations: those that come with the program, and a user's own beside or in place of them.

use crate::transformation::{Transformation, TransformationError};
use std::collections::BTreeMap;

/// The transformations that come with the program, by the names of their files, in the order of lists.
const EMBEDDED: [(&str, &str); 23] = [
    ("refactor.toml", include_str!("../transformations/refactor.toml")),
    ("tb-tiling.toml", include_str!("../transformations/tb-tiling.toml")),
    ("warp-tiling.toml", include_str!("../transformations/warp-tiling.toml")),
    ("thread-tiling.toml", include_str!("../transformations/thread-tiling.toml")),
    ("tensor-core.toml", include_str!("../transformations/tensor-core.toml")),
    ("split-k.toml", include_str!("../transformations/split-k.toml")),
    ("transpose.toml", include_str!("../transformations/transpose.toml")),
    ("offset.toml", include_str!("../transformations/offset.toml")),
    ("pipelining.toml", include_str!("../transformations/pipelining.toml")),
    ("thread-cache.toml", include_str!("../transformations/thread-cache.toml")),
    ("thread-chunk.toml", include_str!("../transformations/thread-chunk.toml")),
    ("register-staging.toml", include_str!("../transformations/register-staging.toml")),
    ("block-swizzle.toml", include_str!("../transformations/block-swizzle.toml")),
    ("tensor-tiling.toml", include_str!("../transformations/tensor-tiling.toml")),
    ("tensor-core-hip.toml", include_str!("../transformations/tensor-core-hip.toml")),
    ("unroll.toml", include_str!("../transformations/unroll.toml")),
    ("warp-layout.toml", include_str!("../transformations/warp-layout.toml")),
    ("bf16-parts.toml", include_str!("../transformations/bf16-parts.toml")),
    ("warpgroup-mma.toml", include_str!("../transformations/warpgroup-mma.toml")),
    ("bulk-copy.toml", include_str!("../transformations/bulk-copy.toml")),
    ("warp-specialization.toml", include_str!("../transformations/warp-specialization.toml")),
    ("persistent-blocks.toml", include_str!("../transformations/persistent-blocks.toml")),
    ("bulk-store.toml", include_str!("../transformations/bulk-store.toml")),
];

/// The hand-written texts that transformations import, by the names of their files.
const SNIPPETS: [(&str, &str); 13] = [
    ("barrier.cu", include_str!("../transformations/snippets/barrier.cu")),
    ("bf16-parts.cu", include_str!("../transformations/snippets/bf16-parts.cu")),
    ("bulk-copy.cu", include_str!("../transformations/snippets/bulk-copy.cu")),
    ("bulk-store.cu", include_str!("../transformations/snippets/bulk-store.cu")),
    ("copy-async.cu", include_str!("../transformations/snippets/copy-async.cu")),
    ("copy-tile.cpp", include_str!("../transformations/snippets/copy-tile.cpp")),
    ("copy-tile.cu", include_str!("../transformations/snippets/copy-tile.cu")),
    ("copy-tile.hip", include_str!("../transformations/snippets/copy-tile.hip")),
    ("copy-tile.hlsl", include_str!("../transformations/snippets/copy-tile.hlsl")),
    ("mfma.hip", include_str!("../transformations/snippets/mfma.hip")),
    ("tensor-core.cu", include_str!("../transformations/snippets/tensor-core.cu")),
    ("warp-roles.cu", include_str!("../transformations/snippets/warp-roles.cu")),
    ("warpgroup-mma.cu", include_str!("../transformations/snippets/warpgroup-mma.cu")),
];

/// What each backend calls the same thing.
const WORDS: &str = include_str!("../transformations/words.toml");

/// The ending of a backend's snippets.
const ENDINGS: [(&str, &str); 4] = [("cuda", "cu"), ("hip", "hip"), ("hlsl", "hlsl"), ("cpu", "cpp")];

/// A transformation with the text that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// What it says.
    pub transformation: Transformation,
    /// Its file's text, which records keep.
    pub text: String,
}

/// The transformations there are.
#[derive(Clone, Debug)]
pub struct Catalogue {
    listed: Vec<Listed>,
    snippets: BTreeMap<String, String>,
}

impl Catalogue {
    /// Those that come with the program.
    ///
    /// # Panics
    /// Never: a test reads them all.
    #[must_use]
    pub fn embedded() -> Self {
        let none = Self { listed: vec![], snippets: BTreeMap::new() };
        let files = EMBEDDED.iter().chain(&SNIPPETS).map(|(file, text)| ((*file).to_owned(), (*text).to_owned()));
        none.with(files).expect("the embedded transformations are tested")
    }

    /// The same with these files: `.toml` is a transformation, in the place of one of its name where there is one; anything
    /// else is a snippet, such as `copy-tile.cu`.
    ///
    /// # Errors
    /// The first file that is no transformation, or that imports what is not there.
    pub fn with(mut self, files: impl IntoIterator<Item = (String, String)>) -> Result<Self, TransformationError> {
        let mut read = vec![];
        for (file, text) in files {
            if file.rsplit_once('.').is_some_and(|(_, ending)| ending == "toml") {
                let transformation = Transformation::parse(&file, &text)?;
                read.push((file, Listed { transformation, text }));
            } else {
                self.snippets.insert(file, text);
            }
        }
        for (file, listed) in read {
            self.check_imports(&listed.transformation).map_err(|why| TransformationError { file, why })?;
            let same = |known: &&mut Listed| known.transformation.name == listed.transformation.name;
            match self.listed.iter_mut().find(same) {
                Some(known) => *known = listed,
                None => self.listed.push(listed),
            }
        }
        Ok(self)
    }

    /// The same with a transformation as it was when it was applied: its text, and the texts that it imported for a backend, in
    /// order. Some that had none then are told from the others by having none now.
    ///
    /// # Errors
    /// Why it is none, or that it imports what is not there.
    pub fn as_applied(
        mut self,
        name: &str,
        text: String,
        imported: Vec<String>,
        backend: &str,
    ) -> Result<Self, TransformationError> {
        let file = format!("{name}.toml");
        let transformation = Transformation::parse(&file, &text)?;
        let mut names: Vec<String> = transformation.imports.iter().map(|import| snippet(import, backend)).collect();
        if names.len() != imported.len() {
            names.retain(|name| self.snippets.contains_key(name));
        }
        if names.len() == imported.len() {
            self.snippets.extend(names.into_iter().zip(imported));
        }
        self.with([(file, text)])
    }

    /// All, in the order of lists.
    #[must_use]
    pub fn all(&self) -> &[Listed] {
        &self.listed
    }

    /// The one of this name.
    ///
    /// # Errors
    /// In words, with the nearest names, where there is none.
    pub fn named(&self, name: &str) -> Result<&Listed, String> {
        let same = |listed: &&Listed| listed.transformation.name.eq_ignore_ascii_case(name);
        self.listed.iter().find(same).ok_or_else(|| {
            let names = nearest(name, self.listed.iter().map(|listed| listed.transformation.name.as_str()), 3);
            format!(
                "there is no transformation {name:?}; the nearest are {} (transform --list has all)",
                names.join(", ")
            )
        })
    }

    /// The texts that a transformation imports for a backend, in order; none where a snippet has no text for it.
    #[must_use]
    pub fn imported(&self, transformation: &Transformation, backend: &str) -> Vec<&str> {
        let text = |import: &String| self.snippets.get(&snippet(import, backend)).map(String::as_str);
        transformation.imports.iter().filter_map(text).collect()
    }

    fn check_imports(&self, transformation: &Transformation) -> Result<(), String> {
        let mut known: Vec<&str> = self.snippets.keys().filter_map(|file| Some(file.rsplit_once('.')?.0)).collect();
        known.dedup();
        match transformation.imports.iter().find(|name| !known.contains(&name.as_str())) {
            Some(name) => {
                Err(format!("it imports {name:?}, and there is no such snippet; there are {}", known.join(", ")))
            }
            None => Ok(()),
        }
    }
}

/// What a backend calls the things that transformations speak of: pairs of the thing and its name there.
///
/// # Panics
/// Never: a test reads the table.
#[must_use]
pub(crate) fn words(backend: &str) -> Vec<(String, String)> {
    let tables: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(WORDS).expect("the table is tested");
    tables.get(backend).map(|table| table.clone().into_iter().collect()).unwrap_or_default()
}

/// The names that are nearest to one that there is none of, the nearest first.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>, count: usize) -> Vec<&'a str> {
    let mut names: Vec<&str> = known.collect();
    names.sort_by_key(|known| distance(&known.to_lowercase(), &name.to_lowercase()));
    names.truncate(count);
    names
}

/// How many characters must be changed, added or taken away to make one word of another (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, c) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], at + 1);
        for (to, d) in other.iter().enumerate() {
            let changed = before + usize::from(c != *d);
            before = row[to + 1];
            row[to + 1] = changed.min(before + 1).min(row[to] + 1);
        }
    }
    row[other.len()]
}

/// The file of what is imported by this name for a backend.
fn snippet(import: &str, backend: &str) -> String {
    let ending = ENDINGS.iter().find(|(name, _)| *name == backend).map_or("", |(_, ending)| ending);
    format!("{import}.{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transformation::Origin;

    /// PEAK's Table 2: name, passes, calls, tuning parameters.
    const TABLE_2: [(&str, usize, usize, &[&str]); 9] = [
        ("Refactor", 2, 3, &[]),
        ("TB-Tiling", 6, 9, &["TILE_K_SIZE"]),
        ("Warp-Tiling", 1, 1, &["WARP_X_DIM"]),
        ("Thread-Tiling", 3, 3, &["TRD_X_DIM", "TRD_Y_DIM"]),
        ("Tensor-Core", 1, 1, &[]),
        ("Split-K", 1, 3, &["K_SPLITS"]),
        ("Transpose", 1, 1, &[]),
        ("Offset", 1, 2, &["OFFSET_AMOUNT"]),
        ("Pipelining", 1, 2, &["NUM_STAGES"]),
    ];

    #[test]
    fn there_are_sixteen_with_thirty_seven_calls_and_nine_are_those_of_table_2() {
        let catalogue = Catalogue::embedded();
        let counts = |ours: bool| {
            let of = catalogue.all().iter().map(|listed| &listed.transformation);
            of.filter(|t| (t.origin == Origin::Ours) == ours)
                .fold((0, 0), |(all, calls), t| (all + 1, calls + t.calls()))
        };
        assert_eq!((counts(false), counts(true)), ((16, 37), (7, 22)));
        for (name, passes, calls, parameters) in TABLE_2 {
            let found = &catalogue.named(name).unwrap().transformation;
            assert_eq!((found.passes.len(), found.calls(), found.origin), (passes, calls, Origin::Table2), "{name}");
            assert!(found.parameters.grid.keys().eq(parameters), "{name}: {:?}", found.parameters);
        }
        let others = catalogue
            .all()
            .iter()
            .map(|listed| &listed.transformation)
            .filter(|t| ![Origin::Table2, Origin::Ours].contains(&t.origin));
        let named: Vec<(&str, usize)> = others.map(|other| (other.name.as_str(), other.calls())).collect();
        let two =
            ["Thread-Cache", "Thread-Chunk", "Register-Staging", "Block-Swizzle", "Tensor-Tiling"].map(|n| (n, 2));
        assert_eq!(named, [&two[..], &[("Tensor-Core-HIP", 1), ("Unroll", 1)]].concat());
    }

    #[test]
    fn a_prompt_has_its_own_backends_words_and_no_others() {
        let said = |backend: &str| format!("{:?}", words(backend));
        let own = [("cuda", "`threadIdx.x`"), ("hip", "hipThreadIdx_x"), ("hlsl", "SV_DispatchThreadID")];
        for (backend, _) in own {
            for (other, word) in own {
                assert_eq!(said(backend).contains(word), backend == other, "{backend}: {word}");
            }
        }
        assert_eq!(words("cpu").len(), words("cuda").len());
    }

    #[test]
    fn a_users_file_is_listed_replaces_one_of_its_name_and_may_import_his_own_snippet() {
        let own = |name: &str, import: &str| {
            let text = format!(
                "name = {name:?}\nsummary = \"s\"\nbackends = [\"cpu\"]\nimports = [{import:?}]\n[[pass]]\naim = \"a\"\n\
                 [[pass.call]]\nregion = \"host\"\ntext = \"t\"\n"
            );
            ("mine.toml".to_owned(), text)
        };
        let snippet = ("fast.cpp".to_owned(), "int fast();\n".to_owned());
        let with = Catalogue::embedded().with([own("Mine", "fast"), snippet]).unwrap();
        assert_eq!(with.all().len(), 24);
        let mine = &with.named("mine").unwrap().transformation;
        let then = || vec!["int as_it_was_then();\n".to_owned()];
        for catalogue in [Catalogue::embedded(), with.clone()] {
            let applied = catalogue.as_applied("Mine", own("Mine", "fast").1, then(), "cpu").unwrap();
            assert_eq!(applied.imported(mine, "cpu"), then());
        }
        assert_eq!((with.imported(mine, "cpu"), with.imported(mine, "cuda").len()), (vec!["int fast();\n"], 0));
        assert_eq!(Catalogue::embedded().with([own("Unroll", "copy-tile")]).unwrap().all().len(), 23);
        let why = Catalogue::embedded().with([own("Mine", "copy-tyle")]).unwrap_err().to_string();
        let expected = "mine.toml: it imports \"copy-tyle\", and there is no such snippet; there are barrier, bf16-parts, bulk-copy, \
                        bulk-store, copy-async, copy-tile,";
        assert!(why.starts_with(expected), "{why}");
    }

    #[test]
    fn an_unknown_name_is_told_with_the_nearest() {
        let why = Catalogue::embedded().named("Pipeling").unwrap_err();
        assert!(why.contains("no transformation \"Pipeling\"; the nearest are Pipelining"), "{why}");
        assert_eq!((distance("tiling", "tilting"), distance("", "abc"), distance("abc", "abc")), (1, 3, 0));
    }
}
