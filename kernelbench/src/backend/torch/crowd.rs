//! Who gives way where the device's memory is short?
//!
//! What waits between two steps holds memory: candidates that have run, problems that are open, and least of all candidates
//! that were only built. They give way in this order, the oldest of each kind first, until there is enough. Where a step
//! finds no memory all the same, everything else of ours gives way, and it is tried once more: what others of ours held is
//! no candidate's failure.

use super::{Inner, Session, lock, shelf::Shelf};
use crate::{
    hash::Hash,
    machine::gpu::{self, Gpu},
    result::{
        error::{Attempt, Trouble},
        failure::Failure,
    },
};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// What waits, in the order in which it gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// A candidate that has run.
    Ran,
    /// A problem that is open.
    Open,
    /// A candidate that was built, and made no model yet.
    Built,
}

const ORDER: [Waiting; 3] = [Waiting::Ran, Waiting::Open, Waiting::Built];
/// How long it may take until the memory of a process that has ended is free.
const FREED: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);
/// What a process has on a GPU before it holds a tensor, in bytes, at most.
const CONTEXT: u64 = 1 << 30;

/// Problems that are open.
pub(super) type Sessions = Shelf<Hash, Arc<Mutex<Session>>>;

/// Has one after the other give way until so many bytes are free, and says how many did. `ousted` has the oldest of a kind
/// give way and says whether there was one. Where nobody knows what is free, all stay, unless everything is wanted.
fn until(wanted: u64, mut free: impl FnMut() -> Option<u64>, mut ousted: impl FnMut(Waiting) -> bool) -> usize {
    let mut gone = 0;
    for kind in ORDER {
        while (wanted == u64::MAX || free().is_some_and(|free| free < wanted)) && ousted(kind) {
            gone += 1;
        }
    }
    gone
}

/// Whether an attempt came to its end for want of memory, a candidate's or the trusted side's.
pub(super) fn is_full<T>(attempt: &Attempt<T>) -> bool {
    match attempt {
        Ok(_) => false,
        Err(Trouble::Failure(failure)) => matches!(**failure, Failure::Memory { .. }),
        Err(Trouble::Fault(fault)) => says_so(&fault.0),
    }
}

/// Whether torch or the driver says there that memory was short.
pub(super) fn says_so(text: &str) -> bool {
    text.contains("out of memory")
}

/// What one more call of a problem's model takes on the device, as far as those before it tell: the judge's part, the
/// reference's, and a candidate's, which may hold a little more.
pub(super) fn of_a_step(judge: u64, reference: u64) -> u64 {
    judge + 2 * reference + reference / 4 + CONTEXT
}

impl Inner {
    fn gpu(&self) -> Option<Gpu> {
        gpu::ordinal(&self.options.device).and_then(|ordinal| Gpu::at(ordinal).ok())
    }

    /// What a problem is given that was not open before, in bytes: half of what was free when this workshop began.
    pub(super) fn of_a_problem(&self) -> u64 {
        self.free_at_first.unwrap_or(0) / 2
    }

    /// Has those that wait give way until so many bytes of the device are free; all but this problem. Says how many did.
    pub(super) fn make_room(&self, sessions: &mut Sessions, mine: Option<&Hash>, wanted: u64) -> usize {
        let Some(gpu) = self.gpu() else { return 0 };
        let gone = until(wanted, || gpu.memory_free(), |kind| self.ousted(kind, sessions, mine, || gpu.memory_free()));
        if gone > 0 {
            tracing::debug!(gone, wanted, free = gpu.memory_free(), "gave way");
        }
        gone
    }

    /// Does a step that needs so many bytes; and once more, alone, where it was short of memory and something of ours could
    /// give way.
    pub(super) fn with_room<T>(
        &self,
        mine: Option<&Hash>,
        wanted: u64,
        short: impl Fn(&Attempt<T>) -> bool,
        mut step: impl FnMut() -> Attempt<T>,
    ) -> Attempt<T> {
        if wanted > 0 {
            self.make_room(&mut lock(&self.sessions), mine, wanted);
        }
        let first = step();
        if short(&first) && self.make_room(&mut lock(&self.sessions), mine, u64::MAX) > 0 {
            tracing::info!("a step was short of memory: tried once more, alone");
            return step();
        }
        first
    }

    /// Has the oldest of a kind give way that nobody works with, and waits until its memory is free; whether there was one.
    fn ousted(
        &self,
        kind: Waiting,
        sessions: &mut Sessions,
        mine: Option<&Hash>,
        free: impl Fn() -> Option<u64>,
    ) -> bool {
        let before = free();
        let gone = match kind {
            Waiting::Ran => self.built().take_oldest_that(|_, runner| runner.has_run).map(drop),
            Waiting::Built => self.built().take_oldest_that(|_, _| true).map(drop),
            Waiting::Open => {
                sessions.take_oldest_that(|key, session| Some(key) != mine && Arc::strong_count(session) == 1).map(drop)
            }
        };
        let start = Instant::now();
        while gone.is_some() && free() <= before && start.elapsed() < FREED {
            std::thread::sleep(LOOK);
        }
        gone.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const GIB: u64 = 1 << 30;

    /// A device of 140 GiB, and what waits on it by kind and size, the oldest first; who gives way, in order.
    fn gives_way(wanted: u64, there: &[(Waiting, u64)]) -> Vec<(Waiting, u64)> {
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

    const CROWD: [(Waiting, u64); 6] = [
        (Waiting::Open, 30),
        (Waiting::Built, 1),
        (Waiting::Ran, 20),
        (Waiting::Ran, 10),
        (Waiting::Open, 40),
        (Waiting::Built, 2),
    ];

    #[test]
    fn nobody_gives_way_while_there_is_enough() {
        assert_eq!(gives_way(37 * GIB, &CROWD), []);
    }

    #[test]
    fn candidates_that_have_run_give_way_first_then_problems_and_no_more_than_it_takes() {
        assert_eq!(gives_way(50 * GIB, &CROWD), [(Waiting::Ran, 20)]);
        assert_eq!(gives_way(60 * GIB, &CROWD), [(Waiting::Ran, 20), (Waiting::Ran, 10)]);
        assert_eq!(gives_way(97 * GIB, &CROWD), [CROWD[2], CROWD[3], CROWD[0]]);
        assert_eq!(gives_way(138 * GIB, &CROWD), [CROWD[2], CROWD[3], CROWD[0], CROWD[4], CROWD[1]]);
    }

    #[test]
    fn to_be_alone_everybody_gives_way_whatever_is_free_and_whether_or_not_that_is_known() {
        assert_eq!(gives_way(u64::MAX, &CROWD).len(), 6);
        let mut left = 2;
        let mut ousted = |_| {
            left -= 1;
            left >= 0
        };
        assert_eq!(until(u64::MAX, || None, &mut ousted), 2);
        assert_eq!(until(GIB, || None, |_| panic!("nobody knows that it is short")), 0);
    }

    #[test]
    fn more_than_there_is_costs_everybody_and_comes_to_an_end() {
        assert_eq!(gives_way(500 * GIB, &CROWD).len(), 6);
    }

    #[test]
    fn a_step_is_short_of_memory_where_a_candidate_or_the_trusted_side_says_so() {
        let candidates = Err::<(), _>(Failure::Memory { case: "a".into(), limit_mib: 1 }.into());
        let fault = |text: &str| Err::<(), _>(crate::result::failure::Fault(text.to_owned()).into());
        assert!(is_full(&candidates));
        assert!(is_full(&fault("broke at \"draw\": OutOfMemoryError: CUDA out of memory. Tried to allocate")));
        assert!(is_full(&fault("cuMemAlloc: out of memory (2)")));
        assert!(!is_full(&fault("the harness's trusted side broke")) && !is_full(&Ok(())));
    }
}
