//! What stops an evaluation: the candidate, or the machine it runs on.

use super::failure::{Failure, Fault, Outcome};

/// What stops an attempt.
#[derive(Debug)]
pub(crate) enum EvalError {
    /// The candidate's doing.
    Candidate(Box<Failure>),
    /// The machine's, or the task's.
    Infra(Fault),
}

/// Something that either may stop.
pub(crate) type Attempt<T> = Result<T, EvalError>;

impl EvalError {
    /// What a compiler or linker said, where that is what it is about.
    pub(crate) fn build_log(&self) -> Option<&str> {
        match self {
            Self::Candidate(failure) => match &**failure {
                Failure::Build { log } | Failure::Interface { log } => Some(log),
                _ => None,
            },
            Self::Infra(_) => None,
        }
    }
}

impl std::fmt::Display for EvalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Candidate(failure) => failure.fmt(f),
            Self::Infra(fault) => fault.fmt(f),
        }
    }
}

impl From<Failure> for EvalError {
    fn from(failure: Failure) -> Self {
        Self::Candidate(Box::new(failure))
    }
}

impl From<Fault> for EvalError {
    fn from(fault: Fault) -> Self {
        Self::Infra(fault)
    }
}

/// Puts each kind in its own place.
pub(crate) fn outcome<T>(attempt: Attempt<T>) -> Outcome<T> {
    match attempt {
        Ok(value) => Ok(Ok(value)),
        Err(EvalError::Candidate(failure)) => Ok(Err(*failure)),
        Err(EvalError::Infra(fault)) => Err(fault),
    }
}

/// A fault of the machine that says what was being done.
pub(crate) fn fault(doing: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Fault {
    move |e| Fault::Machine(format!("{doing}: {e}"))
}

/// What the reference does is no candidate's failure: it is a fault of the task.
pub(crate) fn trusted<T>(attempt: Attempt<T>) -> Attempt<T> {
    attempt.map_err(|error| match error {
        EvalError::Candidate(failure) => Fault::of_reference(&failure).into(),
        fault @ EvalError::Infra(_) => fault,
    })
}
