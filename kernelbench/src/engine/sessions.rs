//! What the engine keeps between steps: open tasks and candidates that wait, and who gives way where memory is short.
//!
//! What waits holds memory of the device: candidates that have run, tasks that are open, and least of all the processes of tasks
//! whose memory was given back, and of candidates that were only built. They are evicted in this order, the oldest of each kind
//! first, until enough is free; a task first gives its memory back and keeps its processes, where its backend can. Where a step finds
//! no memory all the same, it is tried once more with a quarter more free, for what is free may be promised to others who
//! have not taken it yet; and then once more with everything else of ours ended: what others of ours held is no candidate's
//! failure.

use super::{backend::Backend, certify::Anew, notes::Notes, ranked::LastRanked};
use crate::{
    hash::Hash,
    lease::Lease,
    result::{
        candidate::CandidateId,
        error::{Attempt, EvalError},
        failure::Failure,
    },
    stage::{self, Stage},
};
use lru::LruCache;
use std::{
    collections::HashMap,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Candidates of which it is remembered what was learned.
const NOTED: NonZeroUsize = NonZeroUsize::new(1000).unwrap();
/// Candidates that gave way, whose builds are kept.
const ASLEEP: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Candidates that were built again and wait to be certified.
const REBUILT: NonZeroUsize = NonZeroUsize::new(8).unwrap();
/// How long it may take until the memory of a process that has ended is free.
const FREED: Duration = Duration::from_millis(500);
/// The same of a process that may have held nearly all of it.
const ALL_FREED: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);
/// Bytes that a step is given beside a quarter more than it had when it was short.
const MORE: u64 = 1 << 30;

/// The memory of the device that a step works with, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room<'a> {
    /// The step's own task, where that is open.
    pub(crate) key: Option<&'a Hash>,
    /// What it takes beside what its task holds.
    pub(crate) wanted: u64,
    /// What its task holds, or takes again before the step.
    pub(crate) held: u64,
    /// What of that its task has given back.
    pub(crate) missing: u64,
}

/// What waits, in the order in which it is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// A candidate that has run.
    Ran,
    /// A task that is open.
    Open,
    /// A task that has given its memory back.
    Offloaded,
    /// A candidate that was built, and holds nothing yet.
    Built,
}

const ORDER: [Waiting; 4] = [Waiting::Ran, Waiting::Open, Waiting::Offloaded, Waiting::Built];

/// A task that is open, for one step at a time.
pub(crate) type Shared<B> = Arc<Mutex<<B as Backend>::Session>>;

/// What is kept.
pub(crate) struct Kept<B: Backend> {
    tasks: Mutex<LruCache<Hash, Shared<B>>>,
    /// What a task took when it was open before, in bytes.
    sizes: Mutex<HashMap<Hash, u64>>,
    /// What a step of a task was done with that had been short of memory with less, in bytes.
    enough: Mutex<HashMap<Hash, u64>>,
    /// Whose turn it is to open a task that others wait for too.
    opening: Mutex<HashMap<Hash, Arc<Mutex<()>>>>,
    candidates: Mutex<LruCache<CandidateId, B::Loaded>>,
    /// Those that gave way to others: their builds, without processes.
    asleep: Mutex<LruCache<CandidateId, B::Loaded>>,
    /// The last configuration of a search, for the next of its text to go on with.
    pub(crate) ranked: LastRanked<B::Loaded>,
    notes: Mutex<LruCache<CandidateId, Notes>>,
    rebuilt: Mutex<LruCache<u64, Anew<B>>>,
    tickets: AtomicU64,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B: Backend> Kept<B> {
    /// Nothing yet.
    pub(crate) fn new(backend: &B) -> Self {
        let numbers = backend.numbers();
        let most = |count: usize| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        Self {
            tasks: Mutex::new(LruCache::new(most(numbers.open_tasks))),
            sizes: Mutex::default(),
            enough: Mutex::default(),
            opening: Mutex::default(),
            candidates: Mutex::new(LruCache::new(most(numbers.kept_candidates))),
            asleep: Mutex::new(LruCache::new(ASLEEP)),
            ranked: LastRanked::default(),
            notes: Mutex::new(LruCache::new(NOTED)),
            rebuilt: Mutex::new(LruCache::new(REBUILT)),
            tickets: AtomicU64::new(1),
        }
    }

    /// The task of this key, opened where it was not yet: `open` calls what it is given when it needs the device, and
    /// `lease` holds it from then on. Where memory was short for that, once more alone, with all else evicted. Others may
    /// look for theirs meanwhile.
    pub(crate) fn task<'g>(
        &self,
        backend: &B,
        key: &Hash,
        lease: impl Fn(u64) -> Lease<'g>,
        open: impl Fn(&mut dyn FnMut(Option<u64>)) -> Attempt<B::Session>,
    ) -> Attempt<Shared<B>> {
        let known = || self.open_task(key);
        if let Some(task) = known() {
            return Ok(task);
        }
        let turn = Arc::clone(lock(&self.opening).entry(key.clone()).or_default());
        let _turn = lock(&turn);
        if let Some(task) = known() {
            return Ok(task);
        }
        let opened = stage::during(Stage::Open, || self.opened(backend, self.room_for(backend, key), lease, open));
        lock(&self.opening).remove(key);
        let opened = opened?;
        self.note_size(backend, key, &opened);
        let session = Arc::new(Mutex::new(opened));
        let old = lock(&self.tasks).push(key.clone(), Arc::clone(&session));
        // Ending processes takes a while; nobody waits for the others meanwhile.
        drop(old);
        Ok(session)
    }

    /// Notes what a task takes, for when it is opened anew.
    pub(crate) fn note_size(&self, backend: &B, key: &Hash, session: &B::Session) {
        lock(&self.sizes).insert(key.clone(), backend.whole_memory(session));
    }

    /// The bytes that a task is given to be opened with: what it took before, else what the backend says of any.
    pub(crate) fn room_for(&self, backend: &B, key: &Hash) -> u64 {
        lock(&self.sizes).get(key).copied().unwrap_or_else(|| backend.memory_of_a_task())
    }

    fn opened<'g>(
        &self,
        backend: &B,
        room: u64,
        lease: impl Fn(u64) -> Lease<'g>,
        open: impl Fn(&mut dyn FnMut(Option<u64>)) -> Attempt<B::Session>,
    ) -> Attempt<B::Session> {
        let mut held = None;
        let opened = open(&mut |told| {
            let room = told.unwrap_or(room);
            held = Some(lease(room));
            self.evict_until(backend, None, room);
        });
        let short = match &opened {
            Ok(session) => backend.was_short(session),
            failed => is_full(failed),
        };
        if short && self.be_alone(backend, held.get_or_insert_with(|| lease(room)), None) {
            drop(opened);
            return open(&mut |_| ());
        }
        opened
    }

    /// Has nobody else beside a step, and evicts all but its task; whether anybody was there.
    pub(crate) fn be_alone(&self, backend: &B, lease: &mut Lease<'_>, key: Option<&Hash>) -> bool {
        let were_others = !lease.is_alone() || !lease.has_all();
        lease.have_all();
        self.evict_all(backend, key) > 0 || were_others
    }

    /// The task of this key, where it is open.
    pub(crate) fn open_task(&self, key: &Hash) -> Option<Shared<B>> {
        lock(&self.tasks).get(key).cloned()
    }

    /// Forgets a task: its processes end.
    pub(crate) fn close(&self, key: &Hash) {
        self.ranked.forget();
        let old = lock(&self.tasks).pop(key);
        drop(old);
    }

    /// Takes a candidate that waits.
    pub(crate) fn unpark(&self, id: &CandidateId) -> Option<B::Loaded> {
        lock(&self.candidates).pop(id)
    }

    /// Takes the build of a candidate that gave way to others.
    pub(crate) fn asleep(&self, id: &CandidateId) -> Option<B::Loaded> {
        lock(&self.asleep).pop(id)
    }

    /// Forgets a candidate.
    pub(crate) fn release(&self, id: &CandidateId) {
        let gone = (self.unpark(id), self.asleep(id));
        drop(gone);
    }

    /// Where the build of a candidate lies that waits or sleeps, and needs no other.
    pub(crate) fn build_of(&self, backend: &B, id: &CandidateId) -> Option<PathBuf> {
        let of = |kept: &Mutex<LruCache<CandidateId, B::Loaded>>| lock(kept).get(id).map(|one| backend.artifact(one));
        of(&self.candidates).or_else(|| of(&self.asleep))
    }

    /// Ends the process of a candidate; its build is kept where that is worth it.
    fn give_way(&self, backend: &B, id: CandidateId, loaded: B::Loaded) {
        if let Some(asleep) = backend.put_to_sleep(loaded) {
            let old = lock(&self.asleep).push(id, asleep);
            drop(old);
        }
    }

    /// Keeps a candidate for its next step. One that cannot rest is not kept, and one that breaks out meanwhile fails.
    pub(crate) fn park(&self, backend: &B, id: &CandidateId, mut loaded: B::Loaded) -> Attempt<()> {
        if !rests(backend, &mut loaded)? {
            return Ok(());
        }
        let old = lock(&self.candidates).push(id.clone(), loaded);
        if let Some((other, loaded)) = old.filter(|(other, _)| other != id) {
            self.give_way(backend, other, loaded);
        }
        Ok(())
    }

    /// The same after what is a candidate's last step in a loop as a rule: on a GPU its process ends, and its build is kept, for
    /// a context there costs who makes another.
    pub(crate) fn park_last(&self, backend: &B, id: &CandidateId, mut loaded: B::Loaded) -> Attempt<()> {
        if backend.free_memory().is_none() {
            return self.park(backend, id, loaded);
        }
        if rests(backend, &mut loaded)? {
            self.give_way(backend, id.clone(), loaded);
        }
        Ok(())
    }

    /// Keeps what was built again until it is certified; its ticket.
    pub(crate) fn check_in(&self, anew: Anew<B>) -> u64 {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let old = lock(&self.rebuilt).push(ticket, anew);
        drop(old);
        ticket
    }

    /// Gives what was built again, once.
    pub(crate) fn check_out(&self, ticket: u64) -> Option<Anew<B>> {
        lock(&self.rebuilt).pop(&ticket)
    }

    /// Reads or changes what is noted of a candidate.
    pub(crate) fn note<T>(&self, id: &CandidateId, change: impl FnOnce(&mut Notes) -> T) -> T {
        change(lock(&self.notes).get_or_insert_mut(id.clone(), Notes::default))
    }

    /// What a step of a task is given that asks for so many bytes: more where these were too few before.
    pub(crate) fn enough(&self, key: &Hash, wanted: u64) -> u64 {
        lock(&self.enough).get(key).copied().unwrap_or(0).max(wanted)
    }

    /// Does a step that needs room; and where it was short of memory and others were beside it, once more with more, and once more
    /// alone.
    pub(crate) fn with_room<T>(
        &self,
        backend: &B,
        mut lease: Lease<'_>,
        Room { key, wanted, held, missing }: Room<'_>,
        short: impl Fn(&Attempt<T>) -> bool,
        mut step: impl FnMut(&mut Lease<'_>) -> Attempt<T>,
    ) -> Attempt<T> {
        if wanted > 0 {
            self.evict_until(backend, key, wanted.saturating_add(missing));
        }
        let mut done = step(&mut lease);
        if short(&done) && wanted > 0 && !lease.is_alone() {
            let more = wanted.saturating_add(wanted / 4).saturating_add(MORE);
            lease.have(more.saturating_add(held));
            self.evict_until(backend, key, more.saturating_add(missing));
            tracing::info!(more, "a step was short of memory: tried once more, with more");
            done = step(&mut lease);
            if let Some((key, bytes)) = key.zip(lease.bytes()).filter(|_| done.is_ok() && !short(&done)) {
                lock(&self.enough).insert(key.clone(), more.min(bytes.saturating_sub(held)));
            }
        }
        if short(&done) && self.be_alone(backend, &mut lease, key) {
            drop(done);
            tracing::info!("a step was short of memory: tried once more, alone");
            return step(&mut lease);
        }
        done
    }

    /// Does work that needs no lease; and once more, with all that waits evicted, where it was short of memory.
    pub(crate) fn off_the_device<T>(&self, backend: &B, work: impl Fn() -> Attempt<T>) -> Attempt<T> {
        let first = work();
        if is_full(&first) && self.evict_all(backend, None) > 0 {
            return work();
        }
        first
    }

    /// Ends all that wait, but this task. Says how many were.
    fn evict_all(&self, backend: &B, key: Option<&Hash>) -> usize {
        if backend.free_memory().is_none() {
            return 0;
        }
        let all =
            |kind| std::iter::repeat_with(move || self.evict(backend, kind, (key, false))).take_while(|gone| *gone);
        let gone = ORDER.into_iter().flat_map(all).count();
        if gone > 0 {
            tracing::debug!(gone, free = backend.free_memory(), "evicted all");
        }
        gone
    }

    /// Evicts what waits until so many bytes of the device are free; all but this task. Says how many were.
    pub(crate) fn evict_until(&self, backend: &B, key: Option<&Hash>, wanted: u64) -> usize {
        if backend.free_memory().is_none() {
            return 0;
        }
        let gone = until(wanted, || backend.free_memory(), |kind| self.evict(backend, kind, (key, true)));
        if gone > 0 {
            tracing::debug!(gone, wanted, free = backend.free_memory(), "evicted");
        }
        gone
    }

    /// Evicts the oldest of a kind that nobody works with, and waits until its memory is free; whether there was one. Where
    /// tasks may stay, one that is open gives its memory back and keeps its processes.
    fn evict(&self, backend: &B, kind: Waiting, (key, stay): (Option<&Hash>, bool)) -> bool {
        let before = backend.free_memory();
        let candidate = |holds: bool| {
            let mut candidates = lock(&self.candidates);
            let oldest = candidates.iter().rev().find(|(_, one)| !holds || backend.holds_memory(one));
            let id = oldest.map(|(id, _)| id.clone());
            let gone = id.and_then(|id| candidates.pop_entry(&id));
            drop(candidates);
            gone.map(|(id, loaded)| self.give_way(backend, id, loaded)).is_some()
        };
        let gone = match kind {
            Waiting::Ran => candidate(true),
            Waiting::Built => candidate(false),
            Waiting::Open if stay => self.offload_oldest(backend, key),
            Waiting::Open | Waiting::Offloaded => {
                let mut tasks = lock(&self.tasks);
                let oldest = idle(backend, &tasks, key, kind);
                let gone = oldest.and_then(|(key, _)| tasks.pop(&key));
                drop(tasks);
                // Ending processes takes a while; nobody waits for the others meanwhile.
                gone.is_some()
            }
        };
        let start = Instant::now();
        while gone && backend.free_memory() <= before && start.elapsed() < FREED {
            std::thread::sleep(LOOK);
        }
        gone
    }

    /// Has the oldest open task that nobody works with give its memory back, or closes it; whether there was one.
    fn offload_oldest(&self, backend: &B, key: Option<&Hash>) -> bool {
        let tasks = lock(&self.tasks);
        let Some((oldest, task)) = idle(backend, &tasks, key, Waiting::Open) else { return false };
        // Nobody else has it: this waits for nobody.
        let mut session = lock(&task);
        drop(tasks);
        let stays = matches!(backend.offload(&mut session), Ok(true));
        drop(session);
        if !stays {
            self.close(&oldest);
        }
        true
    }
}

/// Whether a candidate can be kept; one that breaks out while it is asked to rest fails.
fn rests<B: Backend>(backend: &B, loaded: &mut B::Loaded) -> Attempt<bool> {
    match backend.rest(loaded) {
        Err(EvalError::Candidate(failure)) if matches!(*failure, Failure::Forbidden { .. }) => {
            Err(EvalError::Candidate(failure))
        }
        rests => Ok(matches!(rests, Ok(true))),
    }
}

/// The oldest task of a kind that nobody works with, but this one.
fn idle<B: Backend>(
    backend: &B,
    tasks: &LruCache<Hash, Shared<B>>,
    key: Option<&Hash>,
    kind: Waiting,
) -> Option<(Hash, Shared<B>)> {
    let is_of_kind = |task: &Shared<B>| backend.is_offloaded(&lock(task)) == (kind == Waiting::Offloaded);
    let is_idle = |task: &Shared<B>| Arc::strong_count(task) == 1 && is_of_kind(task);
    let oldest = tasks.iter().rev().find(|(other, task)| Some(*other) != key && is_idle(task));
    oldest.map(|(key, task)| (key.clone(), Arc::clone(task)))
}

/// Evicts one after the other until so many bytes are free, and says how many. `evict` takes the oldest of a kind and says
/// whether there was one. Where nobody knows what is free, all stay.
fn until(wanted: u64, free: impl Fn() -> Option<u64>, mut evict: impl FnMut(Waiting) -> bool) -> usize {
    let mut gone = 0;
    for kind in ORDER {
        while free().is_some_and(|free| free < wanted) && evict(kind) {
            gone += 1;
        }
    }
    gone
}

/// Whether so much of the device's memory is free, once what ended has given its back.
pub(crate) fn has_room<B: Backend>(backend: &B, wanted: u64) -> bool {
    let (start, free) = (Instant::now(), || backend.free_memory().is_some_and(|free| free >= wanted));
    while !free() && backend.free_memory().is_some() && start.elapsed() < ALL_FREED {
        std::thread::sleep(LOOK);
    }
    free()
}

/// Whether an attempt came to its end for want of memory, a candidate's or the trusted side's.
pub(crate) fn is_full<T>(attempt: &Attempt<T>) -> bool {
    match attempt {
        Ok(_) => false,
        Err(EvalError::Candidate(failure)) => matches!(**failure, Failure::Memory { .. }),
        Err(EvalError::Infra(fault)) => fault.is_of_memory(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::failure::Fault;
    use std::cell::RefCell;

    const GIB: u64 = 1 << 30;

    /// A device of 140 GiB, and what waits on it by kind and size, the oldest first; who is evicted, in order.
    fn evicted(wanted: u64, there: &[(Waiting, u64)]) -> Vec<(Waiting, u64)> {
        let (there, gone) = (RefCell::new(there.to_vec()), RefCell::new(vec![]));
        let free = || Some(140 * GIB - there.borrow().iter().map(|(_, bytes)| bytes * GIB).sum::<u64>());
        let count = until(wanted, free, |kind| {
            let at = there.borrow().iter().position(|(of, _)| *of == kind);
            gone.borrow_mut().extend(at.map(|at| there.borrow_mut().remove(at)));
            at.is_some()
        });
        assert_eq!(count, gone.borrow().len());
        gone.into_inner()
    }

    const WAITING: [(Waiting, u64); 7] = [
        (Waiting::Open, 30),
        (Waiting::Offloaded, 0),
        (Waiting::Built, 1),
        (Waiting::Ran, 20),
        (Waiting::Ran, 10),
        (Waiting::Open, 40),
        (Waiting::Built, 2),
    ];

    #[test]
    fn nobody_is_evicted_while_there_is_enough() {
        assert_eq!(evicted(37 * GIB, &WAITING), []);
    }

    #[test]
    fn candidates_that_have_run_are_evicted_first_then_tasks_and_no_more_than_it_takes() {
        assert_eq!(evicted(50 * GIB, &WAITING), [(Waiting::Ran, 20)]);
        assert_eq!(evicted(60 * GIB, &WAITING), [(Waiting::Ran, 20), (Waiting::Ran, 10)]);
        assert_eq!(evicted(97 * GIB, &WAITING), [WAITING[3], WAITING[4], WAITING[0]]);
        let in_order = [3, 4, 0, 5, 1, 2].map(|at| WAITING[at]);
        assert_eq!(evicted(138 * GIB, &WAITING), in_order);
    }

    #[test]
    fn where_nobody_knows_what_is_free_all_stay() {
        assert_eq!(until(GIB, || None, |_| panic!("nobody knows that it is short")), 0);
    }

    #[test]
    fn more_than_there_is_costs_everybody_and_comes_to_an_end() {
        assert_eq!(evicted(500 * GIB, &WAITING).len(), 7);
    }

    #[test]
    fn a_step_is_short_of_memory_where_a_candidate_or_the_trusted_side_says_so() {
        let candidates = Err::<(), _>(Failure::Memory { case: "a".into(), limit_mib: 1 }.into());
        let fault = |text: &str| Err::<(), _>(Fault::told(text.to_owned()).into());
        assert!(is_full(&candidates));
        assert!(is_full(&fault("broke at \"draw\": OutOfMemoryError: CUDA out of memory. Tried to allocate")));
        assert!(is_full(&fault("cuMemAlloc: out of memory (2)")));
        assert!(!is_full(&fault("the harness's trusted side broke")) && !is_full(&Ok(())));
    }
}
