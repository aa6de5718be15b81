//! Whether a feature of the hardware ran: what its counters read before and after (Hawkeye, §2.4).
//!
//! A kernel that got faster need not have got faster by what was asked for. Only counters prove that; an instruction that
//! stands in the code may never be reached.

use crate::{Profile, unit};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Which way a counter goes when the feature runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Up.
    Higher,
    /// Down.
    Lower,
}

/// What stands for a call that launches several kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// The sum over its launches.
    Sum,
    /// The largest reading.
    Largest,
}

/// One sign that a feature ran.
#[derive(Clone, Debug, PartialEq)]
pub enum Sign {
    /// A counter that moves.
    Counter(Counter),
    /// How an instruction begins in the machine code. Alone it proves nothing.
    Instruction(String),
    /// The most kernels that a call launches.
    Launches(u64),
}

/// A counter that moves when the feature runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// The metric, as its profiler calls it.
    pub name: String,
    /// Which way it moves.
    pub direction: Direction,
    /// What of several launches counts.
    pub over: Over,
    /// A reading up to here counts as nothing.
    pub floor: f64,
    /// The least gain, as a ratio of at least 1.
    pub least_gain: f64,
    /// Whether it is the one that the feature is told by.
    pub target: bool,
}

/// By how much a counter moved the right way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gain {
    /// So many times; below 1 where it moved the wrong way.
    Ratio(f64),
    /// From nothing, or to nothing where less is better.
    FromZero,
}

impl Gain {
    /// From one reading to another: `None` where there was nothing before and is nothing now.
    #[must_use]
    pub fn of(direction: Direction, floor: f64, before: f64, after: f64) -> Option<Self> {
        let (less, more) = match direction {
            Direction::Higher => (before, after),
            Direction::Lower => (after, before),
        };
        match (less <= floor, more <= floor) {
            (true, true) => None,
            (true, false) => Some(Self::FromZero),
            (false, true) => Some(Self::Ratio(0.0)),
            (false, false) => Some(Self::Ratio(more / less)),
        }
    }

    /// Whether it is this ratio or more.
    #[must_use]
    pub fn reaches(self, least: f64) -> bool {
        match self {
            Self::Ratio(ratio) => ratio >= least,
            Self::FromZero => true,
        }
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ratio(ratio) => write!(f, "{ratio:.2}x"),
            Self::FromZero => f.write_str("from zero"),
        }
    }
}

/// What was read of one call of a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Kernels that it launches.
    launches: Option<u64>,
    /// Each counter's readings, in base units: how many launches read so much each.
    read: BTreeMap<String, Vec<(u64, f64)>>,
    /// The instructions of its machine code; `None` where nobody looked.
    code: Option<String>,
}

impl Counters {
    /// The counters of a profile; none where no hardware counters were read.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        if !profile.rung.has_counters_of_gpu() {
            return Self::default();
        }
        let mut counters = Self::default();
        for kernel in &profile.kernels {
            let launches = kernel.launches.unwrap_or(1);
            let mut seen = BTreeSet::new();
            for reading in &kernel.readings {
                // What stands for another metric is there twice where it is asked for itself, too.
                let Some(value) = reading.value.filter(|_| seen.insert(&reading.name)) else { continue };
                let value = value * unit::base(&reading.unit).0;
                counters.read.entry(reading.name.clone()).or_default().push((launches, value));
            }
        }
        let said = profile.readings.iter().find(|reading| reading.name == "launches").and_then(|reading| reading.value);
        counters.launches = said.map(|count| count as u64);
        counters
    }

    /// Those of one launch.
    pub fn of_launch<'a>(read: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        let read = read.into_iter().map(|(name, value)| (name.to_owned(), vec![(1, value)])).collect();
        Self { launches: Some(1), read, code: None }
    }

    /// The same of so many launches.
    #[must_use]
    pub fn launched(self, launches: u64) -> Self {
        Self { launches: Some(launches), ..self }
    }

    /// The same with the machine code as a disassembler prints it.
    #[must_use]
    pub fn with_code(self, code: String) -> Self {
        Self { code: Some(code), ..self }
    }

    /// What a counter read over the call; `None` where nothing was read.
    #[must_use]
    pub fn value(&self, name: &str, over: Over) -> Option<f64> {
        let read = self.read.get(name)?.iter();
        match over {
            Over::Sum => Some(read.map(|(launches, value)| *launches as f64 * value).sum()),
            Over::Largest => read.map(|(_, value)| *value).reduce(f64::max),
        }
    }

    fn has(&self, instruction: &str) -> Option<bool> {
        let begins = |word: &str| word.starts_with(instruction);
        Some(self.code.as_ref()?.split_whitespace().any(begins))
    }
}

/// How a sign stands after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stand {
    /// It came with the change.
    Gained,
    /// It was there before and still is.
    Kept,
    /// It is not there.
    Missing,
    /// It could not be read.
    Unread,
}

/// What was found of one sign.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The counter, the instruction, or `launches`.
    pub sign: String,
    /// What it read before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<f64>,
    /// What it reads now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<f64>,
    /// By how much it moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<Gain>,
    /// What that comes to.
    pub stand: Stand,
    /// Whether the feature is told by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub target: bool,
}

/// Whether a feature ran because of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fired {
    /// Its target counter gained what it must, and no other sign is missing.
    Yes,
    /// A sign is missing.
    No,
    /// A counter could not be read.
    Unknown,
}

impl Fired {
    /// In a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "fired",
            Self::No => "not fired",
            Self::Unknown => "counters unknown",
        }
    }
}

/// Whether a feature ran, by what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// Whether it did.
    pub fired: Fired,
    /// Each sign, in the order of its file.
    pub found: Vec<Found>,
}

impl Proof {
    /// What was found of the counter that the feature is told by.
    #[must_use]
    pub fn target(&self) -> Option<&Found> {
        self.found.iter().find(|found| found.target)
    }

    /// Whether every sign came with the change: what a cell's two kernels must show.
    #[must_use]
    pub fn whole(&self) -> bool {
        self.fired == Fired::Yes && self.found.iter().all(|found| found.stand == Stand::Gained)
    }
}

/// Whether a feature with these signs ran because of the change that lies between two calls.
///
/// The target must gain; a sign beside it may have been there before, because features are stacked.
#[must_use]
pub fn prove(signs: &[Sign], before: &Counters, after: &Counters) -> Proof {
    let found: Vec<Found> = signs.iter().map(|sign| find(sign, before, after)).collect();
    let proves = |sign: &Sign| !matches!(sign, Sign::Instruction(_));
    let proving: Vec<&Found> =
        signs.iter().zip(&found).filter(|(sign, _)| proves(sign)).map(|(_, found)| found).collect();
    let fired = if found.iter().any(|found| found.stand == Stand::Missing) {
        Fired::No
    } else if proving.is_empty() || proving.iter().any(|found| found.stand == Stand::Unread) {
        Fired::Unknown
    } else if proving.iter().any(|found| found.target && found.stand == Stand::Gained) {
        Fired::Yes
    } else {
        Fired::No
    };
    Proof { fired, found }
}

fn find(sign: &Sign, before: &Counters, after: &Counters) -> Found {
    match sign {
        Sign::Counter(counter) => counted(counter, before, after),
        Sign::Launches(most) => launched(*most, before.launches, after.launches),
        Sign::Instruction(name) => coded(name, before.has(name), after.has(name)),
    }
}

fn counted(counter: &Counter, before: &Counters, after: &Counters) -> Found {
    let Counter { name, direction, over, floor, least_gain, target } = counter;
    let values = (before.value(name, *over), after.value(name, *over));
    let there = |value: f64| match direction {
        Direction::Higher => value > *floor,
        Direction::Lower => value <= *floor,
    };
    let (stand, gain) = match values {
        (Some(before), Some(after)) => {
            let gain = Gain::of(*direction, *floor, before, after);
            let stand = match gain {
                Some(gain) if gain.reaches(*least_gain) => Stand::Gained,
                _ if there(before) && there(after) => Stand::Kept,
                _ => Stand::Missing,
            };
            (stand, gain)
        }
        _ => (Stand::Unread, None),
    };
    Found { sign: name.clone(), before: values.0, after: values.1, gain, stand, target: *target }
}

fn launched(most: u64, before: Option<u64>, after: Option<u64>) -> Found {
    let stand = match (before, after) {
        (Some(before), Some(after)) if after <= most && before > most => Stand::Gained,
        (Some(_), Some(after)) if after <= most => Stand::Kept,
        (Some(_), Some(_)) => Stand::Missing,
        _ => Stand::Unread,
    };
    let [before, after] = [before, after].map(|count| count.map(|count| count as f64));
    let gain = before.zip(after).and_then(|(before, after)| Gain::of(Direction::Lower, 0.0, before, after));
    Found { sign: "launches".to_owned(), before, after, gain, stand, target: false }
}

fn coded(name: &str, before: Option<bool>, after: Option<bool>) -> Found {
    let stand = match (before, after) {
        (Some(false), Some(true)) => Stand::Gained,
        (Some(true), Some(true)) => Stand::Kept,
        (Some(_), Some(false)) => Stand::Missing,
        _ => Stand::Unread,
    };
    Found { sign: name.to_owned(), before: None, after: None, gain: None, stand, target: false }
}

#[cfg(test)]
mod tests;
