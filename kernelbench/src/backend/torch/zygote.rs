//! The zygote: a process that has imported torch and is forked for either side (`harness/zygote.py`).
//!
//! Importing torch takes seconds, and a fork of a process that has takes milliseconds. Nobody's code is in it. Where it does
//! not work, sides are started one by one.

use crate::{
    result::error::Attempt,
    sandbox::{confine::Planned, peer::Peer, process::Process, socket, start::Started},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
    time::{Duration, Instant},
};

/// How long a fork may take, and how long its answer is waited for.
const FORKING: Duration = Duration::from_secs(10);
/// How long somebody waits whose turn it is while another has one made.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many zygotes may be lost before none is started any more.
const MOST_LOST: u32 = 3;

/// What a fork becomes.
#[derive(Serialize)]
pub(crate) struct Fork<'a> {
    /// The script of its side.
    pub(crate) script: &'a Path,
    /// The folder that it works in.
    pub(crate) folder: &'a Path,
    /// Its whole environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// What it takes on before its script; nothing where it is trusted.
    pub(crate) confinement: Option<Vec<Planned>>,
}

/// What the zygote says of a fork.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Forked {
    /// Its number: a child of this program.
    Forked(i32),
    /// Why there is none.
    Refused(String),
}

/// The zygote, started when the first side is.
#[derive(Default)]
pub(crate) struct Zygote(Mutex<State>);

#[derive(Default)]
struct State {
    peer: Option<Peer>,
    /// How many have been lost.
    lost: u32,
}

/// Why there was no fork.
enum NoFork {
    /// The zygote said so: another would too.
    Refused(String),
    /// It did not answer.
    Lost(String),
}

impl State {
    /// Lets go of one that ended, or could not be started.
    fn lose(&mut self, why: &str) {
        self.peer = None;
        self.lost += 1;
        tracing::info!(why, lost = self.lost, of = MOST_LOST, "no process with torch to fork");
    }
}

impl Zygote {
    /// Sees to it that there is one, where there can be: `start` starts it and has it import.
    pub(crate) fn warm_up(&self, waits: bool, start: impl FnOnce() -> Attempt<Peer>) {
        let state = if waits { Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)) } else { self.soon() };
        let Some(mut state) = state else { return };
        if state.peer.as_mut().is_some_and(Peer::is_alive) {
            return;
        }
        if state.peer.is_some() {
            state.lose("it ended");
        }
        if state.lost < MOST_LOST {
            match start() {
                Ok(peer) => state.peer = Some(peer),
                Err(error) => state.lose(&error.to_string()),
            }
        }
    }

    /// Forks it; `None` where that is not possible, and a side is started as any process is.
    pub(crate) fn fork(&self, fork: &Fork<'_>, user: Option<u32>) -> Option<Started> {
        let mut state = self.soon()?;
        let peer = state.peer.as_mut()?;
        match try_fork(peer, fork, user) {
            Ok(started) => return Some(started),
            Err(NoFork::Lost(why)) => state.lose(&why),
            Err(NoFork::Refused(why)) => {
                state.lost = MOST_LOST;
                state.lose(&why);
            }
        }
        None
    }

    /// Its state, where it can be had soon.
    fn soon(&self) -> Option<MutexGuard<'_, State>> {
        let start = Instant::now();
        loop {
            match self.0.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(state)) => return Some(state.into_inner()),
                Err(TryLockError::WouldBlock) if start.elapsed() > PATIENCE => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

fn try_fork(peer: &mut Peer, fork: &Fork<'_>, user: Option<u32>) -> Result<Started, NoFork> {
    let lost = |why: &dyn std::fmt::Display| NoFork::Lost(why.to_string());
    let (control, theirs) = socket::pair().map_err(|e| lost(&e))?;
    let (output, print) = std::io::pipe().map_err(|e| lost(&e))?;
    match peer.ask(fork, &[&theirs, &OwnedFd::from(print)], FORKING).map_err(|e| lost(&e))? {
        Forked::Forked(id) => Ok(Started { process: Process::forked(id), control, output, user }),
        Forked::Refused(why) => Err(NoFork::Refused(why)),
    }
}
