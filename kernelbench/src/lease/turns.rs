//! Who uses a device next, beside others or alone?
//!
//! The device falls silent for whoever times, and each time it does, what is shared waits for its slowest. So turns come in two
//! phases: those who share it come in, as many as may, until none of them waits, or until it is full and as many wait to be alone
//! as may share it; then those have it one after the other. Who waits to be alone is passed by twice as many at most, and as many
//! may be alone in a row while others wait to share it.

use crate::stage::Hold;
use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

/// How often the number of those who may share it comes in while somebody waits to be alone, or is alone while somebody waits to
/// share it.
const ROUNDS: u32 = 2;
/// The fewest who wait to be alone for whom those who share it are kept out before they have come to an end.
const WORTH_IT: usize = 2;

/// The turns of a device.
#[derive(Debug)]
pub(super) struct Turns {
    /// How many may share it at most.
    beside: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many share it.
    sharing: u32,
    is_alone: bool,
    phase: Phase,
    /// How many came in in this phase while somebody of the other kind waited.
    came_in: u32,
    /// Each in the order in which they came.
    to_share: VecDeque<Waiter>,
    to_be_alone: VecDeque<Waiter>,
    tickets: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Shared,
    Alone,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    waker: Option<Waker>,
}

/// The device, until this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    alone: bool,
}

impl Turns {
    /// Those of a device that so many may share, which nobody uses.
    pub(super) fn new(beside: u32) -> Self {
        Self { beside, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody waits to be alone.
    pub(super) fn is_asked_for(&self) -> bool {
        !self.state().to_be_alone.is_empty()
    }

    /// Waits for a turn, alone or beside others.
    pub(super) async fn turn(&self, alone: bool) -> Turn<'_> {
        let waits = Waits { turns: self, ticket: self.state().enter(alone, self.beside), alone };
        poll_fn(|context| self.state().is_in(&waits, context.waker())).await;
        std::mem::forget(waits);
        Turn { turns: self, alone }
    }

    /// How many more could share it now.
    #[cfg(test)]
    pub(super) fn free(&self) -> u32 {
        let state = self.state();
        if state.is_alone { 0 } else { self.beside - state.sharing }
    }
}

impl State {
    fn queue(&mut self, alone: bool) -> &mut VecDeque<Waiter> {
        if alone { &mut self.to_be_alone } else { &mut self.to_share }
    }

    fn enter(&mut self, alone: bool, beside: u32) -> u64 {
        self.tickets += 1;
        let ticket = self.tickets;
        self.queue(alone).push_back(Waiter { ticket, waker: None });
        self.let_in(beside);
        ticket
    }

    fn is_in(&mut self, waits: &Waits<'_>, waker: &Waker) -> Poll<()> {
        let waiting = self.queue(waits.alone).iter_mut().find(|waiter| waiter.ticket == waits.ticket);
        waiting.map_or(Poll::Ready(()), |waiter| {
            waiter.waker = Some(waker.clone());
            Poll::Pending
        })
    }

    /// Lets in all whose turn it is.
    fn let_in(&mut self, beside: u32) {
        while let Some(alone) = self.next(beside) {
            let others_wait = !self.queue(!alone).is_empty();
            self.came_in += u32::from(others_wait);
            if alone {
                self.is_alone = true;
            } else {
                self.sharing += 1;
            }
            let waiter = self.queue(alone).pop_front();
            waiter.and_then(|waiter| waiter.waker).into_iter().for_each(Waker::wake);
        }
    }

    /// Whether the next to come in is alone; none where nobody may come in now.
    fn next(&mut self, beside: u32) -> Option<bool> {
        if self.is_alone {
            return None;
        }
        let enough = self.came_in >= ROUNDS * beside;
        let (sharers, asking) = (self.to_share.len(), self.to_be_alone.len());
        let other = match self.phase {
            Phase::Shared if asking == 0 => None,
            Phase::Shared => {
                let nobody_comes = sharers == 0 && (asking >= WORTH_IT || self.sharing == 0);
                let is_full = self.sharing == beside || self.came_in >= beside;
                (nobody_comes || is_full && asking >= beside as usize || enough).then_some(Phase::Alone)
            }
            Phase::Alone => (asking == 0 || enough && sharers > 0).then_some(Phase::Shared),
        };
        if let Some(phase) = other {
            (self.phase, self.came_in) = (phase, 0);
        }
        match self.phase {
            Phase::Shared => (sharers > 0 && self.sharing < beside).then_some(false),
            Phase::Alone => (self.sharing == 0).then_some(true),
        }
    }

    fn leave(&mut self, alone: bool, beside: u32) {
        if alone {
            self.is_alone = false;
        } else {
            self.sharing -= 1;
        }
        self.let_in(beside);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.state().leave(self.alone, self.turns.beside);
    }
}

impl Turn<'_> {
    /// Whether nobody else uses the device.
    pub(super) const fn is_alone(&self) -> bool {
        self.alone
    }

    /// How it holds the device.
    pub(super) const fn hold(&self) -> Hold {
        if self.alone { Hold::Exclusive } else { Hold::Shared }
    }
}

/// One who waits, until it has its turn or waits no more.
struct Waits<'a> {
    turns: &'a Turns,
    ticket: u64,
    alone: bool,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let (mut state, beside) = (self.turns.state(), self.turns.beside);
        let queue = state.queue(self.alone);
        let before = queue.len();
        queue.retain(|waiter| waiter.ticket != self.ticket);
        if queue.len() == before {
            // Its turn had come already.
            state.leave(self.alone, beside);
        } else {
            state.let_in(beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BESIDE: u32 = 4;

    /// A device that four may share, and who came to it.
    #[derive(Default)]
    struct Device(State);

    impl Device {
        fn come(&mut self, alone: bool, count: usize) {
            for _ in 0..count {
                self.0.enter(alone, BESIDE);
            }
        }

        fn leave(&mut self, alone: bool) {
            self.0.leave(alone, BESIDE);
        }

        /// How many share it, whether one is alone, and how many wait to share it and to be alone.
        fn stands(&self) -> (u32, bool, usize, usize) {
            let Device(State { sharing, is_alone, to_share, to_be_alone, .. }) = self;
            (*sharing, *is_alone, to_share.len(), to_be_alone.len())
        }
    }

    #[test]
    fn where_nobody_waits_whoever_comes_has_it_at_once() {
        let mut device = Device::default();
        device.come(true, 1);
        assert_eq!(device.stands(), (0, true, 0, 0));
        device.leave(true);
        device.come(false, 5);
        assert_eq!(device.stands(), (4, false, 1, 0));
    }

    #[test]
    fn one_who_wants_to_be_alone_waits_while_others_come_to_share_it_and_two_keep_them_out() {
        let mut device = Device::default();
        device.come(false, 1);
        device.come(true, 1);
        device.come(false, 1);
        assert_eq!(device.stands(), (2, false, 0, 1));
        device.come(true, 1);
        device.come(false, 1);
        assert_eq!(device.stands(), (2, false, 1, 2));
        device.leave(false);
        device.leave(false);
        assert_eq!(device.stands(), (0, true, 1, 1));
        device.leave(true);
        device.leave(true);
        assert_eq!(device.stands(), (1, false, 0, 0));
    }

    #[test]
    fn as_many_as_may_share_it_have_it_alone_before_those_who_wait_to_share_it() {
        let mut device = Device::default();
        device.come(false, 6);
        device.come(true, 3);
        device.leave(false);
        assert_eq!(device.stands(), (4, false, 1, 3));
        device.come(true, 1);
        device.leave(false);
        assert_eq!(device.stands(), (3, false, 1, 4));
    }

    #[test]
    fn where_both_kinds_always_wait_as_many_share_it_as_may_and_eight_are_alone_between() {
        let (mut device, mut phases) = (Device::default(), vec![]);
        device.come(false, 20);
        device.come(true, 40);
        for _ in 0..40 {
            let (sharing, is_alone, ..) = device.stands();
            phases.push(if is_alone { 0 } else { sharing });
            device.leave(is_alone);
            device.come(is_alone, 1);
        }
        let rows: Vec<(u32, usize)> =
            phases.chunk_by(|a, b| (*a == 0) == (*b == 0)).map(|row| (row[0], row.len())).collect();
        assert_eq!(rows, [(4, 4), (0, 8), (4, 4), (0, 8), (4, 4), (0, 8), (4, 4)]);
    }

    #[test]
    fn whoever_waits_is_passed_by_eight_at_most_of_the_other_kind() {
        let mut device = Device::default();
        device.come(false, 1);
        device.come(true, 1);
        for _ in 0..8 {
            device.come(false, 1);
            assert_eq!(device.stands(), (2, false, 0, 1));
            device.leave(false);
        }
        device.come(false, 1);
        device.leave(false);
        // The first of eight.
        assert_eq!(device.stands(), (0, true, 1, 0));
        for _ in 1..8 {
            device.come(true, 1);
            device.leave(true);
            assert_eq!(device.stands(), (0, true, 1, 0));
        }
        device.come(true, 1);
        device.leave(true);
        assert_eq!(device.stands(), (1, false, 0, 1));
    }

    #[tokio::test]
    async fn who_waits_no_more_holds_up_nobody_and_gives_back_what_it_was_given_meanwhile() {
        let turns = Turns::new(BESIDE);
        let now = |turn: &mut std::pin::Pin<Box<dyn Future<Output = Turn<'_>> + '_>>| {
            let mut context = std::task::Context::from_waker(Waker::noop());
            turn.as_mut().poll(&mut context).is_ready()
        };
        let sharing = turns.turn(false).await;
        let (mut one, mut two) = (Box::pin(turns.turn(true)) as _, Box::pin(turns.turn(true)) as _);
        assert!(!now(&mut one) && !now(&mut two) && turns.is_asked_for());
        drop(sharing);
        // It was let in, and nobody looked.
        drop(one);
        assert!(now(&mut two));
        drop(two);
        assert_eq!((turns.free(), turns.is_asked_for()), (BESIDE, false));
    }
}
