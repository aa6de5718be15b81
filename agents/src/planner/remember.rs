//! What a role is told of earlier rounds, where the policy lets it remember.

use super::{BrokeOff, Loop};
use crate::coder::Assignment;
use crate::event::Step;
use crate::policy::Memory;
use crate::trajectory::Round;
use kernelbench::{CandidateId, Evaluation};
use prompts::{Attempted, Verdict};

impl Loop {
    /// The first candidate, or another one in another way than the fastest so far.
    pub(super) fn beginning(&self) -> Result<Assignment, BrokeOff> {
        let best = self.book.so_far().best().filter(|_| self.policy.memory == Memory::Tried);
        Ok(match best {
            Some(best) => {
                Assignment::SeedAnew { fastest: self.book.candidate(&best.candidate)?, speedup: best.speedup.ratio }
            }
            None => match self.book.so_far().next_approach(self.opened(|round| round.number)) {
                Some((approaches, at)) => Assignment::SeedPlanned { approaches: approaches.clone(), at },
                None => Assignment::Seed,
            },
        })
    }

    /// The changes of a candidate that were tried, and those of earlier ones that were weighed and taken back, in order.
    pub(super) fn tried(&self, base: &CandidateId) -> Vec<Attempted> {
        if self.policy.memory != Memory::Tried {
            return vec![];
        }
        self.book.so_far().finished().filter_map(|round| attempted(round, base)).collect()
    }
}

/// What a round changed, and what came of it, where that is worth knowing when this candidate is looked at.
fn attempted(round: &Round, base: &CandidateId) -> Option<Attempted> {
    let Step::Optimize { base: from } = &round.step else { return None };
    let earlier = from != base;
    if earlier && round.weighed.as_ref().is_none_or(|weighed| weighed.accepted) {
        return None;
    }
    let Some(Verdict::Optimization(change)) = &round.verdict else { return None };
    let came = match &round.evaluation {
        Some(Evaluation::Passed(timed)) => format!("correct, {}", timed.speedup),
        Some(Evaluation::Counted(counts)) => format!("correct, {counts}"),
        Some(Evaluation::Compiled(code)) => code.to_string(),
        Some(Evaluation::Failed(failure)) => failure.to_string(),
        None => round.not_timed.clone().unwrap_or_else(|| "no readable reply".to_owned()),
    };
    Some(Attempted { change: change.clone(), came, earlier })
}
