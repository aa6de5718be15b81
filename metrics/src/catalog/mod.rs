//! What does a metric of Nsight Compute say, and which way is better?
//!
//! The metrics that matter most are written down one by one in `metrics/catalog/`; of all others the name tells what they
//! say, because NVIDIA builds names by a grammar.

mod name;

use serde::Deserialize;
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

const FILES: [&str; 11] = [
    include_str!("../../catalog/speed-of-light.toml"),
    include_str!("../../catalog/launch.toml"),
    include_str!("../../catalog/occupancy.toml"),
    include_str!("../../catalog/scheduler.toml"),
    include_str!("../../catalog/warp-state.toml"),
    include_str!("../../catalog/compute.toml"),
    include_str!("../../catalog/tensor.toml"),
    include_str!("../../catalog/memory.toml"),
    include_str!("../../catalog/shared.toml"),
    include_str!("../../catalog/async.toml"),
    include_str!("../../catalog/instructions.toml"),
];

/// Which way a metric goes when a kernel that does the same work gets faster by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// It depends on the kernel.
    #[default]
    Depends,
}

/// One metric of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, as Nsight Compute calls it, with rollup and submetric.
    pub name: String,
    /// Its unit; empty for plain counts and ratios.
    pub unit: String,
    /// What it says, in one sentence without a full stop.
    pub says: String,
    /// The section in which Nsight Compute shows it.
    pub section: String,
    /// Which way is better.
    pub better: Better,
    /// The compute capabilities on which it was seen to exist.
    pub on: Vec<String>,
    /// What stands for it, by compute capability, where it was seen not to exist.
    pub instead: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    section: String,
    metric: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    #[serde(default)]
    unit: String,
    says: String,
    #[serde(default)]
    better: Better,
    on: Vec<String>,
    #[serde(default)]
    instead: BTreeMap<String, String>,
}

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| FILES.iter().flat_map(|text| entries_of(text)).collect());

static PLACES: LazyLock<HashMap<&str, &Entry>> =
    LazyLock::new(|| ENTRIES.iter().map(|entry| (entry.name.as_str(), entry)).collect());

fn entries_of(text: &str) -> Vec<Entry> {
    let file: File = toml::from_str(text).expect("the catalogue that comes with the program is well-formed");
    let entry = |line: Line| {
        let Line { name, unit, says, better, on, instead } = line;
        Entry { name, unit, says, section: file.section.clone(), better, on, instead }
    };
    file.metric.into_iter().map(entry).collect()
}

/// All metrics of the catalogue, section by section.
#[must_use]
pub fn entries() -> &'static [Entry] {
    &ENTRIES
}

/// The metric of exactly this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    PLACES.get(name).copied()
}

/// What a metric says: the catalogue's sentence, else what its name tells.
#[must_use]
pub fn meaning(name: &str) -> Cow<'static, str> {
    find(name).map_or_else(|| Cow::Owned(name::told(name)), |entry| Cow::Borrowed(entry.says.as_str()))
}

/// What stands for a metric on a compute capability where it does not exist.
#[must_use]
pub fn instead(name: &str, capability: &str) -> Option<&'static str> {
    find(name)?.instead.get(capability).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_entry_is_there_once_and_says_something_short() {
        let mut seen = HashSet::new();
        for entry in entries() {
            assert!(seen.insert(&entry.name), "{}", entry.name);
            assert!((10..140).contains(&entry.says.len()) && !entry.says.ends_with('.'), "{entry:?}");
            assert!(entry.on.is_empty() != entry.instead.is_empty(), "{}", entry.name);
            assert!(entry.instead.values().all(|near| find(near).is_some()), "{entry:?}");
        }
        assert!((100..=250).contains(&seen.len()), "{}", seen.len());
    }

    #[test]
    fn what_is_not_in_the_catalogue_is_told_from_its_name() {
        assert!(find("lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum").is_none());
        for (name, told) in [
            (
                "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
                "L2 cache: tag stage sectors for L1 (reads) that hit; summed over all",
            ),
            (
                "sm__inst_executed_pipe_fmaheavy.max.pct_of_peak_sustained_active",
                "multiprocessors: warp instructions executed single-precision pipeline, heavy half; most of all, as a \
                 share of the peak while active",
            ),
            (
                "SM_A.TriageCompute.l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
                "L1 cache: throughput; average of one, as a share of the peak over the whole kernel; by sampling",
            ),
            ("memory_l1_wavefronts_shared", "memory l1 passes over the banks shared"),
        ] {
            assert_eq!(meaning(name), told);
        }
    }
}
