//! What would a simulated processor with caches count?

use super::{MakeCommand, Run, Rungs, Subject, Target, per_call, ratio, reading, run};
use crate::machine::cpu;
use metrics::Reading;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// Runs of few and of many calls: the first call warms the simulated caches and does not count.
const CALLS: (u32, u32) = (1, 3);

/// Known from its counts: a vector loop of such instructions has more references than instructions.
const FUSED: &str = "valgrind takes a fused multiply-add with a memory operand apart and counts a reference for each of its \
                     lanes: data references are an upper bound";

/// Totals by event: `Ir`, `Dr`, `D1mr` and so on, as cachegrind's output file names them.
type Counts = BTreeMap<String, f64>;

/// The counts of one call, or why there are none. What is seen to have AVX-512 in it is not tried as it was timed.
pub(super) fn readings(
    (subject, has_avx512): (&Subject<'_>, bool),
    command: &MakeCommand<'_>,
    end: Instant,
    notes: &mut Vec<String>,
) -> Rungs {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for its output: {error}"))?;
    let both = |target| {
        let made = |calls| Counting::new(command, calls, target, folder.path());
        let (few, many) = (made(CALLS.0)?, made(CALLS.1)?);
        // Side by side: counts do not change by it.
        std::thread::scope(|scope| {
            let few = scope.spawn(|| few.counts(end));
            let many = many.counts(end)?;
            Ok::<_, String>((few.join().map_err(|_| "its run was given up".to_owned())??, many))
        })
    };
    let as_timed = if has_avx512 { Err("it has AVX-512".to_owned()) } else { both(Target::AsTimed) };
    let counted = as_timed.or_else(|why| {
        if !machine_has_avx512(subject) {
            return Err(why);
        }
        let counted = both(Target::X86V3).map_err(|also| format!("{why}; built for x86-64-v3: {also}"))?;
        notes.push("counted in a build for x86-64-v3: valgrind does not know AVX-512".to_owned());
        Ok(counted)
    });
    let (few, many) = counted?;
    notes.push("the counts are those of a simulation: no prefetcher, no out-of-order core, no time".to_owned());
    notes.push(FUSED.to_owned());
    let value = |event: &str| per_call((CALLS.0, few.get(event).copied()), (CALLS.1, many.get(event).copied()));
    Ok(told(subject, &value))
}

fn machine_has_avx512(subject: &Subject<'_>) -> bool {
    subject.machine.facts.iter().any(|fact| fact.value.contains("avx512"))
}

/// A run that is ready to begin.
struct Counting {
    command: Command,
    out: PathBuf,
}

impl Counting {
    fn new(command: &MakeCommand<'_>, calls: u32, target: Target, folder: &Path) -> Result<Self, String> {
        let out = folder.join(format!("cachegrind.out.{calls}"));
        let _ = std::fs::remove_file(&out);
        Ok(Self { command: command(&Run { wrapper: &wrapper(&out), folder, calls, target })?, out })
    }

    fn counts(self, end: Instant) -> Result<Counts, String> {
        run::to_end(self.command, end)?;
        let counts = parse(&run::read(&self.out));
        if counts.get("Ir").is_some_and(|instructions| *instructions > 0.0) {
            Ok(counts)
        } else {
            Err("it left no counts".to_owned())
        }
    }
}

fn wrapper(out: &Path) -> Vec<OsString> {
    let mut out_file = OsString::from("--cachegrind-out-file=");
    out_file.push(out);
    let fixed = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--branch-sim=yes", "--vgdb=no", "-q"];
    let mut wrapper: Vec<OsString> = fixed.map(OsString::from).to_vec();
    wrapper.push(out_file);
    // What valgrind finds out by itself is wrong on some virtual machines; it wants a power of two.
    wrapper.extend(cpu::last_level_cache().map(|bytes| format!("--LL={},16,64", bytes.next_power_of_two()).into()));
    wrapper
}

/// Reads the `events:` and the `summary:` line.
fn parse(text: &str) -> Counts {
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default();
    let totals = line("summary:").split_whitespace().map_while(|total| total.parse().ok());
    line("events:").split_whitespace().map(str::to_owned).zip(totals).collect()
}

fn told(subject: &Subject<'_>, value: &dyn Fn(&str) -> Option<f64>) -> Vec<Reading> {
    let sum = |one: &str, other: &str| value(one).zip(value(other)).map(|(one, other)| one + other);
    let (instructions, data) = (value("Ir"), sum("Dr", "Dw"));
    let (d1_misses, ll_misses) = (sum("D1mr", "D1mw"), sum("DLmr", "DLmw"));
    let (branches, mispredicted) = (sum("Bc", "Bi"), sum("Bcm", "Bim"));
    let (elements, bytes) = (Some(subject.elements as f64), Some(subject.bytes as f64));
    vec![
        reading("instructions", instructions, "", "executed, a call (Ir)"),
        reading(
            "instructions per element",
            ratio(instructions, elements),
            "",
            "of the outputs; below 1 only with vectors",
        ),
        reading("instructions per byte", ratio(instructions, bytes), "", "of the least traffic"),
        reading("data references", data, "", "loads and stores, a call (Dr + Dw)"),
        reading("data references per element", ratio(data, elements), "", "of the outputs"),
        reading(
            "bytes per data reference",
            ratio(bytes, data),
            "B",
            "16 and more is full vectors; less need not be scalar",
        ),
        reading("L1 data misses", d1_misses, "", "a call (D1mr + D1mw)"),
        reading("L1 data miss rate", ratio(d1_misses, data), "", "of the data references"),
        reading("last-level data misses", ll_misses, "", "went to memory, a call (DLmr + DLmw)"),
        reading("branches", branches, "", "a call (Bc + Bi)"),
        reading("branch miss rate", ratio(mispredicted, branches), "", "of the branches"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_by_the_names_of_their_events() {
        let counts =
            parse("desc: D1 cache: 32768 B\nevents: Ir Dr Dw\nfn=main\n3 1 2 3\nsummary: 178461 37573 18747\n");
        assert_eq!((counts["Ir"], counts["Dw"]), (178_461.0, 18747.0));
        assert!(parse("").is_empty() && parse("events: Ir Dr\nsummary: x 1\n").is_empty());
    }
}
