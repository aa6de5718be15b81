//! What holds a kernel back, by rule, and by which numbers?
//!
//! Beside the raw numbers, not in their place. The rules are tried in this order and the first that holds is told. That 60 %
//! of a peak is near enough to be bound by it, and that less on both sides means latency, is the rule of Nsight Compute's
//! section GPU Speed Of Light Throughput (Profiling Guide); the other limits are ours.

mod rule;

use crate::{Kernel, Profile, Reading};
use serde::Serialize;
use std::fmt;

/// What a kernel's time depends on first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Moving bytes: device memory, L2 or L1 is near its peak.
    Memory,
    /// Computing or issuing: a pipeline is near its peak.
    Compute,
    /// Waiting: neither is, and there are warps enough.
    Latency,
    /// Too few warps in flight to hide the waiting.
    Occupancy,
    /// Being started: it is too small or too short to fill the GPU.
    Launch,
}

/// What a rule says of one kernel, or of a whole call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The kernel; `None` for the whole call.
    pub kernel: Option<String>,
    /// What bounds it; `None` where that cannot be said.
    pub bound: Option<Bound>,
    /// The rule that fired, or what would have to be known to say more.
    pub rule: String,
    /// The readings that it fired on.
    pub numbers: Vec<Reading>,
}

impl Bound {
    /// Its name: `memory-bound`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory-bound",
            Self::Compute => "compute-bound",
            Self::Latency => "latency-bound",
            Self::Occupancy => "occupancy-bound",
            Self::Launch => "launch-bound",
        }
    }
}

/// Of each kernel of a profile what holds it back; of the whole call where there are no kernels.
#[must_use]
pub fn facts(profile: &Profile) -> Vec<Bottleneck> {
    if profile.kernels.is_empty() {
        return vec![fact(None, &profile.readings)];
    }
    let of_kernel = |kernel: &Kernel| fact(Some(kernel.name.clone()), &kernel.readings);
    let mut facts: Vec<Bottleneck> = profile.kernels.iter().map(of_kernel).collect();
    if facts.iter().all(|fact| fact.bound.is_none()) {
        let call = fact(None, &profile.readings);
        facts.extend(Some(call).filter(|fact| fact.bound.is_some()));
    }
    facts
}

/// The same as lines for a reader; none where no rule fired and there were no hardware counters to fire on.
#[must_use]
pub fn lines(profile: &Profile) -> Vec<String> {
    let worth =
        |found: &Bottleneck| found.bound.is_some() || (profile.rung.has_counters_of_gpu() && found.kernel.is_some());
    let line = |found: Bottleneck| match &found.kernel {
        Some(kernel) => format!("bottleneck of {kernel} by rule: {found}"),
        None => format!("bottleneck by rule: {found}"),
    };
    facts(profile).into_iter().filter(worth).map(line).collect()
}

/// What a kernel's readings, or a call's, say.
fn fact(kernel: Option<String>, readings: &[Reading]) -> Bottleneck {
    match rule::first(&rule::Known::of(readings)) {
        Ok((bound, rule, numbers)) => Bottleneck { kernel, bound: Some(bound), rule, numbers },
        Err(rule) => Bottleneck { kernel, bound: None, rule, numbers: vec![] },
    }
}

impl fmt::Display for Bottleneck {
    /// One line: `memory-bound: device memory at 60 % of its peak or more (dram__throughput... = 71.2 %)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.bound.map_or("cannot be said", Bound::name);
        write!(f, "{name}: {}", self.rule)?;
        let number = |reading: &Reading| {
            let value = (reading.value.unwrap_or(f64::NAN) * 100.0).round() / 100.0;
            format!("{} = {value} {}", reading.name, reading.unit).trim_end().to_owned()
        };
        let numbers: Vec<String> = self.numbers.iter().map(number).collect();
        if numbers.is_empty() { Ok(()) } else { write!(f, " ({})", numbers.join(", ")) }
    }
}

#[cfg(test)]
mod tests;
