//! Warm pools: processes of one kind that are started before they are needed.
//!
//! A process that has imported torch or made a context on a GPU takes seconds to start and nothing to keep. So it is started
//! in the background, confined, and nobody's code in it. While something is timed, those that are not ready are stopped.

use super::{process::signal, tree};
use crate::{
    result::{
        error::{Attempt, EvalError},
        failure::Fault,
    },
    stage::{self, Stage},
};
use nix::sys::signal::Signal;
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How long a process that was stopped may take until it stands: a driver finishes its call first.
const STOPPING: Duration = Duration::from_secs(2);

/// The processes of all pools that are being started, and who wants them stopped.
#[derive(Default)]
pub(crate) struct Starting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Their ids, and whether each runs on once it is ready.
    ids: Vec<(i32, bool)>,
    /// Those that were stopped and run on once they are ready: they must be resumed, even if they were ready by then.
    halted: Vec<i32>,
    /// How many want quiet.
    quiet: usize,
    closing: bool,
}

impl State {
    /// Stops a process and its group.
    fn halt(&mut self, id: i32, runs_on: bool) {
        signal(-id, Signal::SIGSTOP);
        if runs_on {
            self.halted.push(id);
        }
    }
}

impl Starting {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits until nobody wants quiet.
    pub(crate) fn wait_for_noise(&self) -> Attempt<()> {
        let waited = self.changed.wait_while(self.lock(), |state| state.quiet > 0 && !state.closing);
        let closing = waited.unwrap_or_else(PoisonError::into_inner).closing;
        if closing { Err(EvalError::Infra(Fault::Machine("the workshop is closing".to_owned()))) } else { Ok(()) }
    }

    /// Does what makes a process ready that was just started. `runs_on` says whether it is left running then.
    pub(crate) fn while_starting<T>(&self, id: i32, runs_on: bool, work: impl FnOnce() -> T) -> T {
        let mut state = self.lock();
        state.ids.push((id, runs_on));
        if state.closing {
            signal(-id, Signal::SIGKILL);
        } else if state.quiet > 0 {
            state.halt(id, runs_on);
        }
        drop(state);
        let done = work();
        self.lock().ids.retain(|(other, _)| *other != id);
        done
    }

    /// No longer counts a process among those that are being started: it is wanted now, and goes on.
    pub(crate) fn release(&self, id: i32) {
        let mut state = self.lock();
        state.ids.retain(|(other, _)| *other != id);
        if state.halted.contains(&id) {
            state.halted.retain(|other| *other != id);
            signal(-id, Signal::SIGCONT);
        }
    }

    /// Whether somebody wants quiet.
    pub(crate) fn is_quiet(&self) -> bool {
        self.lock().quiet > 0
    }

    /// Whether everything is ending.
    pub(crate) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// Stops those that are being started until what is returned is dropped.
    pub(crate) fn quiet(self: &Arc<Self>) -> Quiet {
        let mut state = self.lock();
        state.quiet += 1;
        let ids = state.ids.clone();
        for (id, runs_on) in &ids {
            state.halt(*id, *runs_on);
        }
        drop(state);
        let start = Instant::now();
        while ids.iter().any(|(id, _)| tree::runs(*id)) && start.elapsed() < STOPPING {
            std::thread::sleep(Duration::from_millis(1));
        }
        Quiet(Arc::clone(self))
    }

    /// Ends those that are being started, and lets none start any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        for (id, _) in &state.ids {
            signal(-*id, Signal::SIGKILL);
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// While it lives, no process is started.
pub(crate) struct Quiet(Arc<Starting>);

impl Drop for Quiet {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.quiet -= 1;
        if state.quiet == 0 {
            let halted = std::mem::take(&mut state.halted);
            for id in state.ids.iter().map(|(id, _)| *id).chain(halted) {
                signal(-id, Signal::SIGCONT);
            }
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

/// Processes of one kind that wait for work.
pub(crate) struct WarmPool<T> {
    shared: Arc<Shared<T>>,
    /// How many are kept ready.
    kept: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Starts a process, and makes it ready.
type Start<T> = Box<dyn Fn(Option<&Starting>) -> Attempt<T> + Send + Sync>;

struct Shared<T> {
    starting: Arc<Starting>,
    start: Start<T>,
    idle: Mutex<Idle<T>>,
    changed: Condvar,
}

struct Idle<T> {
    ready: Vec<Attempt<T>>,
    under_way: usize,
}

impl<T: Send + 'static> WarmPool<T> {
    /// None yet. `start` starts one and makes it ready: while it is given `starting`, that is told of it.
    pub(crate) fn new(
        starting: Arc<Starting>,
        kept: usize,
        start: impl Fn(Option<&Starting>) -> Attempt<T> + Send + Sync + 'static,
    ) -> Self {
        let idle = Mutex::new(Idle { ready: vec![], under_way: 0 });
        let shared = Shared { starting, start: Box::new(start), idle, changed: Condvar::new() };
        Self { shared: Arc::new(shared), kept, threads: Mutex::default() }
    }

    /// One that is ready, once one is, and is still alive.
    pub(crate) fn take(&self, alive: impl Fn(&mut T) -> bool) -> Attempt<T> {
        let _stage = stage::begin(Stage::Process);
        loop {
            let mut one = self.take_any()?;
            if alive(&mut one) {
                return Ok(one);
            }
        }
    }

    /// One that is ready and still alive, or else one that is started now, even while the machine is kept quiet: for whoever
    /// keeps it so.
    pub(crate) fn take_now(&self, alive: impl Fn(&mut T) -> bool) -> Attempt<T> {
        let _stage = stage::begin(Stage::Process);
        loop {
            let ready = lock(&self.shared.idle).ready.pop();
            let mut one = ready.unwrap_or_else(|| (self.shared.start)(None))?;
            if alive(&mut one) {
                return Ok(one);
            }
        }
    }

    /// Gives back one that nobody's code has been in.
    pub(crate) fn give_back(&self, one: T) {
        lock(&self.shared.idle).ready.push(Ok(one));
    }

    /// Starts as many as are kept ready, in the background: after work that wants all cores.
    pub(crate) fn refill(&self) {
        self.fill(self.kept);
    }

    /// Starts as many as are missing to this number.
    pub(crate) fn fill(&self, wanted: usize) {
        let mut waiting = lock(&self.shared.idle);
        for _ in waiting.ready.len() + waiting.under_way..wanted {
            waiting.under_way += 1;
            let shared = Arc::clone(&self.shared);
            let mut threads = lock(&self.threads);
            threads.retain(|thread| !thread.is_finished());
            threads.push(std::thread::spawn(move || shared.start_one()));
        }
    }

    fn take_any(&self) -> Attempt<T> {
        let mut waiting = lock(&self.shared.idle);
        loop {
            if !waiting.ready.is_empty() {
                return waiting.ready.remove(0);
            }
            if waiting.under_way == 0 {
                drop(waiting);
                self.fill(1);
                waiting = lock(&self.shared.idle);
                continue;
            }
            waiting = self.shared.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Shared<T> {
    fn start_one(&self) {
        let started = self.starting.wait_for_noise().and_then(|()| (self.start)(Some(&self.starting)));
        let mut waiting = lock(&self.idle);
        waiting.under_way -= 1;
        if !self.starting.is_closing() {
            waiting.ready.push(started);
        }
        drop(waiting);
        self.changed.notify_all();
    }
}

impl<T> Drop for WarmPool<T> {
    fn drop(&mut self) {
        self.shared.starting.close();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
