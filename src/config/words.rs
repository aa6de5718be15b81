//! Settings that are one of a few words: read into their types, and refused with the choices where a file is read.

use super::Spec;
use agents::policy::{Decider, Guidance, Shapes};
use kernelbench::{
    Beyond, Precision, ReferenceMode, gpu,
    torch::{Headers, Mode, ProfilerKind},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A type whose values are written as words.
pub trait Word: Copy + PartialEq + 'static {
    /// Each word with its value.
    const WORDS: &'static [(&'static str, Self)];

    /// The value of a word.
    ///
    /// # Errors
    ///
    /// Which words there are.
    fn read(word: &str) -> Result<Self, String> {
        let found = Self::WORDS.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
        let names = || Self::WORDS.iter().map(|(name, _)| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| format!("expected one of {}, found {word:?}", names()))
    }

    /// Its word.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }
}

impl Word for Shapes {
    const WORDS: &'static [(&'static str, Self)] = &[("task", Self::Task), ("model", Self::Model)];
}

impl Word for Decider {
    const WORDS: &'static [(&'static str, Self)] = &[("rule", Self::Rule), ("model", Self::Model)];
}

impl Word for Guidance {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("names", Self::Names), ("guides", Self::Guides)];
}

impl Word for Headers {
    const WORDS: &'static [(&'static str, Self)] = &[("slim", Self::Slim), ("stock", Self::Stock)];
}

impl Word for ProfilerKind {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("cupti", Self::Cupti),
        ("ncu", Self::Ncu),
        ("torch", Self::Torch),
        ("static", Self::Static),
        ("none", Self::None),
    ];
}

impl Word for ReferenceMode {
    const WORDS: &'static [(&'static str, Self)] = &[("kernelbench", Self::KernelBench), ("ieee", Self::Ieee)];
}

impl Word for Beyond {
    const WORDS: &'static [(&'static str, Self)] = &[("label", Self::Label), ("failure", Self::Failure)];
}

impl Word for Precision {
    const WORDS: &'static [(&'static str, Self)] = &[("fp32", Self::Fp32), ("fp16", Self::Fp16), ("bf16", Self::Bf16)];
}

impl Word for Mode {
    const WORDS: &'static [(&'static str, Self)] = &Self::NAMED;
}

/// A word that must be there.
pub(super) mod one {
    use super::{Deserialize, Deserializer, Error, Serializer, Word};

    pub(crate) fn serialize<T: Word, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(value.word())
    }

    pub(crate) fn deserialize<'de, T: Word, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::read(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A word, or nothing.
pub(super) mod or_nothing {
    use super::{Deserialize, Deserializer, Error, Serializer, Word};

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(crate) fn serialize<T: Word, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(value.map_or("", Word::word))
    }

    pub(crate) fn deserialize<'de, T: Word, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        let word = String::deserialize(from)?;
        if word.is_empty() {
            return Ok(None);
        }
        T::read(&word).map(Some).map_err(|why| D::Error::custom(format!("{why}; empty for the default")))
    }
}

/// What a problem's reference is timed as beside eagerly: `eager`, and after commas torch.compile's modes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baselines(pub Vec<Mode>);

impl std::str::FromStr for Baselines {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let words = list.split(',').map(str::trim).filter(|word| !["", "eager"].contains(word));
        let read = |word| Mode::read(word).map_err(|why| format!("{why}; \"eager\" is always among them"));
        words.map(read).collect::<Result<_, _>>().map(Self)
    }
}

impl std::fmt::Display for Baselines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<&str> = ["eager"].into_iter().chain(self.0.iter().map(|mode| mode.word())).collect();
        f.write_str(&words.join(","))
    }
}

impl Serialize for Baselines {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Baselines {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Whether this names a device: `cpu`, `cuda` or `cuda:0`.
///
/// # Errors
///
/// What was expected.
pub fn device(name: &str) -> Result<String, String> {
    if ["", "cpu"].contains(&name) || gpu::ordinal(name).is_some() {
        return Ok(name.to_owned());
    }
    Err(format!("expected \"cpu\" or \"cuda:0\" (or another number), found {name:?}"))
}

/// Reads a device.
pub(super) fn read_device<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    device(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// The numbers of GPUs in a list; none where it is empty or says `all`.
///
/// # Errors
///
/// What was expected.
pub fn ordinals(list: &str) -> Result<Vec<u32>, String> {
    if ["", "all"].contains(&list.trim()) {
        return Ok(vec![]);
    }
    let ordinal = |word: &str| {
        let word = word.trim();
        let wrong = |_| format!("{list:?} names no GPUs: expected numbers after commas, such as 0,1");
        word.strip_prefix("cuda:").unwrap_or(word).parse().map_err(wrong)
    };
    let mut ordinals = list.split(',').map(ordinal).collect::<Result<Vec<u32>, _>>()?;
    ordinals.sort_unstable();
    ordinals.dedup();
    Ok(ordinals)
}

/// Reads a list of GPUs.
pub(super) fn read_gpus<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let list = String::deserialize(from)?;
    ordinals(&list).map_err(D::Error::custom)?;
    Ok(list)
}

/// What is expected of one that a person sets.
pub(super) const LIMIT: &str = "expected a number of 0 or more; 0 is no limit";

pub(super) fn is_limit(limit: f64) -> bool {
    limit.is_finite() && limit >= 0.0
}

/// Reads a limit from a command line.
pub(crate) fn limit(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|limit| is_limit(*limit)).ok_or_else(|| LIMIT.to_owned())
}

/// Reads what answers.
pub(super) fn read_spec<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let spec = String::deserialize(from)?;
    if !spec.is_empty() {
        spec.parse::<Spec>().map_err(D::Error::custom)?;
    }
    Ok(spec)
}
