//! What do the processor's own counters say?

use super::{MakeCommand, Run, Rungs, Subject, Target, per_call, ratio, reading, run};
use metrics::Reading;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

const EVENTS: [&str; 7] =
    ["cycles", "instructions", "L1-dcache-loads", "L1-dcache-load-misses", "cache-misses", "branches", "branch-misses"];
/// Where perf writes, in its folder.
const OUT: &str = "perf.csv";
/// How long the counted calls should take together.
const WORTH_COUNTING_NS: f64 = 200e6;

/// Counts by event; `None` where the machine did not count.
type Counts = BTreeMap<String, Option<f64>>;

/// The counters of one call, or why there are none.
pub(super) fn readings(subject: &Subject<'_>, command: &MakeCommand<'_>, end: Instant) -> Rungs {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for its output: {error}"))?;
    probe(folder.path(), end)?;
    let typical = subject.median_ns.unwrap_or(1e6).max(100.0);
    let many = (WORTH_COUNTING_NS / typical).clamp(20.0, 20_000.0) as u32;
    let few = many / 10;
    let counts = |calls| count(command, calls, folder.path(), end);
    let (few, many) = ((few, counts(few)?), (many, counts(many)?));
    let value = |event: &str| per_call((few.0, find(&few.1, event)), (many.0, find(&many.1, event)));
    Ok(told(subject, &value))
}

/// As [`probe`], in a folder of its own.
pub(super) fn counters(end: Instant) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for its output: {error}"))?;
    probe(folder.path(), end)
}

/// Whether `perf` is there and its counters count: many virtual machines and containers have none.
fn probe(folder: &Path, end: Instant) -> Result<(), String> {
    let out = folder.join(OUT);
    let wrapper = wrapper(&out);
    let mut command = Command::new("perf");
    command.args(&wrapper[1..]).arg("true");
    run::to_end(command, end.min(Instant::now() + Duration::from_secs(10)))
        .map_err(|why| format!("perf stat does not work here ({why})"))?;
    match find(&parse(&run::read(&out)), "instructions") {
        Some(instructions) if instructions > 0.0 => Ok(()),
        _ => Err("perf stat finds no hardware counters on this machine".to_owned()),
    }
}

fn count(command: &MakeCommand<'_>, calls: u32, folder: &Path, end: Instant) -> Result<Counts, String> {
    let out = folder.join(OUT);
    let _ = std::fs::remove_file(&out);
    let run = Run { wrapper: &wrapper(&out), folder, calls, target: Target::AsTimed };
    run::to_end(command(&run)?, end)?;
    Ok(parse(&run::read(&out)))
}

fn wrapper(out: &Path) -> Vec<OsString> {
    let events = EVENTS.map(|event| format!("{event}:u")).join(",");
    let fixed = ["perf", "stat", "-x", ",", "-e", &events, "-o"].map(OsString::from);
    fixed.into_iter().chain([out.into(), "--".into()]).collect()
}

/// Reads lines of `value,unit,event,…`; `<not supported>` and the like are no values.
fn parse(csv: &str) -> Counts {
    let lines = csv.lines().filter(|line| !line.starts_with('#'));
    let fields = lines.map(|line| line.split(',').collect::<Vec<_>>()).filter(|fields| fields.len() > 2);
    fields.map(|fields| (fields[2].trim_end_matches(":u").to_owned(), fields[0].parse().ok())).collect()
}

fn find(counts: &Counts, event: &str) -> Option<f64> {
    counts.get(event).copied().flatten()
}

fn told(subject: &Subject<'_>, value: &dyn Fn(&str) -> Option<f64>) -> Vec<Reading> {
    let (cycles, instructions) = (value("cycles"), value("instructions"));
    let (loads, branches) = (value("L1-dcache-loads"), value("branches"));
    let (elements, bytes) = (Some(subject.elements as f64), Some(subject.bytes as f64));
    vec![
        reading("cycles", cycles, "", "of the core, a call"),
        reading("instructions", instructions, "", "retired, a call"),
        reading("instructions per cycle", ratio(instructions, cycles), "", "4 and more keeps a core busy"),
        reading(
            "instructions per element",
            ratio(instructions, elements),
            "",
            "of the outputs; below 1 only with vectors",
        ),
        reading("bytes per cycle", ratio(bytes, cycles), "B", "least traffic over cycles"),
        reading("L1 loads", loads, "", "from the first-level data cache, a call"),
        reading("L1 load miss rate", ratio(value("L1-dcache-load-misses"), loads), "", "of its loads"),
        reading("last-level misses", value("cache-misses"), "", "went to memory, a call"),
        reading("branch miss rate", ratio(value("branch-misses"), branches), "", "of its branches"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_counted_is_no_zero() {
        let csv = "# started on Fri\n\n1200,,cycles:u,100,100.00,,\n<not supported>,,instructions:u,0,100.00,,\n<not counted>,,branches:u,0,0.00,,\n";
        let counts = parse(csv);
        assert_eq!(find(&counts, "cycles"), Some(1200.0));
        assert_eq!((find(&counts, "instructions"), find(&counts, "branches")), (None, None));
        assert_eq!(parse("nonsense\n1,2\n").len(), 0);
    }

    #[test]
    fn starting_up_does_not_count() {
        assert_eq!(per_call((10, Some(1500.0)), (110, Some(6500.0))), Some(50.0));
        assert_eq!(per_call((10, Some(1500.0)), (110, None)), None);
        assert_eq!(per_call((10, Some(1500.0)), (110, Some(1400.0))), None);
    }
}
