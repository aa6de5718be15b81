//! How fast does one core move bytes and multiply, as measured?
//!
//! A small C program is compiled by the system's compiler for this very machine: how this crate itself was built
//! does not change what it finds.

use crate::{build::compiler, hash::Hash};
use metrics::Bandwidth;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

const PROBE: &str = include_str!("probe.c");
/// Without the last, ISO C has a product and a sum rounded each, which takes two instructions.
const HOW: [&str; 3] = ["-std=c11", "-O3", "-ffp-contract=fast"];
const TO_COMPILE: Duration = Duration::from_secs(30);
const TO_RUN: Duration = Duration::from_secs(10);
/// Tried in this order: the first that the compiler takes. `-mcpu` is how older compilers for ARM say it.
const FOR_THIS_MACHINE: [&str; 3] = ["-march=native", "-mcpu=native", "-O3"];

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Measurement {
    pub(super) bandwidths: Vec<Bandwidth>,
    pub(super) peak_flops: Option<f64>,
}

/// Measures, or takes what was measured before on a machine with this description; empty where nothing can be measured.
pub(super) fn measured(description: &str, working_sets: &[u64], scratch: Option<&Path>) -> Measurement {
    let key = Hash::of(format!("{description}\n{working_sets:?}\n{PROBE}").as_bytes());
    let kept = scratch.map(|folder| folder.join(format!("cpu-{}.json", key.short())));
    if let Some(measurement) = kept.as_deref().and_then(recall) {
        return measurement;
    }
    let measurement =
        tempfile::tempdir().ok().and_then(|folder| measure(folder.path(), working_sets)).unwrap_or_default();
    if let Some(path) = kept.filter(|_| measurement != Measurement::default()) {
        keep(&path, &measurement);
    }
    measurement
}

fn recall(path: &Path) -> Option<Measurement> {
    let measurement: Measurement = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    measurement.is_plausible().then_some(measurement)
}

/// Written beside and moved into place, so that no reader finds half of it. That it could not be kept costs only time.
fn keep(path: &Path, measurement: &Measurement) {
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&file, measurement)?;
        file.persist(path)?;
        Ok(())
    };
    if let Err(error) = write() {
        tracing::debug!(path = %path.display(), %error, "the machine's measurement could not be kept");
    }
}

fn measure(folder: &Path, working_sets: &[u64]) -> Option<Measurement> {
    let program = compile(folder)?;
    let mut command = Command::new(program);
    command.args(working_sets.iter().map(u64::to_string));
    let measurement = Measurement::read(&output_within(&mut command, TO_RUN)?);
    measurement.is_plausible().then_some(measurement)
}

fn compile(folder: &Path) -> Option<PathBuf> {
    let (source, program) = (folder.join("probe.c"), folder.join("probe"));
    fs::write(&source, PROBE).ok()?;
    let compiles = |target: &&str| {
        let mut command = Command::new(crate::machine::cpu::program("CC", "gcc"));
        command.args(HOW).args([target, "-o"]).arg(&program).arg(&source);
        command.current_dir(folder).env("TMPDIR", folder);
        output_within(&mut command, TO_COMPILE).is_some()
    };
    FOR_THIS_MACHINE.iter().any(compiles).then_some(program)
}

/// The standard output of a program that ends well and in time, and prints little.
pub(super) fn output_within(command: &mut Command, limit: Duration) -> Option<String> {
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C");
    compiler::answer_within(command, limit).ok()
}

impl Measurement {
    /// Reads what the program prints.
    fn read(printed: &str) -> Self {
        let mut measurement = Self::default();
        for line in printed.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["fma", rate] => measurement.peak_flops = rate.parse().ok(),
                ["move", bytes, rate] => {
                    let bandwidth = bytes.parse().ok().zip(rate.parse().ok());
                    measurement.bandwidths.extend(bandwidth.map(|(working_set_bytes, bytes_per_second)| Bandwidth {
                        working_set_bytes,
                        bytes_per_second,
                    }));
                }
                _ => {}
            }
        }
        measurement.bandwidths.sort_by_key(|bandwidth| bandwidth.working_set_bytes);
        measurement
    }

    /// Whether every rate is one that a core can have: between 10⁷ and 10¹⁴ a second.
    fn is_plausible(&self) -> bool {
        let possible = |rate: f64| (1e7..1e14).contains(&rate);
        !self.bandwidths.is_empty()
            && self.bandwidths.iter().all(|bandwidth| possible(bandwidth.bytes_per_second))
            && self.peak_flops.is_some_and(possible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn what_was_measured_is_measured_once() {
        let folder = tempfile::tempdir().unwrap();
        let sets = [16 << 10, 1 << 20];
        let first = measured("a machine", &sets, Some(folder.path()));
        assert!(first.is_plausible(), "{first:?}");
        assert_eq!(measured("a machine", &sets, Some(folder.path())), first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let kept = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        fs::write(&kept, "{\"bandwidths\":[],\"peak_flops\":1e300}").unwrap();
        assert!(measured("a machine", &sets, Some(folder.path())).is_plausible());
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn products_are_fused_with_sums_where_the_processor_can() {
        if !std::is_x86_feature_detected!("fma") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("probe.c");
        fs::write(&source, PROBE).unwrap();
        let listed =
            Command::new("gcc").args(HOW).args(["-march=native", "-S", "-o", "-"]).arg(&source).output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(listed.contains("vfmadd"), "a product and a sum in one instruction");
    }

    #[test]
    fn a_program_that_prints_nonsense_measured_nothing() {
        assert!(!Measurement::read("move 1 nan\nfma inf\nmove x y z\n").is_plausible());
        assert!(!Measurement::read("").is_plausible());
        assert!(Measurement::read("fma 1e11\nmove 16384 2e11\n").is_plausible());
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let started = Instant::now();
        assert_eq!(output_within(Command::new("sleep").arg("60"), Duration::from_millis(50)), None);
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
