//! Where did the time go?

use serde::{Deserialize, Serialize};

/// How deep a profile looks: the highest rung of the ladder that this machine allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Hardware counters of an NVIDIA GPU, by Nsight Compute.
    Ncu,
    /// The same, read by the process itself through CUPTI's range profiler.
    Cupti,
    /// Durations of kernels, or of operators on the CPU, and what they were launched with, by torch's profiler (CUPTI).
    TorchProfiler,
    /// What the compiler made of it: registers, shared memory, spills, instructions. Nothing is run.
    CompiledCode,
    /// Hardware counters of the CPU, by `perf stat`.
    Perf,
    /// Instruction and cache counts of a simulated CPU, by `valgrind --tool=cachegrind`.
    Cachegrind,
    /// No profiler: only the timing and the roofline.
    TimingOnly,
}

impl Rung {
    /// Whether hardware counters of a GPU were read.
    #[must_use]
    pub fn has_counters_of_gpu(self) -> bool {
        matches!(self, Self::Ncu | Self::Cupti)
    }

    /// What this rung is, in words for a reader of the profile.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Ncu => "hardware counters of the GPU (Nsight Compute)",
            Self::Cupti => "hardware counters of the GPU (CUPTI)",
            Self::TorchProfiler => "durations and launch facts (torch.profiler)",
            Self::CompiledCode => "the compiled code alone: resources and instructions (cuobjdump)",
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
    /// The metric that was asked for and that this machine does not have, where this one is the nearest to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_for: Option<String>,
}

impl Reading {
    /// A reading of the metric that was asked for. A value that is no finite number is none.
    #[must_use]
    pub fn new(name: &str, value: Option<f64>, unit: &str, meaning: &str) -> Self {
        let value = value.filter(|value| value.is_finite());
        Self { name: name.to_owned(), value, unit: unit.to_owned(), meaning: meaning.to_owned(), stands_for: None }
    }
}

/// What a profiler saw of one kernel among those that a call launches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// The kernel's name, as its profiler writes it.
    pub name: String,
    /// How often one call launches it; `None` where nobody counted.
    pub launches: Option<u64>,
    /// Its share of the time of all kernels of the call, from 0 to 1; `None` where it was not timed.
    pub share: Option<f64>,
    /// The readings of one launch, in a stable order.
    pub readings: Vec<Reading>,
}

/// What a profiler saw of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// How deep it looks.
    pub rung: Rung,
    /// Which case was run.
    pub case: String,
    /// The readings of the whole call, in a stable order.
    pub readings: Vec<Reading>,
    /// The kernels that most of the time goes to, the first the longest; empty where the call is not divided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<Kernel>,
    /// What a reader has to know: why a higher rung was out of reach, what could not be read.
    pub notes: Vec<String>,
}

impl Profile {
    /// How many readings there are, of the call and of all its kernels.
    #[must_use]
    pub fn count(&self) -> usize {
        self.readings.len() + self.kernels.iter().map(|kernel| kernel.readings.len()).sum::<usize>()
    }
}
