//! What is this processor, and what could one core of it do at best?

pub(crate) mod facts;
pub(crate) mod measure;

use metrics::{Arch, Fact, Machine, MachineKind};
use std::{ffi::OsString, path::Path, process::Command, time::Duration};

const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";
/// The largest working set that is measured, in bytes.
const LARGEST_SET: u64 = 256 << 20;
/// How many times as large as the one before a working set may be.
const STEP: u64 = 4;

/// This machine's processor: what Linux says of it, and what one core was measured to do.
///
/// The measurement takes a quarter of a second and a C compiler; it is kept in `scratch`, if given, and taken from
/// there the next time. Without a compiler the machine has no bandwidths and no peak.
#[must_use]
pub fn machine(scratch: Option<&Path>) -> Machine {
    let cpuinfo = facts::read("/proc/cpuinfo");
    let caches = facts::caches(Path::new(CACHES));
    let mut facts = facts::facts(&cpuinfo, &caches);
    facts.extend(compiler().map(|value| Fact { name: "compiler".into(), value }));
    let name = facts::model(&cpuinfo);
    let measured = measure::measured(&description(&name, &facts), &working_sets(&caches), scratch);
    Machine {
        kind: MachineKind::Cpu,
        name,
        arch: Arch::host(),
        facts,
        bandwidths: measured.bandwidths,
        peak_flops: measured.peak_flops,
    }
}

/// The size of the last cache before memory, in bytes, if Linux knows it.
pub(crate) fn last_level_cache() -> Option<u64> {
    facts::caches(Path::new(CACHES)).last().map(|cache| cache.bytes)
}

/// What a measurement stays good for: everything but the frequency, which wanders, and the cores, which do not matter.
fn description(name: &str, facts: &[Fact]) -> String {
    let lasting = facts.iter().filter(|fact| !["frequency", "cores"].contains(&fact.name.as_str()));
    lasting.fold(name.to_owned(), |text, fact| format!("{text}\n{}: {}", fact.name, fact.value))
}

/// A set that fits half of each cache, one that fits none, and some between these: what a machine says of its last cache
/// may be shared with others, and data of a few MiB is not moved as slowly as data that fills it.
fn working_sets(caches: &[facts::Cache]) -> Vec<u64> {
    const TYPICAL: [u64; 3] = [32 << 10, 512 << 10, 16 << 20];
    let known: Vec<u64> = caches.iter().map(|cache| cache.bytes).collect();
    let sizes = if known.is_empty() { TYPICAL.to_vec() } else { known };
    let outside = sizes.last().map_or(LARGEST_SET, |last| 4 * last);
    let wanted = sizes.iter().map(|bytes| bytes / 2).chain([outside]);
    let mut sets: Vec<u64> = vec![];
    for next in wanted.map(|bytes| bytes.clamp(8 << 10, LARGEST_SET)) {
        let between = |last: &u64| last.checked_mul(STEP).filter(|between| *between < next);
        sets.extend(sets.last().copied().into_iter().flat_map(|last| std::iter::successors(between(&last), between)));
        sets.push(next);
    }
    sets.dedup();
    sets
}

/// A compiler: what this variable of the environment names, or else the system's.
fn program(variable: &str, default: &str) -> OsString {
    std::env::var_os(variable).filter(|named| !named.is_empty()).unwrap_or_else(|| default.into())
}

/// The first line of what the C++ compiler says of itself.
fn compiler() -> Option<String> {
    let printed =
        measure::output_within(Command::new(program("CXX", "g++")).arg("--version"), Duration::from_secs(10))?;
    printed.lines().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name_facts_and_a_floor() {
        let machine = machine(None);
        assert!(!machine.name.is_empty() && machine.facts.iter().any(|fact| fact.name == "cores"), "{machine:?}");
        assert!(machine.floor_ns(1 << 20).is_some_and(|ns| ns > 100.0), "{machine:?}");
        assert!(machine.bandwidths.is_sorted_by_key(|bandwidth| bandwidth.working_set_bytes));
        assert!(machine.peak_flops.is_some_and(|flops| flops > 1e8));
    }

    #[test]
    fn without_known_caches_the_usual_sizes_are_measured() {
        let kib = [16, 64, 256, 1 << 10, 4 << 10, 8 << 10, 32 << 10, 64 << 10];
        assert_eq!(working_sets(&[]), kib.map(|kib| kib << 10));
    }
}
