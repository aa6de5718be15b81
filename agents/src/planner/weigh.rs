//! Weighing a candidate that passed: its counters, in the same round and after its times, and whether it becomes the head.

use super::talk::asked;
use super::{BrokeOff, Loop};
use crate::event::Event;
use crate::head::{self, Shown, Weighed};
use crate::lease::Work;
use crate::policy::Advance;
use crate::profiler::TakeProfile;
use kernelbench::CandidateId;
use metrics::{
    Profile,
    feature::{Counters, prove},
};

impl Loop {
    /// Weighs the last round's candidate where the policy has it weighed and that was not done yet.
    pub(super) async fn weigh_if_due(&mut self) -> Result<(), BrokeOff> {
        if self.policy.advance != Advance::IfFired {
            return Ok(());
        }
        let Some(round) = head::due(self.book.so_far()) else { return Ok(()) };
        let Some(candidate) = round.candidate.clone() else { return Ok(()) };
        if round.counters.is_none() {
            self.count(&candidate).await?;
        }
        let weighed = self.weighed(&candidate);
        self.note(Event::Weighed(weighed))
    }

    /// Reads the counters of a candidate.
    async fn count(&mut self, id: &CandidateId) -> Result<(), BrokeOff> {
        let (task, candidate, suite) = (self.task.clone(), self.book.candidate(id)?, self.suite());
        let worked = asked(&self.crew.profiler, TakeProfile { task, candidate, suite }).await?;
        let profile = self.note_spent(Work::Profile, worked)?;
        self.note(Event::Profiled { candidate: id.clone(), profile })
    }

    fn weighed(&self, candidate: &CandidateId) -> Weighed {
        let so_far = self.book.so_far();
        let head = head::head(so_far).map(|head| head.candidate.clone());
        let over_head = head::over_head(so_far, candidate);
        let shown = head.map_or(vec![], |head| self.shown(candidate, &head));
        let fired = shown.first().map(|shown| shown.proof.fired);
        let (accepted, why) = head::decide(over_head.as_ref(), fired, self.policy.slower.unwrap_or_default());
        let left = so_far.extended_to.unwrap_or(self.policy.rounds).saturating_sub(so_far.spent());
        Weighed { candidate: candidate.clone(), over_head, shown, accepted, why: why.to_owned(), left }
    }

    /// What the counters say of each feature that a candidate was to bring in.
    fn shown(&self, candidate: &CandidateId, head: &CandidateId) -> Vec<Shown> {
        let features = self.crew.prompts.features();
        let Some(column) = features.of_arch(&self.crew.machine.arch) else { return vec![] };
        let counters = |id| self.counters(id).as_ref().map(Counters::of).unwrap_or_default();
        let (before, after) = (counters(head), counters(candidate));
        let show = |feature: String| {
            let cell = column.cell(&feature).ok()?;
            let proof = prove(&cell.signs, &before, &after);
            Some(Shown { feature, proof })
        };
        self.book.so_far().features_of(candidate).into_iter().filter_map(show).collect()
    }

    /// What was read of a candidate when it was weighed.
    pub(super) fn counters(&self, candidate: &CandidateId) -> Option<Profile> {
        self.book.so_far().counters(candidate).cloned()
    }
}
