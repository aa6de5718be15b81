//! Who has a part of a device's memory next?
//!
//! A task that was served a moment ago lies in memory, and its next step comes at once: a timing behind a check, a profile behind
//! a timing. It goes before tasks that would have to be opened first, for otherwise each step would evict the task of the one
//! before, and all would open theirs again and again. Its visit ends when nothing is asked for it for a moment, or when it has
//! lasted while others waited. Those who come from outside go in order, a smaller one before a larger one that does not fit yet,
//! until that one has waited for long.

use crate::hash::Hash;
use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::{Duration, Instant},
};

/// How long what may last.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// That a task that was served keeps its place with no step under way.
    grace: Duration,
    /// A visit, while others wait.
    visit: Duration,
    /// That one who waits is passed by smaller ones.
    patience: Duration,
}

const LIMITS: Limits =
    Limits { grace: Duration::from_millis(500), visit: Duration::from_mins(1), patience: Duration::from_secs(30) };

/// A device's memory, in units.
#[derive(Debug)]
pub(super) struct Memory {
    units: u32,
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Units that are lent.
    lent: u32,
    tickets: u64,
    /// In the order in which they came.
    waiting: Vec<Waiter>,
    visitors: HashMap<Hash, Visitor>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    units: u32,
    rank: Rank,
    task: Option<Hash>,
    since: Instant,
    waker: Option<Waker>,
}

/// A task that was served.
#[derive(Debug)]
struct Visitor {
    units: u32,
    /// Since when its visit lasts.
    since: Instant,
    /// How many of its steps are under way.
    under_way: u32,
    /// When the last one ended.
    rested: Instant,
}

/// Who goes before whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Works on the device already, and needs more.
    Inside,
    /// Was served a moment ago.
    Visits,
    /// Comes from outside.
    Comes,
}

/// A part of the memory, lent until this is dropped.
#[derive(Debug)]
pub(super) struct Part<'a> {
    memory: &'a Memory,
    units: u32,
    task: Option<Hash>,
}

impl Memory {
    /// So many units, all free.
    pub(super) fn new(units: u32) -> Self {
        Self { units, limits: LIMITS, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The units that nobody has.
    pub(super) fn free(&self) -> u32 {
        self.units - self.state().lent
    }

    /// So many units, for a step of this task.
    pub(super) async fn part(&self, units: u32, task: Option<&Hash>) -> Part<'_> {
        let rank = if self.state().visits(task, self.limits) { Rank::Visits } else { Rank::Comes };
        self.wait(units, task, rank).await
    }

    /// The same for who has just given back what it had.
    pub(super) async fn part_inside(&self, units: u32, task: Option<&Hash>) -> Part<'_> {
        self.wait(units, task, Rank::Inside).await
    }

    async fn wait(&self, units: u32, task: Option<&Hash>, rank: Rank) -> Part<'_> {
        let waits = Waits { memory: self, ticket: self.state().enter(units, task, rank) };
        // Asked again whenever a part comes back, and by who waits on a thread of its own now and then: a visit ends by itself.
        poll_fn(|context| self.state().go(waits.ticket, self, context.waker())).await;
        Part { memory: self, units, task: task.cloned() }
    }
}

impl State {
    fn visits(&self, task: Option<&Hash>, limits: Limits) -> bool {
        let visitor = task.and_then(|task| self.visitors.get(task));
        let may_stay = |since: Instant| since.elapsed() < limits.visit || self.waiting.is_empty();
        visitor.is_some_and(|visitor| visitor.is_there(limits) && may_stay(visitor.since))
    }

    fn enter(&mut self, units: u32, task: Option<&Hash>, rank: Rank) -> u64 {
        self.tickets += 1;
        let (ticket, task, since) = (self.tickets, task.cloned(), Instant::now());
        self.waiting.push(Waiter { ticket, units, rank, task, since, waker: None });
        ticket
    }

    /// Lends one who waits its part, if it is its turn.
    fn go(&mut self, ticket: u64, memory: &Memory, waker: &Waker) -> Poll<()> {
        let Some(at) = self.waiting.iter().position(|waiter| waiter.ticket == ticket) else { return Poll::Ready(()) };
        if !self.has_its_turn(at, memory) {
            self.waiting[at].waker = Some(waker.clone());
            return Poll::Pending;
        }
        let Waiter { units, rank, task, .. } = self.waiting.remove(at);
        self.lent += units;
        if let Some(task) = task {
            let now = Instant::now();
            let visitor = self.visitors.entry(task).or_insert(Visitor { units, since: now, under_way: 0, rested: now });
            visitor.units = units;
            visitor.under_way += 1;
            if rank == Rank::Comes {
                visitor.since = now;
            }
        }
        self.wake();
        Poll::Ready(())
    }

    fn has_its_turn(&self, at: usize, memory: &Memory) -> bool {
        let one = &self.waiting[at];
        // One that comes goes before later ones that come where it has room too, or has waited for long.
        let may_be_passed = |other: &Waiter| {
            other.rank == Rank::Comes
                && !self.has_room(other, memory)
                && other.since.elapsed() <= memory.limits.patience
        };
        let goes_before = |(earlier, other): (bool, &Waiter)| {
            other.rank < one.rank || earlier && other.rank == one.rank && !may_be_passed(other)
        };
        let others = self.waiting.iter().enumerate().filter(|(other, _)| *other != at);
        self.has_room(one, memory) && !others.map(|(other, waiter)| (other < at, waiter)).any(goes_before)
    }

    fn has_room(&self, one: &Waiter, memory: &Memory) -> bool {
        let kept = if one.rank == Rank::Comes { self.kept_for_others(one, memory.limits) } else { 0 };
        self.lent.saturating_add(kept).saturating_add(one.units) <= memory.units
    }

    /// What tasks have that rest for a moment.
    fn kept_for_others(&self, one: &Waiter, limits: Limits) -> u32 {
        let others =
            self.visitors.iter().filter(|(task, visitor)| Some(*task) != one.task.as_ref() && visitor.rests(limits));
        others.map(|(_, visitor)| visitor.units).fold(0, u32::saturating_add)
    }

    fn give_back(&mut self, units: u32, task: Option<&Hash>, limits: Limits) {
        self.lent -= units;
        if let Some(visitor) = task.and_then(|task| self.visitors.get_mut(task)) {
            visitor.under_way -= 1;
            visitor.rested = Instant::now();
        }
        self.visitors.retain(|_, visitor| visitor.is_there(limits));
        self.wake();
    }

    fn wake(&mut self) {
        self.waiting.iter_mut().filter_map(|waiter| waiter.waker.take()).for_each(Waker::wake);
    }
}

impl Visitor {
    /// Whether it rests, and its visit goes on.
    fn rests(&self, limits: Limits) -> bool {
        self.under_way == 0 && self.rested.elapsed() < limits.grace
    }

    fn is_there(&self, limits: Limits) -> bool {
        self.under_way > 0 || self.rests(limits)
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.memory.state().give_back(self.units, self.task.as_ref(), self.memory.limits);
    }
}

/// One who waits, until it has its part or waits no more.
struct Waits<'a> {
    memory: &'a Memory,
    ticket: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut state = self.memory.state();
        let before = state.waiting.len();
        state.waiting.retain(|waiter| waiter.ticket != self.ticket);
        if state.waiting.len() < before {
            state.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::wait_for, *};
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    fn memory(grace_ms: u64, visit_ms: u64, patience_ms: u64) -> Memory {
        let [grace, visit, patience] = [grace_ms, visit_ms, patience_ms].map(Duration::from_millis);
        Memory { limits: Limits { grace, visit, patience }, ..Memory::new(80) }
    }

    fn sleep(ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    /// Three tasks, of which one finds room at a time, take so many steps each one behind the other; how often a step was of
    /// another task than the one before.
    fn changes(memory: &Memory, steps: usize) -> usize {
        let served = Mutex::new(vec![]);
        std::thread::scope(|scope| {
            for number in 0..3 {
                let served = &served;
                scope.spawn(move || {
                    let task = Hash::of(&[number]);
                    for _ in 0..steps {
                        let part = wait_for(memory.part(60, Some(&task)));
                        served.lock().unwrap().push(number);
                        sleep(2);
                        drop(part);
                    }
                });
            }
        });
        assert_eq!(memory.free(), 80);
        let served = served.into_inner().unwrap();
        assert_eq!(served.len(), 3 * steps);
        served.windows(2).filter(|two| two[0] != two[1]).count()
    }

    #[test]
    fn a_task_that_was_served_a_moment_ago_goes_before_those_that_come_from_outside() {
        assert_eq!(changes(&memory(1_500, 60_000, 60_000), 5), 2, "each has all its steps in one visit");
        assert!(changes(&memory(0, 60_000, 60_000), 5) > 4, "without a moment's grace they take turns");
    }

    #[test]
    fn a_task_whose_other_step_is_under_way_does_not_rest() {
        let memory = memory(5_000, 60_000, 60_000);
        let task = Hash::of(b"one");
        let part = wait_for(memory.part(30, Some(&task)));
        drop(wait_for(memory.part(30, Some(&task))));
        assert!(memory.state().visits(Some(&task), memory.limits));
        let start = Instant::now();
        drop(wait_for(memory.part(50, None)));
        assert!(start.elapsed() < Duration::from_secs(4), "what is lent to it was counted twice");
        drop(part);
        assert!(memory.state().visits(Some(&task), memory.limits), "its visit goes on");
    }

    #[test]
    fn a_visit_ends_while_others_wait_and_lasts_where_nobody_does() {
        let memory = memory(5_000, 50, 60_000);
        let (one, other) = (Hash::of(b"one"), Hash::of(b"other"));
        let part = wait_for(memory.part(60, Some(&one)));
        sleep(60);
        drop(part);
        assert!(memory.state().visits(Some(&one), memory.limits), "nobody waits");
        let part = wait_for(memory.part(60, Some(&one)));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(wait_for(memory.part(60, Some(&other)))));
            while memory.state().waiting.is_empty() {
                sleep(1);
            }
            drop(part);
            assert!(!memory.state().visits(Some(&one), memory.limits), "another waits");
            drop(wait_for(memory.part(60, Some(&one))));
            // Its place is kept for the grace all the same, so the other comes behind it, and in the end.
            memory.state().visitors.clear();
            waits.join().unwrap();
        });
    }

    #[test]
    fn whoever_rests_longer_than_its_grace_makes_room_and_a_smaller_one_passes_a_larger_for_a_while() {
        let patience = Duration::from_secs(2);
        let memory = memory(100, 60_000, 2_000);
        let [one, large, small] = [b"a", b"b", b"c"].map(|name| Hash::of(name));
        drop(wait_for(memory.part(60, Some(&one))));
        let start = Instant::now();
        drop(wait_for(memory.part(70, Some(&large))));
        assert!(start.elapsed() >= Duration::from_millis(90), "the other rested for {:?}", start.elapsed());
        sleep(110);
        let (held, passed) = (wait_for(memory.part(30, None)), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(wait_for(memory.part(70, Some(&large)))));
            while memory.state().waiting.is_empty() {
                sleep(1);
            }
            let came = Instant::now();
            let stop = || passed.load(SeqCst) > 0 && came.elapsed() > patience + Duration::from_millis(50);
            while !stop() {
                let mut smaller = std::pin::pin!(memory.part(20, None));
                let mut context = std::task::Context::from_waker(Waker::noop());
                let waited = came.elapsed();
                if smaller.as_mut().poll(&mut context).is_ready() {
                    passed.fetch_add(1, SeqCst);
                    assert!(waited <= patience, "it passed by one that had waited for long");
                }
                sleep(5);
            }
            drop((held, small));
            waits.join().unwrap();
        });
        assert_eq!(memory.free(), 80);
    }
}
