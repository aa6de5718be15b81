//! Where does a verified candidate spend its time, as far as this machine can say?
//!
//! A ladder: hardware counters through `perf stat`; where they do not work, the counts of `valgrind --tool=cachegrind`;
//! where that is missing, only the timing beside the machine's bounds. Which rung it was, and why not a higher one,
//! stands in the profile's notes. Counts are those of a call: a run of many calls less a run of few, so that starting and
//! filling the inputs does not count.

pub(crate) mod bounds;
pub(crate) mod cachegrind;
pub(crate) mod mix;
pub(crate) mod perf;
pub(crate) mod run;

use metrics::{Machine, Profile, Reading, Rung};
use std::{
    ffi::OsString,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// What is profiled: one case of a verified candidate.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The case's name.
    pub case: &'a str,
    /// Elements of all outputs together.
    pub elements: u64,
    /// Bytes that a call moves at least: inputs read once, outputs written once.
    pub bytes: u64,
    /// Bytes of all arrays together: where in the caches the data lies.
    pub working_set: u64,
    /// The median of its timing, in nanoseconds, if it was timed.
    pub median_ns: Option<f64>,
    /// The shared object that was timed.
    pub object: &'a Path,
    /// The machine that it runs on.
    pub machine: &'a Machine,
}

/// One run of the case in a process of its own, as the profiler wants it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The profiler's own command line, which the process's is appended to.
    pub wrapper: &'a [OsString],
    /// The one folder that the profiler writes into: whatever confines the process must leave it this.
    pub folder: &'a Path,
    /// How often the process calls the kernel, on the same inputs.
    pub calls: u32,
    /// Which build it calls.
    pub target: Target,
}

/// For which processor the kernel is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The very object that was timed.
    AsTimed,
    /// Built anew with `-march=x86-64-v3` in the place of `-march=native`: valgrind does not know AVX-512.
    X86V3,
}

/// The command of a run, without the wrapper's being looked for; an error says in words why there is none.
pub type MakeCommand<'a> = dyn Fn(&Run<'_>) -> Result<Command, String> + 'a;

/// What a rung counted, or in words why it is out of reach.
type Rungs = Result<Vec<Reading>, String>;

/// Profiles one case. Never fails: the lowest rung needs nothing. Blocks for `deadline` at most; leaves nothing running.
#[must_use]
pub fn profile(subject: &Subject<'_>, command: &MakeCommand<'_>, deadline: Duration) -> Profile {
    let end = Instant::now() + deadline;
    let mut notes = vec![];
    let listing = mix::listing(subject.object, end);
    let has_avx512 = listing.as_ref().is_ok_and(|listing| mix::has_avx512(listing));
    let (rung, counted) = try_profilers((subject, has_avx512), command, end, &mut notes);
    let mut readings = bounds::readings(subject);
    readings.extend(counted);
    match listing.and_then(|listing| mix::readings(&listing)) {
        Ok(mix) => readings.extend(mix),
        Err(why) => notes.push(format!("no instruction mix: {why}")),
    }
    Profile { rung, case: subject.case.to_owned(), readings, kernels: vec![], notes }
}

/// Whether this processor's counters can be read; in words why not. Waits ten seconds at most.
///
/// # Errors
/// Where `perf stat` is missing, not allowed, or finds no counters.
pub fn counters() -> Result<(), String> {
    perf::counters(Instant::now() + Duration::from_secs(10))
}

fn try_profilers(
    (subject, has_avx512): (&Subject<'_>, bool),
    command: &MakeCommand<'_>,
    end: Instant,
    notes: &mut Vec<String>,
) -> (Rung, Vec<Reading>) {
    match perf::readings(subject, command, end) {
        Ok(readings) => return (Rung::Perf, readings),
        Err(why) => notes.push(format!("no hardware counters: {why}")),
    }
    match cachegrind::readings((subject, has_avx512), command, end, notes) {
        Ok(readings) => (Rung::Cachegrind, readings),
        Err(why) => {
            notes.push(format!("no cachegrind: {why}"));
            (Rung::TimingOnly, vec![])
        }
    }
}

fn reading(name: &str, value: Option<f64>, unit: &str, meaning: &str) -> Reading {
    Reading::new(name, value, unit, meaning)
}

/// The share of one count in another; `None` where either was not counted or there is nothing to share.
fn ratio(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    part.zip(whole.filter(|whole| *whole > 0.0)).map(|(part, whole)| part / whole)
}

/// What one call adds to a count, from runs of few and of many calls.
fn per_call(few: (u32, Option<f64>), many: (u32, Option<f64>)) -> Option<f64> {
    let added = many.1? - few.1?;
    (many.0 > few.0 && added >= 0.0).then(|| added / f64::from(many.0 - few.0))
}
