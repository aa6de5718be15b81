//! What the Coder looks up before it writes: what there is, and what it is shown (Hawkeye, Fig. 47).

use super::{BrokeOff, Loop, round::in_a_line};
use crate::event::{Event, LookedUp};
use crate::llm::AFTER_LOOKUPS;
use crate::policy::Guidance;
use crate::trajectory::Round;
use prompts::{Looking, Lookup, Shelf, of_round};

/// Which of a round's calls to the Coder this is: empty where nothing was looked up yet.
pub(super) fn part(looking: Option<&Looking>) -> String {
    match looking.map_or(0, |looking| looking.seen.len()) {
        0 => String::new(),
        seen => format!("{AFTER_LOOKUPS}{seen}"),
    }
}

impl Loop {
    /// What the Coder may look up for the candidate of the open round, and what it has; `None` where the policy has it look up
    /// nothing, or nothing is there.
    pub(super) fn looking(&self) -> Result<Option<Looking>, BrokeOff> {
        let Some(most) = self.policy.lookups else { return Ok(None) };
        let so_far = self.book.so_far();
        let in_all = so_far.extended_to.unwrap_or(self.policy.rounds);
        let left = in_all.saturating_sub(so_far.spent_before());
        // One of them is the candidate's own.
        let most = most.min(left.saturating_sub(1));
        let rounds: Vec<u32> = self.with_candidate().map(|round| round.number).collect();
        let guides = self.policy.features == Some(Guidance::Guides);
        let shelves = self.crew.prompts.shelves(&self.task, &self.crew.machine, &rounds, guides);
        let looked_up = self.opened(|round| round.looked_up.clone());
        if (most == 0 || shelves.is_empty()) && looked_up.is_empty() {
            return Ok(None);
        }
        let seen = looked_up.into_iter().map(|LookedUp { lookup, found }| Ok((lookup, self.book.fetch(&found)?)));
        let seen = seen.collect::<Result<_, crate::log::LogError>>()?;
        Ok(Some(Looking { shelves, most, rounds: left, seen }))
    }

    /// Shows the Coder something. It is in the record before it is shown, so that whoever goes on shows the same.
    pub(super) fn look_up(&mut self, lookup: Lookup) -> Result<(), BrokeOff> {
        let found = match lookup.look_up {
            Shelf::QueryReplay => self.of_round(&lookup.name)?,
            _ => self.crew.prompts.look_up(&lookup, &self.task, &self.crew.machine),
        };
        let found = self.book.keep(&found)?;
        self.note(Event::LookedUp(LookedUp { lookup, found }))
    }

    fn of_round(&self, number: &str) -> Result<String, BrokeOff> {
        let round = self.with_candidate().find(|round| round.number.to_string() == number);
        let Some((round, candidate)) = round.and_then(|round| Some((round, round.candidate.as_ref()?))) else {
            return Ok("That round has no kernel.".to_owned());
        };
        Ok(of_round(&in_a_line(round), &self.book.candidate(candidate)?.source()))
    }

    fn with_candidate(&self) -> impl Iterator<Item = &Round> {
        self.book.so_far().finished().filter(|round| round.candidate.is_some())
    }
}
