//! Who examines the configurations of a search: one at a time on each of its devices.

use super::BrokeOff;
use super::talk::{asked, undisturbed};
use crate::lease::Worked;
use crate::tester::Examine;
use kameo::actor::ReplyRecipient;
use kernelbench::{Evaluation, Fault};
use tokio::task::{JoinError, JoinSet};

type Searcher = ReplyRecipient<Examine, Worked<Evaluation>, Fault>;

/// What came of one that was examined; in words why it cannot be timed now.
pub(super) type Examined = Result<Result<Worked<Evaluation>, String>, BrokeOff>;

/// The devices, and what is under way on them.
pub(super) struct Hands {
    free: Vec<Searcher>,
    under_way: JoinSet<(Searcher, Examine, Examined)>,
}

impl Hands {
    /// These, of which none is busy. The first is asked first.
    pub(super) fn of(searchers: &[Searcher]) -> Self {
        Self { free: searchers.iter().rev().cloned().collect(), under_way: JoinSet::new() }
    }

    /// Whether one is not busy.
    pub(super) fn is_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Has one that is not busy examine this.
    pub(super) fn begin(&mut self, ask: Examine) {
        if let Some(searcher) = self.free.pop() {
            self.under_way.spawn(async move {
                let examined = undisturbed(|| asked(&searcher, ask.clone())).await;
                (searcher, ask, examined)
            });
        }
    }

    /// What was asked of the next that is done, and what came of it; none where nothing is under way.
    pub(super) async fn next(&mut self) -> Option<(Examine, Examined)> {
        let done = self.under_way.join_next().await?;
        let (searcher, ask, examined) =
            done.map_err(JoinError::into_panic).unwrap_or_else(|p| std::panic::resume_unwind(p));
        self.free.push(searcher);
        Some((ask, examined))
    }
}
