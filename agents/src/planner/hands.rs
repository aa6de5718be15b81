//! Who examines the configurations of a search: one at a time on each of its devices.
//!
//! A further device that others use, or that fails, is given up for the rest of the run, and what it had is examined elsewhere;
//! the first device alone decides that nothing can be timed here.

use super::BrokeOff;
use super::talk::{asked, undisturbed};
use crate::crew::Searcher;
use crate::lease::Worked;
use crate::tester::Examine;
use kernelbench::Evaluation;
use std::{collections::VecDeque, panic::resume_unwind};
use tokio::task::{JoinError, JoinSet};

/// What came of one that was examined; in words why it cannot be timed now.
pub(super) type Examined = Result<Result<Worked<Evaluation>, String>, BrokeOff>;

/// The devices, and what is under way on them.
pub(super) struct Hands {
    /// Those that are not busy, and whether each is the first of all.
    free: Vec<(bool, Searcher)>,
    under_way: JoinSet<(bool, Searcher, Examine, Examined)>,
    /// What is to be examined, in order; before it what a device had that was given up.
    waiting: VecDeque<Examine>,
    again: VecDeque<Examine>,
    /// The names of those that were given up.
    pub(super) given_up: Vec<String>,
}

impl Hands {
    /// These, of which none is busy. The first is asked first.
    pub(super) fn of(searchers: &[Searcher]) -> Self {
        let free = searchers.iter().enumerate().map(|(at, searcher)| (at == 0, searcher.clone())).rev().collect();
        let (waiting, again) = (VecDeque::new(), VecDeque::new());
        Self { free, under_way: JoinSet::new(), waiting, again, given_up: vec![] }
    }

    /// Has these examined, in order: whoever asks for the next that is done has those begin who are not busy.
    pub(super) fn begin(&mut self, asked: impl IntoIterator<Item = Examine>) {
        self.waiting.extend(asked);
    }

    /// Begins nothing more: what was begun comes to its end.
    pub(super) fn stop(&mut self) {
        self.waiting.clear();
    }

    fn fill(&mut self) {
        while !self.free.is_empty() {
            let Some(ask) = self.again.pop_front().or_else(|| self.waiting.pop_front()) else { return };
            let Some((first, searcher)) = self.free.pop() else { return };
            self.under_way.spawn(async move {
                let examined = undisturbed(|| asked(&searcher.examine, ask.clone())).await;
                (first, searcher, ask, examined)
            });
        }
    }

    /// What was asked of the next that is done, and what came of it; none where nothing is under way.
    pub(super) async fn next(&mut self) -> Option<(Examine, Examined)> {
        loop {
            self.fill();
            let done = self.under_way.join_next().await?;
            let done = done.map_err(JoinError::into_panic).unwrap_or_else(|panic| resume_unwind(panic));
            let (first, searcher, ask, examined) = done;
            let why = match &examined {
                Ok(Err(why)) => why.clone(),
                Err(why @ (BrokeOff::Fault(_) | BrokeOff::Gone(_))) => why.to_string(),
                _ => String::new(),
            };
            if !first && !why.is_empty() {
                tracing::warn!(device = searcher.device, %why, "a device of the search is given up: the others go on without it");
                self.again.push_back(ask);
                self.given_up.push(searcher.device);
                continue;
            }
            // Nothing more begins before it was looked at: it may be the end of the search.
            self.free.push((first, searcher));
            return Some((ask, examined));
        }
    }
}
