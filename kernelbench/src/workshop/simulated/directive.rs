//! What does a candidate's text tell the simulation to do with it?

use crate::result::{candidate::Candidate, failure::Failure};
use std::time::Duration;

/// How a candidate that was told to fail fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    BuildError,
    Wrong,
    Hang,
    Crash,
    /// Calls its bindings no configuration.
    Invalid,
    /// Is right, and a sanitizer finds a race.
    Racy,
    /// Passes in the loop and fails at certification.
    Refused,
    /// Others use the machine, so that it cannot be timed.
    Disturbed,
    /// The machine fails, not the candidate.
    Fault,
}

/// All that the `simulate:` lines of a source say.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Directive {
    pub(super) us: f64,
    pub(super) build: Duration,
    pub(super) run: Duration,
    pub(super) told: Option<Told>,
    /// What the profiler reads, by the counters' names.
    pub(super) counters: Vec<(String, f64)>,
}

impl Directive {
    /// Reads every line with `simulate:`; words that mean nothing are passed over.
    pub(super) fn of(candidate: &Candidate) -> Self {
        let us = microseconds_from(candidate);
        let mut directive = Self { us, build: Duration::ZERO, run: Duration::ZERO, told: None, counters: vec![] };
        let text = candidate.text();
        let lines = text.lines().filter_map(|line| line.split_once("simulate:"));
        for word in lines.flat_map(|(_, words)| words.split_whitespace()) {
            directive.obey(word.trim_end_matches([',', ';']));
        }
        directive
    }

    fn obey(&mut self, word: &str) {
        let milliseconds = |number: &str| number.parse().map(Duration::from_millis).unwrap_or_default();
        match word.split_once('=').unwrap_or((word, "")) {
            ("us", number) => self.us = number.parse().ok().filter(|us| *us > 0.0).unwrap_or(self.us),
            ("build_ms", number) => self.build = milliseconds(number),
            ("run_ms", number) => self.run = milliseconds(number),
            ("build-error", _) => self.told = Some(Told::BuildError),
            ("wrong", _) => self.told = Some(Told::Wrong),
            ("hang", _) => self.told = Some(Told::Hang),
            ("invalid", _) => self.told = Some(Told::Invalid),
            ("crash", _) => self.told = Some(Told::Crash),
            ("racy", _) => self.told = Some(Told::Racy),
            ("refused", _) => self.told = Some(Told::Refused),
            ("disturbed", _) => self.told = Some(Told::Disturbed),
            (counter, number) if counter.contains("__") => {
                self.counters.extend(number.parse().ok().map(|value| (counter.to_owned(), value)));
            }
            ("fault", _) => self.told = Some(Told::Fault),
            _ => {}
        }
    }

    /// What a sanitizer finds.
    pub(super) fn race(&self) -> Option<Failure> {
        let finding = || Failure::Sanitizer { tool: "simulated".to_owned(), finding: "told to race".to_owned() };
        (self.told == Some(Told::Racy)).then(finding)
    }

    /// The failure on this case, if running it was told to fail.
    pub(super) fn failure(&self, case: &str, output: &str) -> Option<Failure> {
        let case = case.to_owned();
        match self.told? {
            Told::Wrong => Some(mismatch(case, output)),
            Told::Invalid => Some(Failure::Invalid { case }),
            Told::Hang => Some(Failure::Hang { case, deadline_ms: 1000 }),
            Told::Crash => Some(Failure::Crash { case, signal: "SIGSEGV".into(), stderr: String::new() }),
            Told::BuildError | Told::Racy | Told::Refused | Told::Disturbed | Told::Fault => None,
        }
    }
}

/// An output with half of its elements wrong.
pub(super) fn mismatch(case: String, output: &str) -> Failure {
    Failure::Mismatch {
        case,
        argument: output.to_owned(),
        wrong: 512,
        total: 1024,
        worst_at: 7,
        expected: "1.5".into(),
        got: "-0.25".into(),
        unwritten: 0,
        nan: 0,
        while_timed: false,
        spread: Box::default(),
    }
}

/// A time between 40 and 130 µs from the candidate's hash.
fn microseconds_from(candidate: &Candidate) -> f64 {
    let id = candidate.id();
    let drawn = u64::from_str_radix(id.as_str().get(..12).unwrap_or("0"), 16).unwrap_or(0);
    40.0 + 90.0 * (drawn as f64 / (1_u64 << 48) as f64)
}
