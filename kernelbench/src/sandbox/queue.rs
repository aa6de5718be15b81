//! A queue in which so many have their turn at once, first come, first served.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// Who has a turn, and behind them who waits for one.
pub(super) struct Queue {
    at_once: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    tickets: u64,
    /// In the order in which they came.
    all: VecDeque<u64>,
}

impl Queue {
    pub(super) fn new(at_once: usize) -> Self {
        let state = State { tickets: 0, all: VecDeque::new() };
        Self { at_once, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// A turn, once it is one's own.
    pub(super) fn turn(&self) -> InTurn<'_> {
        let mut state = self.lock();
        let ticket = state.tickets;
        state.tickets += 1;
        state.all.push_back(ticket);
        let waits = |state: &mut State| !state.all.iter().take(self.at_once).any(|first| *first == ticket);
        drop(self.changed.wait_while(state, waits));
        InTurn { queue: self, ticket }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn, until this is dropped.
pub(crate) struct InTurn<'a> {
    queue: &'a Queue,
    ticket: u64,
}

impl Drop for InTurn<'_> {
    fn drop(&mut self) {
        self.queue.lock().all.retain(|ticket| *ticket != self.ticket);
        self.queue.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, time::Duration};

    #[test]
    fn so_many_have_their_turn_at_once_and_the_others_in_the_order_in_which_they_came() {
        let (queue, served) = (Queue::new(2), Mutex::new(vec![]));
        let (first, second) = (queue.turn(), queue.turn());
        thread::scope(|scope| {
            for number in 0..4 {
                let waiting = queue.lock().all.len();
                let (queue, served) = (&queue, &served);
                scope.spawn(move || {
                    let turn = queue.turn();
                    served.lock().unwrap().push(number);
                    thread::sleep(Duration::from_millis(20));
                    drop(turn);
                });
                while queue.lock().all.len() == waiting {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            thread::sleep(Duration::from_millis(30));
            assert!(served.lock().unwrap().is_empty(), "both turns are taken");
            drop(first);
        });
        assert_eq!(served.into_inner().unwrap(), [0, 1, 2, 3], "one turn after the other");
        drop(second);
        assert!(queue.lock().all.is_empty());
    }
}
