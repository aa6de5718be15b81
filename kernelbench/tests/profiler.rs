//! Does the ladder of profilers come to readings on this machine, whichever rung it reaches?

use metrics::{Arch, Bandwidth, Machine, MachineKind, Profile, Rung};
use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use warpsmith_kernelbench::profiler::{Run, Subject, profile};

const ELEMENTS: u64 = 1 << 16;
const SOURCE: &str = r#"
#include <stdlib.h>
__attribute__((noinline)) void twice(float *y, const float *x, long n) { for (long i = 0; i < n; ++i) y[i] = x[i] * 2; }
int main(int count, char **words) {
    const long n = 1 << 16;
    float *x = calloc(n, 4), *y = calloc(n, 4);
    for (int calls = atoi(words[1]); calls--;) { twice(y, x, n); __asm__ volatile("" ::"r"(y) : "memory"); }
    return 0;
}"#;

/// A program that calls a kernel as often as its argument says.
fn program(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("twice.c"), folder.join("twice"));
    std::fs::write(&source, SOURCE).unwrap();
    let compiled = Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(&source).status().unwrap();
    assert!(compiled.success());
    program
}

fn machine() -> Machine {
    let bandwidth = Bandwidth { working_set_bytes: 1 << 20, bytes_per_second: 100e9 };
    let (kind, name, arch) = (MachineKind::Cpu, "test".to_owned(), Arch::Cpu("any".to_owned()));
    Machine { kind, name, arch, facts: vec![], bandwidths: vec![bandwidth], peak_flops: None }
}

fn profiled(object: &Path, wrapped: &[&str], deadline: Duration) -> Profile {
    let machine = machine();
    let bytes = ELEMENTS * 8;
    let subject = Subject {
        case: "64Ki",
        elements: ELEMENTS,
        bytes,
        working_set: bytes,
        median_ns: Some(10_000.0),
        object,
        machine: &machine,
    };
    let command = |run: &Run<'_>| {
        let mut command = Command::new(&run.wrapper[0]);
        command.args(&run.wrapper[1..]).args(wrapped).arg(run.calls.to_string());
        Ok(command)
    };
    profile(&subject, &command, deadline)
}

fn value(profile: &Profile, name: &str) -> Option<f64> {
    profile.readings.iter().find(|reading| reading.name == name).unwrap_or_else(|| panic!("{name}: {profile:#?}")).value
}

#[test]
fn a_profile_counts_one_call_and_says_which_rung_it_stands_on() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let profile = profiled(&program, &[program.to_str().unwrap()], Duration::from_mins(1));
    if profile.rung != Rung::Perf {
        assert!(profile.notes[0].starts_with("no hardware counters: "), "{profile:#?}");
    }
    if profile.rung == Rung::TimingOnly {
        assert!(profile.notes[1].starts_with("no cachegrind: "), "{profile:#?}");
    } else {
        let instructions = value(&profile, "instructions per element").unwrap();
        assert!((3.0..12.0).contains(&instructions), "a scalar loop at -O1: {profile:#?}");
    }
    assert_eq!(profile.case, "64Ki");
}

#[test]
fn a_time_stands_beside_the_machines_bounds_on_every_rung() {
    let profile = profiled(Path::new("/no/such/object"), &["/no/such/program"], Duration::from_mins(1));
    assert_eq!(profile.rung, Rung::TimingOnly);
    assert_eq!(value(&profile, "time"), Some(10_000.0));
    assert!((value(&profile, "achieved bandwidth").unwrap() - 52.43).abs() < 0.01);
    assert!((value(&profile, "bandwidth share").unwrap() - 0.5243).abs() < 1e-4);
    assert!(profile.notes.iter().any(|note| note.starts_with("no instruction mix")), "{profile:#?}");
}

#[test]
fn a_program_that_hangs_costs_the_deadline_and_no_more() {
    let started = Instant::now();
    let profile = profiled(Path::new("/no/such/object"), &["sleep", "600"], Duration::from_secs(2));
    assert_eq!(profile.rung, Rung::TimingOnly);
    assert!(profile.notes.iter().any(|note| note.contains("did not end in time") || note.contains("not installed")));
    assert!(started.elapsed() < Duration::from_mins(1));
}
