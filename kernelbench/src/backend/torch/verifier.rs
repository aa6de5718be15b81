//! The verifier: the trusted Python process that draws inputs and compares outputs, and whose doing it is where it breaks.

use super::wire::{Ask, Raised, Said};
use crate::{
    result::{
        error::{Attempt, EvalError},
        failure::{Failure, Fault},
    },
    sandbox::peer::Peer,
};
use serde::de::DeserializeOwned;
use std::{os::fd::OwnedFd, time::Duration};

/// How long the verifier may take for one thing.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// A process that holds a problem's reference in double precision, its inputs, and no candidate's code.
pub(crate) struct Verifier(pub(crate) Peer);

impl Verifier {
    /// Asks for something; what breaks there is no candidate's doing.
    pub(crate) fn ask<A: DeserializeOwned>(&mut self, ask: &Ask) -> Attempt<A> {
        self.ask_with(ask, &[])
    }

    /// The same, with files that it may use from then on.
    pub(crate) fn ask_with<A: DeserializeOwned>(&mut self, ask: &Ask, files: &[&OwnedFd]) -> Attempt<A> {
        match self.said(ask, files)? {
            Ok(answer) => Ok(answer),
            Err(Raised { error, traceback, memory }) => {
                let text = format!("the problem or the harness broke at {}: {error}\n{traceback}", name(ask));
                Err(if memory { Fault::OutOfMemory(text) } else { Fault::told(text) }.into())
            }
        }
    }

    /// Asks about something that a candidate said: where the verifier cannot make sense of it, nobody can. That there is no
    /// memory for it is not the candidate's doing.
    pub(crate) fn ask_about<A: DeserializeOwned>(&mut self, ask: &Ask) -> Attempt<A> {
        match self.said(ask, &[])? {
            Ok(answer) => Ok(answer),
            Err(Raised { error, memory: true, .. }) => {
                Err(Fault::OutOfMemory(format!("the harness broke at {}: {error}", name(ask))).into())
            }
            Err(raised) => {
                Err(Failure::Interface { log: format!("its output cannot be read: {}", raised.error) }.into())
            }
        }
    }

    fn said<A: DeserializeOwned>(&mut self, ask: &Ask, files: &[&OwnedFd]) -> Attempt<Result<A, Raised>> {
        let said = self.0.ask::<Said<A>>(ask, files, PATIENCE).map_err(|error| match error {
            EvalError::Candidate(failure) => {
                Fault::told(format!("the harness's trusted side broke at {}: {failure}", name(ask))).into()
            }
            fault @ EvalError::Infra(_) => fault,
        })?;
        Ok(match said {
            Said::Answer(answer) => Ok(answer),
            Said::Raised { raised } => Err(raised),
        })
    }
}

/// What it was asked, in quotation marks.
fn name(ask: &Ask) -> String {
    serde_json::to_value(ask).map(|ask| ask["do"].to_string()).unwrap_or_default()
}
