//! Which processes are ready before they are needed?
//!
//! A process that has imported torch and found its device takes seconds to start and nothing to keep. So judges and
//! runners are started in the background, confined, a user and a folder of their own, and nobody's code in them. While
//! something is timed, those that are not ready stand still.

use super::{harness::Harness, python::Python, runner::Runner};
use crate::{
    profile::torch::{Ladder, Ready, Room},
    result::error::{Attempt, Trouble, fault},
    sandbox::{launch, peer::Peer, tree},
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How long a process may take to import torch and find its device, and to stand still meanwhile.
const START: Duration = Duration::from_mins(5);
/// How often it is looked whether a process stands still.
const LOOK: Duration = Duration::from_millis(5);
/// How long a process that was stopped may take to stand still: a driver finishes its call first.
const STOPPING: Duration = Duration::from_secs(2);

/// A kind of process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Judge,
    Runner,
}

/// A process of either kind, ready or failed.
enum Spare {
    Judge(Box<Attempt<Peer>>),
    Runner(Box<Attempt<Runner>>),
}

/// Processes that wait for work.
pub(crate) struct Spares {
    shared: Arc<Shared>,
    /// Judges and runners that are kept ready.
    kept: [usize; 2],
}

struct Shared {
    python: Arc<Python>,
    harness: Arc<Harness>,
    ladder: Arc<Ladder>,
    folders: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: Vec<Spare>,
    /// How many of each kind are being started.
    starting: [usize; 2],
    /// Their process ids, once they have one, and whether they are runners.
    ids: Vec<(i32, bool)>,
    /// Those that were stopped for quiet and are no runners: they must go on, even if they were ready by then.
    halted: Vec<i32>,
    /// How many want quiet.
    quiet: usize,
    closing: bool,
    threads: Vec<JoinHandle<()>>,
}

impl Spares {
    /// Starts a judge and a runner, which every problem needs, and the first spare, side by side.
    /// Runners get their folders in this one.
    pub(crate) fn new(how: (Arc<Python>, Arc<Harness>, Arc<Ladder>), kept: usize, folders: PathBuf) -> Self {
        let (python, harness, ladder) = how;
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { python, harness, ladder, folders, state, changed });
        let spares = Self { shared, kept: [kept / 2, kept] };
        spares.fill([1, 1 + kept.min(1)]);
        spares.prepare_profile(None);
        spares
    }

    /// A judge, once one is ready.
    pub(crate) fn judge(&self) -> Attempt<Peer> {
        loop {
            if let Spare::Judge(judge) = self.take(Kind::Judge) {
                return *judge;
            }
        }
    }

    /// A runner, once one is ready.
    pub(crate) fn runner(&self) -> Attempt<Runner> {
        loop {
            if let Spare::Runner(mut runner) = self.take(Kind::Runner) {
                if runner.as_mut().as_mut().is_ok_and(|runner| !runner.peer.is_alive()) {
                    continue;
                }
                return *runner;
            }
        }
    }

    /// Starts as many as are kept ready, in the background: after work that wants all cores.
    pub(crate) fn refill(&self) {
        self.fill(self.kept);
    }

    /// Has a process wait under the profiler, in the background, where none does and one is wanted: for any candidate, where
    /// each has a user of its own, and for the one in this folder otherwise.
    pub(crate) fn prepare_profile(&self, candidate: Option<&Path>) {
        let shared = Arc::clone(&self.shared);
        let any = shared.python.has_users().then(|| shared.folders.clone());
        let Some(beside) = any.or_else(|| candidate.map(Path::to_owned)) else { return };
        if shared.ladder.wants_one_ahead(&shared.python) {
            let mut state = self.shared.lock();
            state.threads.retain(|thread| !thread.is_finished());
            state.threads.push(std::thread::spawn(move || shared.wait_under_profiler(&beside)));
        }
    }

    /// The process that waits under the profiler, if it may be given the candidate in this folder, once it stands still. From
    /// then on it is not stopped for quiet.
    pub(crate) fn waiting(&self, candidate: &Path) -> Option<Ready> {
        let ready = self.shared.ladder.take(candidate)?;
        if let Ok(waiting) = &ready {
            let (id, _) = waiting.sign();
            self.shared.lock().ids.retain(|(other, _)| *other != id);
        }
        Some(ready)
    }

    /// Gives back a judge that nobody has asked for a problem.
    pub(crate) fn give_back(&self, judge: Peer) {
        self.shared.lock().ready.push(Spare::Judge(Box::new(Ok(judge))));
    }

    /// Ends those that are ready: they were started in a way that does not do.
    pub(crate) fn clear(&self) {
        let old = std::mem::take(&mut self.shared.lock().ready);
        drop(old);
    }

    /// Keeps those that are being started still until what is returned is dropped.
    pub(crate) fn quiet(&self) -> Quiet<'_> {
        self.shared.ladder.come_to_rest();
        let mut state = self.shared.lock();
        state.quiet += 1;
        let ids = state.ids.clone();
        for (id, is_runner) in &ids {
            state.halt(*id, *is_runner);
        }
        drop(state);
        let start = Instant::now();
        while ids.iter().any(|(id, _)| tree::runs(*id)) && start.elapsed() < STOPPING {
            std::thread::sleep(Duration::from_millis(1));
        }
        Quiet(&self.shared)
    }

    fn take(&self, kind: Kind) -> Spare {
        let mut state = self.shared.lock();
        loop {
            if let Some(at) = state.ready.iter().position(|spare| spare.kind() == kind) {
                return state.ready.remove(at);
            }
            if state.starting[kind as usize] == 0 {
                drop(state);
                let mut one = [0, 0];
                one[kind as usize] = 1;
                self.fill(one);
                state = self.shared.lock();
                continue;
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Starts as many as are missing.
    fn fill(&self, wanted: [usize; 2]) {
        let mut state = self.shared.lock();
        for kind in [Kind::Judge, Kind::Runner] {
            let ready = state.ready.iter().filter(|spare| spare.kind() == kind).count();
            for _ in ready + state.starting[kind as usize]..wanted[kind as usize] {
                state.starting[kind as usize] += 1;
                let shared = Arc::clone(&self.shared);
                state.threads.retain(|thread| !thread.is_finished());
                state.threads.push(std::thread::spawn(move || shared.start(kind)));
            }
        }
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closing = true;
        for (id, _) in &state.ids {
            launch::signal(-*id, libc::SIGKILL);
        }
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.shared.changed.notify_all();
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl State {
    /// Has a process and its group stand still.
    fn halt(&mut self, id: i32, is_runner: bool) {
        launch::signal(-id, libc::SIGSTOP);
        if !is_runner {
            self.halted.push(id);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one, and puts it where it is found.
    fn start(&self, kind: Kind) {
        let spare = match kind {
            Kind::Judge => Spare::Judge(Box::new(self.start_judge())),
            Kind::Runner => Spare::Runner(Box::new(self.start_runner())),
        };
        let mut state = self.lock();
        state.starting[kind as usize] -= 1;
        if !state.closing {
            state.ready.push(spare);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Starts a process under the profiler, where none waits, for a candidate whose folder is this or lies in it.
    fn wait_under_profiler(&self, beside: &Path) {
        let room = Room { python: &self.python, harness: &self.harness, landlock: true };
        if self.wait_for_noise().is_ok()
            && let Some((id, ready)) = self.ladder.begin(&room, beside)
        {
            self.note(id, false);
            self.watch(id, &ready);
        }
    }

    /// Keeps a process among those that are being started until it stands still or is gone.
    fn watch(&self, id: i32, ready: &Path) {
        let (start, process) = (Instant::now(), format!("/proc/{id}"));
        let there = || !ready.exists() && fs::exists(&process).unwrap_or(false) && start.elapsed() < START;
        while there() && !self.lock().closing {
            std::thread::sleep(LOOK);
        }
        self.lock().ids.retain(|(other, _)| *other != id);
    }

    /// Notes a process that is being started.
    fn note(&self, id: i32, is_runner: bool) {
        let mut state = self.lock();
        state.ids.push((id, is_runner));
        if state.closing {
            launch::signal(-id, libc::SIGKILL);
        } else if state.quiet > 0 {
            state.halt(id, is_runner);
        }
    }

    fn start_judge(&self) -> Attempt<Peer> {
        self.greeted(self.wait_for_noise().and_then(|()| self.python.judge(&self.harness)), false)
    }

    fn start_runner(&self) -> Attempt<Runner> {
        self.wait_for_noise()?;
        let folder = tempfile::tempdir_in(&self.folders).map_err(fault("cannot make a folder"))?;
        for part in ["tmp", "extensions", "triton", "inductor", "cuda"] {
            fs::create_dir(folder.path().join(part)).map_err(fault("cannot make a folder"))?;
        }
        let peer = self.greeted(self.python.runner(&self.harness, folder.path()), true)?;
        Ok(Runner::new(peer, folder))
    }

    /// Waits until nobody wants quiet.
    fn wait_for_noise(&self) -> Attempt<()> {
        let waited = self.changed.wait_while(self.lock(), |state| state.quiet > 0 && !state.closing);
        let closing = waited.unwrap_or_else(PoisonError::into_inner).closing;
        if closing {
            Err(Trouble::Fault(crate::result::failure::Fault("the workshop is closing".to_owned())))
        } else {
            Ok(())
        }
    }

    /// A process once it is ready.
    fn greeted(&self, started: Attempt<Peer>, is_runner: bool) -> Attempt<Peer> {
        let mut peer = started?;
        let (id, start) = (peer.id(), Instant::now());
        self.note(id, is_runner);
        let greeted = peer.greet(&self.python.setup(), START);
        self.lock().ids.retain(|(other, _)| *other != id);
        tracing::debug!(id, is_runner, took = ?start.elapsed(), "started");
        greeted.map(|()| peer)
    }
}

impl Spare {
    fn kind(&self) -> Kind {
        match self {
            Self::Judge(_) => Kind::Judge,
            Self::Runner(_) => Kind::Runner,
        }
    }
}

/// While it lives, no process is started.
pub(crate) struct Quiet<'a>(&'a Shared);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.quiet -= 1;
        if state.quiet == 0 {
            let halted = std::mem::take(&mut state.halted);
            for id in state.ids.iter().map(|(id, _)| *id).chain(halted) {
                launch::signal(-id, libc::SIGCONT);
            }
        }
        drop(state);
        self.0.changed.notify_all();
    }
}
