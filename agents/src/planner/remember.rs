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
            None => Assignment::Seed,
        })
    }

    /// The changes of a candidate that were tried, in order.
    pub(super) fn tried(&self, base: &CandidateId) -> Vec<Attempted> {
        if self.policy.memory != Memory::Tried {
            return vec![];
        }
        self.book.so_far().finished().filter(|round| of(round, base)).filter_map(attempted).collect()
    }
}

fn of(round: &Round, base: &CandidateId) -> bool {
    matches!(&round.step, Step::Optimize { base: from } if from == base)
}

/// What a round changed, and what came of it.
fn attempted(round: &Round) -> Option<Attempted> {
    let Some(Verdict::Optimization(change)) = &round.verdict else { return None };
    let came = match &round.evaluation {
        Some(Evaluation::Passed(timed)) => format!("correct, {}", timed.speedup),
        Some(Evaluation::Failed(failure)) => failure.to_string(),
        None => round.not_timed.clone().unwrap_or_else(|| "no readable reply".to_owned()),
    };
    Some(Attempted { change: change.clone(), came })
}
