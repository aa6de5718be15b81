//! Where did the time go?

use serde::{Deserialize, Serialize};

/// How deep a profile looks: the highest rung of the ladder that this machine allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Hardware counters of an NVIDIA GPU, by Nsight Compute.
    Ncu,
    /// Hardware counters of the CPU, by `perf stat`.
    Perf,
    /// Instruction and cache counts of a simulated CPU, by `valgrind --tool=cachegrind`.
    Cachegrind,
    /// No profiler: only the timing and the roofline.
    TimingOnly,
}

impl Rung {
    /// What this rung is, in words for a reader of the profile.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Ncu => "hardware counters of the GPU (Nsight Compute)",
            Self::Perf => "hardware counters (perf stat)",
            Self::Cachegrind => "simulated instruction and cache counts (valgrind cachegrind)",
            Self::TimingOnly => "no profiler: timing and roofline only",
        }
    }
}

/// One metric and what it read. A value that could not be read is `None`, never 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The metric's name, as its profiler calls it.
    pub name: String,
    /// What it read.
    pub value: Option<f64>,
    /// The value's unit; empty for a plain count or ratio.
    pub unit: String,
    /// What the metric says, in a few words.
    pub meaning: String,
}

/// What a profiler saw of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// How deep it looks.
    pub rung: Rung,
    /// Which case was run.
    pub case: String,
    /// The readings, in a stable order.
    pub readings: Vec<Reading>,
    /// What a reader has to know: why a higher rung was out of reach, what could not be read.
    pub notes: Vec<String>,
}
