//! What went wrong, and whether the request, this machine or the folder that was to be written is to blame.

/// Why something could not be done, in a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// What was asked for cannot be.
    #[error("{0}")]
    Request(String),
    /// This machine cannot do it.
    #[error("{0}")]
    Machine(String),
    /// Files cannot be written.
    #[error("{0}")]
    Files(String),
}

impl Error {
    /// What was asked for cannot be.
    #[must_use]
    pub fn request(why: impl Into<String>) -> Self {
        Self::Request(why.into())
    }

    /// This machine cannot do it.
    #[must_use]
    pub fn machine(why: impl Into<String>) -> Self {
        Self::Machine(why.into())
    }

    /// Files cannot be written.
    #[must_use]
    pub fn files(why: impl Into<String>) -> Self {
        Self::Files(why.into())
    }
}
