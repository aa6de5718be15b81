//! Failures of candidates, and faults of the machine: whose doing was it?
//!
//! A [`Failure`] is the candidate's: data, which goes to the Judge. A [`Fault`] is the machine's: it is retried and then
//! ends the run with a clear word. A reply that cannot be read is the model's (`prompts::Unreadable`), a panic is ours.

pub use arrays::Spread;
use serde::{Deserialize, Serialize};

/// On which case: a phrase such as "while it was loaded" stands for itself, and where nothing is known nothing is said.
fn on(case: &str) -> String {
    match case {
        "" => String::new(),
        phrase if phrase.starts_with("while ") => format!(" {phrase}"),
        case => format!(" on case {case}"),
    }
}

/// How a candidate failed: always the candidate's own doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Failure {
    /// It did not compile or link.
    #[error("it does not build")]
    Build {
        /// What the compiler said: the last 150 lines.
        log: String,
    },
    /// It compiles, but its entry point or the form of its output is not the one that was asked for.
    #[error("its entry point or the form of its output is not the one asked for")]
    Interface {
        /// What is missing or different.
        log: String,
    },
    /// It raised an exception (Python).
    #[error("it raised {error} in its {stage} on case {case}")]
    Raised {
        /// The case it ran.
        case: String,
        /// Where: import, constructor or forward.
        stage: String,
        /// The exception's type and text.
        error: String,
        /// Python's traceback.
        traceback: String,
    },
    /// A signal ended it.
    #[error("it crashed with {signal}{}", on(.case))]
    Crash {
        /// The case it ran.
        case: String,
        /// The signal's name.
        signal: String,
        /// What it left on standard error.
        stderr: String,
    },
    /// It ended its process itself.
    #[error("it ended its process with status {status}{}", on(.case))]
    Exit {
        /// The case it ran.
        case: String,
        /// The exit status.
        status: i32,
        /// What it left on standard error.
        stderr: String,
    },
    /// It did not return in time.
    #[error("it did not return within {deadline_ms} ms{}", on(.case))]
    Hang {
        /// The case it ran.
        case: String,
        /// The deadline, in milliseconds.
        deadline_ms: u64,
    },
    /// It asked for more memory than it may have.
    #[error("it asked for more than {limit_mib} MiB of memory{}", on(.case))]
    Memory {
        /// The case it ran.
        case: String,
        /// The limit, in MiB.
        limit_mib: u64,
    },
    /// It printed without end.
    #[error("it printed more than {limit_kib} KiB{}", on(.case))]
    Flood {
        /// The case it ran.
        case: String,
        /// The limit, in KiB.
        limit_kib: u64,
    },
    /// It tried what a kernel has no business to do: start a process or a thread, write a file, open a connection.
    #[error("it tried to {what}{}", on(.case))]
    Forbidden {
        /// The case it ran.
        case: String,
        /// What it tried, as a verb phrase.
        what: String,
    },
    /// It uses a library that its task forbids: what it is to be better than.
    #[error("it uses {library}, which its task forbids: it {how}")]
    Library {
        /// The library.
        library: String,
        /// What shows it, after "it": "calls `cblas_sgemm`".
        how: String,
    },
    /// An output differs from the reference's.
    #[error("{wrong} of {total} elements of {argument} are wrong on case {case}")]
    Mismatch {
        /// The case it ran.
        case: String,
        /// The output.
        argument: String,
        /// Elements outside the tolerance.
        wrong: u64,
        /// Elements in all.
        total: u64,
        /// The index of the worst.
        worst_at: u64,
        /// The reference's value there, as text, so that NaN and infinity survive.
        expected: String,
        /// The candidate's value there.
        got: String,
        /// Elements that still held the poison they were given: never written.
        unwritten: u64,
        /// Elements that are NaN.
        nan: u64,
        /// Whether it came up among the timed calls, after all checks had passed.
        while_timed: bool,
        /// Where the wrong elements lie, and how wrong they are at most.
        #[serde(default, skip_serializing_if = "Spread::is_unknown")]
        spread: Box<Spread>,
    },
    /// It changed an input that it was to read only.
    #[error("it changed its input {argument} on case {case}")]
    InputChanged {
        /// The case it ran.
        case: String,
        /// The input.
        argument: String,
    },
    /// It wrote or read beside an argument.
    #[error("it reached outside {argument} on case {case}")]
    OutOfBounds {
        /// The case it ran.
        case: String,
        /// The argument beside which that was.
        argument: String,
    },
    /// The clock inside its process and the one outside disagree.
    #[error("its clock says {inside_ns} ns, ours says {outside_ns} ns, on case {case}")]
    Clocks {
        /// The case it ran.
        case: String,
        /// Median inside, in nanoseconds.
        inside_ns: u64,
        /// Median outside, in nanoseconds.
        outside_ns: u64,
    },
    /// It is faster than this machine can move the data: a finding, not a win.
    #[error("its time of {measured_ns} ns on case {case} is below the floor of {floor_ns} ns")]
    BelowFloor {
        /// The case it ran.
        case: String,
        /// Its median, in nanoseconds.
        measured_ns: u64,
        /// The time in which the best measured bandwidth moves its inputs and outputs once, in nanoseconds.
        floor_ns: u64,
    },
    /// Its bindings are no configuration for the arguments of a case: its entry returned `WS_INVALID`.
    #[error("it returned WS_INVALID on case {case}: its bindings are no configuration there")]
    Invalid {
        /// The case it ran.
        case: String,
    },
    /// A memory sanitizer found an error (only looked for when certifying).
    #[error("the {tool} sanitizer found: {finding}")]
    Sanitizer {
        /// Which one.
        tool: String,
        /// What it found, in its words.
        finding: String,
    },
}

/// Something broke that is no candidate's doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A device, a compiler or another program that is needed is not here.
    #[error("{0}")]
    Absent(String),
    /// The machine has not enough memory, whoever takes it.
    #[error("{0}")]
    OutOfMemory(String),
    /// The task's reference does not do what a reference must.
    #[error("{0}")]
    Reference(String),
    /// Others use the machine, so that nothing can be timed.
    #[error("{0}")]
    Disturbed(String),
    /// Anything else.
    #[error("{0}")]
    Machine(String),
}

impl Fault {
    /// What torch or a driver said went wrong: that memory is short can be told from its words alone.
    pub(crate) fn told(text: String) -> Self {
        if text.contains("out of memory") { Self::OutOfMemory(text) } else { Self::Machine(text) }
    }

    /// What the task's reference did that would be a candidate's failure.
    pub(crate) fn of_reference(failure: &Failure) -> Self {
        let more = match failure {
            Failure::Raised { traceback, .. } => format!("\n{traceback}"),
            // A compiler knows each text that it is given by one name.
            Failure::Build { log } | Failure::Interface { log } => {
                format!("\n{}", log.replace("candidate.c", "reference.c").replace("candidate.h", "reference.h"))
            }
            Failure::Exit { stderr, .. } | Failure::Crash { stderr, .. } if !stderr.is_empty() => format!("\n{stderr}"),
            Failure::Memory { case, limit_mib } => {
                let text = format!(
                    "the reference ran out of memory on case {case}: all programs that use it share {limit_mib} MiB"
                );
                return Self::OutOfMemory(text);
            }
            _ => String::new(),
        };
        Self::Reference(format!("the reference failed: {failure}{more}"))
    }

    /// Whether the same may go well a moment later: what is not here stays so, and whoever uses the machine stays longer.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        !matches!(self, Self::Absent(_) | Self::Disturbed(_))
    }

    /// Whether it is the reference's.
    pub(crate) fn is_of_reference(&self) -> bool {
        matches!(self, Self::Reference(_))
    }

    /// Whether memory was short.
    pub(crate) fn is_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_))
    }

    /// Its words.
    #[must_use]
    pub fn words(&self) -> &str {
        let (Self::Absent(words)
        | Self::OutOfMemory(words)
        | Self::Reference(words)
        | Self::Disturbed(words)
        | Self::Machine(words)) = self;
        words
    }
}

/// The outer result is the machine's; the inner one is the candidate's.
pub type Outcome<T> = Result<Result<T, Failure>, Fault>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_on_which_case_it_was_or_when_or_neither() {
        let exit = |case: &str| Failure::Exit { case: case.to_owned(), status: 3, stderr: String::new() }.to_string();
        assert_eq!(exit("64x8"), "it ended its process with status 3 on case 64x8");
        assert_eq!(exit("while it was loaded"), "it ended its process with status 3 while it was loaded");
        assert_eq!(exit(""), "it ended its process with status 3");
    }

    #[test]
    fn what_a_compiler_says_of_a_reference_names_it_and_no_candidate() {
        for ending in ["c", "cpp", "cu", "hip", "hlsl"] {
            let log = format!("candidate.{ending}:3:5: error: 'x' was not declared");
            let said = Fault::of_reference(&Failure::Build { log }).to_string();
            assert!(
                said.contains(&format!("\nreference.{ending}:3:5: error")) && !said.contains("candidate"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_mismatch_of_an_old_record_is_still_read() {
        let old = r#"{"kind":"mismatch","case":"a","argument":"out","wrong":1,"total":2,"worst_at":1,"expected":"1","got":"2","unwritten":0,"nan":0,"while_timed":false}"#;
        let read: Failure = serde_json::from_str(old).unwrap();
        assert!(matches!(&read, Failure::Mismatch { spread, .. } if spread.is_unknown()));
        assert_eq!(serde_json::to_string(&read).unwrap(), old);
    }
}
