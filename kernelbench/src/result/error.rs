//! Two kinds of trouble on one road: the candidate's and the machine's, told apart again at the end.

use crate::result::failure::{Failure, Fault, Outcome};

/// What stops an attempt.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The candidate's doing.
    Failure(Box<Failure>),
    /// The machine's.
    Fault(Fault),
}

/// Something that either may stop.
pub(crate) type Attempt<T> = Result<T, Trouble>;

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failure(Box::new(failure))
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Puts each kind in its own place.
pub(crate) fn outcome<T>(attempt: Attempt<T>) -> Outcome<T> {
    match attempt {
        Ok(value) => Ok(Ok(value)),
        Err(Trouble::Failure(failure)) => Ok(Err(*failure)),
        Err(Trouble::Fault(fault)) => Err(fault),
    }
}

/// A fault that says what was being done.
pub(crate) fn fault(doing: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Fault {
    move |e| Fault(format!("{doing}: {e}"))
}
