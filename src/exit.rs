//! How did the program end, in one number?

use std::fmt::Write;

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked.
    Done = 0,
    /// No candidate was correct, or the one that was evaluated is not.
    NothingCorrect = 1,
    /// The command line, the settings or the task are wrong.
    Usage = 2,
    /// The machine failed.
    Machine = 3,
    /// The model did not answer.
    Model = 4,
    /// The record failed.
    Record = 5,
    /// Replies are missing.
    Waiting = 10,
    /// A mistake in the program.
    Ours = 70,
    /// Interrupted.
    Interrupted = 130,
}

impl Exit {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::NothingCorrect,
        Self::Usage,
        Self::Machine,
        Self::Model,
        Self::Record,
        Self::Waiting,
        Self::Ours,
        Self::Interrupted,
    ];

    /// What it means, in a sentence.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "It did what was asked.",
            Self::NothingCorrect => {
                "No correct candidate was found, the evaluated one failed, or a replay or a verification differs from its record."
            }
            Self::Usage => "The command line, the settings or the task file are wrong; the message says where.",
            Self::Machine => {
                "This machine could not do it: no compiler, no memory, a broken tool; `warpsmith doctor` says what is missing."
            }
            Self::Model => {
                "The model could not be reached, refused, or gave a batch's task nothing readable; what was done is kept, \
                 `warpsmith resume` goes on."
            }
            Self::Record => "The run's folder could not be read or written.",
            Self::Waiting => {
                "Only replies (--exit-when-waiting) or a device (--without-device) are missing; `warpsmith resume` goes on where they are there."
            }
            Self::Ours => {
                "A mistake in this program; please report it. What was done is kept, `warpsmith resume` goes on."
            }
            Self::Interrupted => "It was interrupted; `warpsmith resume` goes on.",
        }
    }

    /// The number.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The list of all of them for `--help`.
    #[must_use]
    pub fn help() -> String {
        let mut text = String::from("Exit codes:\n");
        for exit in Self::ALL {
            let _ = writeln!(text, "  {:>3}  {}", exit.code(), exit.meaning());
        }
        text
    }
}

/// Why a command could not do what was asked: how to end, and what to say.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Trouble {
    /// How to end.
    pub exit: Exit,
    /// What went wrong, where, and what to do.
    pub message: String,
}

impl Trouble {
    /// The user's command line, settings or task are wrong.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }

    /// This program was built without it. (Where every part was built in, as for the tests, nobody asks.)
    #[cfg(any(test, not(all(feature = "batch-api", feature = "flashinfer-bench"))))]
    #[must_use]
    pub fn not_built_in(what: &str, feature: &str) -> Self {
        Self::usage(format!(
            "{what} is not part of this program, for it has met no real counterpart yet; to try it, build it in: cargo build --release --features {feature}"
        ))
    }

    /// This machine cannot do it.
    #[must_use]
    pub fn machine(message: impl Into<String>) -> Self {
        Self { exit: Exit::Machine, message: message.into() }
    }

    /// The record cannot be read or written.
    #[must_use]
    pub fn record(message: impl Into<String>) -> Self {
        Self { exit: Exit::Record, message: message.into() }
    }
}

impl From<crate::store::StoreError> for Trouble {
    fn from(error: crate::store::StoreError) -> Self {
        Self::record(error.to_string())
    }
}

impl From<agents::log::LogError> for Trouble {
    fn from(error: agents::log::LogError) -> Self {
        Self::record(error.to_string())
    }
}

impl From<crate::config::ConfigError> for Trouble {
    fn from(error: crate::config::ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<kernelbench::load::TaskError> for Trouble {
    fn from(error: kernelbench::load::TaskError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<kernelbench::Fault> for Trouble {
    fn from(fault: kernelbench::Fault) -> Self {
        Self::machine(fault.to_string())
    }
}

impl From<sglang::Error> for Trouble {
    fn from(error: sglang::Error) -> Self {
        let exit = match error {
            sglang::Error::Request(_) => Exit::Usage,
            sglang::Error::Machine(_) => Exit::Machine,
            sglang::Error::Files(_) => Exit::Record,
        };
        Self { exit, message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_built_in_is_refused_with_how_to_build_it_in() {
        let refused = Trouble::not_built_in("openai-batch:NAME, OpenAI's Batch API,", "batch-api");
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.message.contains("--features batch-api"), "{refused}");
        let features = include_str!("../Cargo.toml");
        assert!(features.contains("\nbatch-api = ") && features.contains("\nflashinfer-bench = "));
    }
}
