//! Warm pools: processes of one kind that are started before they are needed.
//!
//! A process that has imported torch or made a context on a GPU takes seconds to start and nothing to keep. So it is started
//! in the background, confined, and nobody's code in it. While something is timed, those that are not ready are stopped; but
//! where a GPU is timed on a machine of many cores, some go on with what needs no GPU, which is most of it.

use super::{
    process::signal,
    queue::{InTurn, Queue},
    tree,
};
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

/// Of so many cores, half may import for a GPU, and a quarter compile, beside a timing there: the others are for what is timed
/// and what checks.
const MANY_CORES: usize = 8;

/// How many contexts are made at once on a GPU. The driver of a host makes one after the other, in 0.2 s each, and lets all who wait
/// have a part of theirs in turn: of many at once none is ready before all are.
const CONTEXTS: usize = 4;

/// How many processes may be busy on the processor while something is timed on a GPU; 0 where that would disturb it.
pub(crate) fn beside_a_timing() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < MANY_CORES { 0 } else { cores / 2 }
}

/// The processes of all pools that are being started, and who wants them stopped.
#[derive(Default)]
pub(crate) struct Starting {
    state: Mutex<State>,
    changed: Condvar,
    /// How many may import at once whatever is timed; 0 where that would disturb it.
    beside: usize,
    /// Where they make contexts on a GPU, those that do.
    contexts: Option<Queue>,
}

#[derive(Default)]
struct State {
    /// Their ids, and whether each runs on once it is ready.
    ids: Vec<(i32, bool)>,
    /// Those that were stopped and run on once they are ready: they must be resumed, even if they were ready by then.
    halted: Vec<i32>,
    /// Those that import beside a timing, and how many have a turn to.
    importing: Vec<i32>,
    turns: usize,
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
    /// For processes of a GPU, which import for seconds before they need it.
    pub(crate) fn on_gpu() -> Self {
        Self { beside: beside_a_timing(), contexts: Some(Queue::new(CONTEXTS)), ..Self::default() }
    }

    /// Whether processes may import while something is timed.
    pub(crate) fn imports_beside(&self) -> bool {
        self.beside > 0
    }

    /// Waits until one more may be started.
    pub(crate) fn turn(&self) -> Attempt<Turn<'_>> {
        if !self.imports_beside() {
            self.wait_for_noise()?;
            return Ok(Turn(self));
        }
        let full = |state: &mut State| state.turns >= self.beside && !state.closing;
        let mut state = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        state.turns += 1;
        let closing = state.closing;
        drop(state);
        let turn = Turn(self);
        if closing { Err(closing_fault()) } else { Ok(turn) }
    }

    /// Does what a process that was just started does before it needs the GPU; where it may not beside a timing, it is
    /// stopped meanwhile.
    pub(crate) fn while_importing<T>(&self, id: i32, runs_on: bool, work: impl FnOnce() -> T) -> T {
        if !self.imports_beside() {
            return self.while_starting(id, runs_on, work);
        }
        let mut state = self.lock();
        if state.closing {
            signal(-id, Signal::SIGKILL);
        }
        state.importing.push(id);
        drop(state);
        let done = work();
        self.lock().importing.retain(|other| *other != id);
        done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits until nobody wants quiet.
    pub(crate) fn wait_for_noise(&self) -> Attempt<()> {
        let waited = self.changed.wait_while(self.lock(), |state| state.quiet > 0 && !state.closing);
        let closing = waited.unwrap_or_else(PoisonError::into_inner).closing;
        if closing { Err(closing_fault()) } else { Ok(()) }
    }

    /// Waits for a turn to make a context on a GPU, where that is what makes a process ready.
    pub(crate) fn context_turn(&self) -> Option<InTurn<'_>> {
        self.contexts.as_ref().map(Queue::turn)
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
        let (start, leaders) = (Instant::now(), ids.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        // Under a profiler or a sanitizer it is not the leader who uses the device.
        while !leaders.is_empty() && tree::group_runs(&leaders) && start.elapsed() < STOPPING {
            std::thread::sleep(Duration::from_millis(1));
        }
        Quiet(Arc::clone(self))
    }

    /// Ends those that are being started, and lets none start any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        for id in state.ids.iter().map(|(id, _)| id).chain(&state.importing) {
            signal(-*id, Signal::SIGKILL);
        }
        drop(state);
        self.changed.notify_all();
    }
}

fn closing_fault() -> EvalError {
    EvalError::Infra(Fault::Machine("the workshop is closing".to_owned()))
}

/// A turn to start a process and have it import.
pub(crate) struct Turn<'a>(&'a Starting);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.turns = state.turns.saturating_sub(1);
        drop(state);
        self.0.changed.notify_all();
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
    /// How many wait for one.
    waiting: usize,
}

impl<T: Send + 'static> WarmPool<T> {
    /// None yet. `start` starts one and makes it ready: while it is given `starting`, that is told of it.
    pub(crate) fn new(
        starting: Arc<Starting>,
        kept: usize,
        start: impl Fn(Option<&Starting>) -> Attempt<T> + Send + Sync + 'static,
    ) -> Self {
        let idle = Mutex::new(Idle { ready: vec![], under_way: 0, waiting: 0 });
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

    /// One is started for each who waits.
    fn take_any(&self) -> Attempt<T> {
        let mut idle = lock(&self.shared.idle);
        idle.waiting += 1;
        loop {
            if !idle.ready.is_empty() {
                idle.waiting -= 1;
                return idle.ready.remove(0);
            }
            if idle.under_way < idle.waiting {
                let wanted = idle.waiting;
                drop(idle);
                self.fill(wanted);
                idle = lock(&self.shared.idle);
                continue;
            }
            idle = self.shared.changed.wait(idle).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Shared<T> {
    fn start_one(&self) {
        let noise = if self.starting.imports_beside() { Ok(()) } else { self.starting.wait_for_noise() };
        let started = noise.and_then(|()| (self.start)(Some(&self.starting)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        os::unix::process::CommandExt,
        process::{Child, Command},
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
    };

    const LONG: Duration = Duration::from_secs(20);

    fn on_gpu(beside: usize) -> Arc<Starting> {
        Arc::new(Starting { beside, ..Starting::default() })
    }

    /// A process that works until it is killed, in a group of its own.
    fn busy() -> Child {
        Command::new("sh").args(["-c", "while :; do :; done"]).process_group(0).spawn().expect("a shell")
    }

    /// Whether a process that imports, and one that uses the device, run while somebody wants quiet.
    fn run_in_quiet(starting: &Arc<Starting>) -> [bool; 2] {
        let mut children = [busy(), busy()];
        let [imports, starts] = [0, 1].map(|at: usize| children[at].id().cast_signed());
        let runs = starting.while_importing(imports, true, || {
            starting.while_starting(starts, true, || {
                let quiet = starting.quiet();
                let runs = [imports, starts].map(tree::runs);
                drop(quiet);
                assert!(tree::runs(imports) && tree::runs(starts), "both go on");
                runs
            })
        });
        for child in &mut children {
            child.kill().and_then(|()| child.wait()).expect("its end");
        }
        runs
    }

    #[test]
    fn what_imports_for_a_gpu_goes_on_while_it_is_timed_and_what_uses_it_stops() {
        assert_eq!(run_in_quiet(&on_gpu(1)), [true, false]);
        assert_eq!(run_in_quiet(&Arc::default()), [false, false]);
    }

    #[test]
    fn no_more_than_so_many_import_at_once_and_none_once_all_is_ending() {
        let starting = on_gpu(2);
        let turns = [starting.turn().expect("a turn"), starting.turn().expect("a turn")];
        let third = {
            let starting = Arc::clone(&starting);
            std::thread::spawn(move || starting.turn().map(drop).is_ok())
        };
        std::thread::sleep(Duration::from_millis(50));
        assert!(!third.is_finished());
        drop(turns);
        assert!(third.join().expect("its end"));
        assert_eq!(starting.lock().turns, 0);
        starting.close();
        assert!(starting.turn().is_err());
        assert_eq!(starting.lock().turns, 0);
    }

    #[test]
    fn one_is_started_for_each_who_waits() {
        let (all, there) = (3, Arc::new(AtomicUsize::new(0)));
        let pool = {
            let there = Arc::clone(&there);
            Arc::new(WarmPool::new(Arc::default(), 1, move |_| {
                there.fetch_add(1, SeqCst);
                let start = Instant::now();
                while there.load(SeqCst) < all && start.elapsed() < LONG {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(there.load(SeqCst))
            }))
        };
        let take = |_| {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || pool.take(|_| true).ok())
        };
        let taken: Vec<_> = (0..all).map(take).collect();
        for one in taken {
            assert_eq!(one.join().expect("its end"), Some(all), "each was started beside the others");
        }
    }
}
