//! How is the trusted side asked, and whose doing is it where it breaks?

use crate::{
    result::{
        error::{Attempt, Trouble},
        failure::{Failure, Fault},
    },
    sandbox::peer::Peer,
};
use serde_json::Value;
use std::{os::fd::OwnedFd, time::Duration};

/// How long the judge may take for one thing.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// Asks the judge; what breaks there is no candidate's doing.
pub(crate) fn ask(judge: &mut Peer, message: Value) -> Attempt<Value> {
    ask_with(judge, message, &[])
}

/// The same, with files that it may use from then on.
pub(crate) fn ask_with(judge: &mut Peer, message: Value, files: &[&OwnedFd]) -> Attempt<Value> {
    let what = message["do"].to_string();
    let reply = judge.ask_with(message, files, PATIENCE).map_err(|trouble| match trouble {
        Trouble::Failure(failure) => Fault(format!("the harness's trusted side broke at {what}: {failure}")).into(),
        fault @ Trouble::Fault(_) => fault,
    })?;
    match reply.said["broken"].as_str() {
        Some(why) => {
            let trace = reply.said["traceback"].as_str().unwrap_or_default();
            Err(Fault(format!("the problem or the harness broke at {what}: {why}\n{trace}")).into())
        }
        None => Ok(reply.said),
    }
}

/// Asks the judge about something that a candidate said: where the judge cannot make sense of it, nobody can. That there is
/// no memory for it is not the candidate's doing.
pub(crate) fn ask_about(judge: &mut Peer, message: Value) -> Attempt<Value> {
    let what = message["do"].to_string();
    let said = judge.ask(message, PATIENCE)?.said;
    match said["broken"].as_str() {
        Some(why) if said["memory"] == true => Err(Fault(format!("the harness broke at {what}: {why}")).into()),
        Some(why) => Err(Failure::Interface { log: format!("its output cannot be read: {why}") }.into()),
        None => Ok(said),
    }
}
