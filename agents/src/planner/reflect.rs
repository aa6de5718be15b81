//! What a round taught is written down after it, where the policy says so, for the Coder of later rounds (Hawkeye, Figs. 47-48).

use super::round::in_a_line;
use super::talk::Told;
use super::{BrokeOff, Loop};
use crate::answer;
use crate::event::{Event, Reflected};
use crate::llm::{Purpose, Role};
use crate::policy::{self, Reflect};
use crate::trajectory::Round;
use futures::TryFutureExt;
use prompts::{Learned, PlanLine, Taught};

impl Loop {
    /// Has the Planner write down what the last round taught, once. Where a limit is reached nobody is asked, and where nothing
    /// can be read nothing is written down. After the last of all nobody reads notes any more; reflections stand in the record for
    /// later runs, but nothing hangs on them.
    pub(super) async fn reflect_if_due(&mut self) -> Result<(), BrokeOff> {
        let Some(kind) = self.policy.reflect else { return Ok(()) };
        let so_far = self.book.so_far();
        let taught = |round: &&Round| {
            round.number > 0 && round.reflected.is_none() && round.candidate.is_some() && round.evaluation.is_some()
        };
        let last = so_far.open().is_none().then(|| so_far.finished().next_back().filter(taught)).flatten();
        let Some((round, candidate)) = last.and_then(|last| Some((last.number, last.candidate.clone()?))) else {
            return Ok(());
        };
        let over = policy::next(so_far, &self.policy).is_break();
        if so_far.end.is_some() || (over && kind == Reflect::Skill) {
            return Ok(());
        }
        let history: Vec<PlanLine> = so_far.finished().map(in_a_line).collect();
        let (kernel, learned) = (self.book.candidate(&candidate)?, self.learned()?);
        let (llm, words) = (self.crew.llm.clone(), self.crew.prompts.clone());
        let taught = Taught { history: &history, kernel: &kernel, learned: &learned };
        let first = words.learn(&self.task, &self.crew.machine, taught);
        let read = move |reply: &str| match kind {
            Reflect::Lessons => prompts::read_reflections(reply).map(Learned::Lessons),
            Reflect::Skill => prompts::read_skill(reply).map(Learned::Skill),
        };
        let told = self.ask_twice(round, Role::Planner, Purpose::Reflect, |call, earlier| {
            let prompt = earlier.map_or_else(|| first.clone(), |e| words.again(&e.prompt, &e.reply, &e.why));
            answer::ask(&*llm, call, prompt, read).map_err(BrokeOff::from)
        });
        let (mut lessons, mut skill) = (vec![], None);
        match told.await {
            Ok(Told::Read(Learned::Lessons(read))) => lessons = read,
            Ok(Told::Read(Learned::Skill(text))) => skill = Some(self.book.keep(&text)?),
            Ok(Told::Unreadable(_) | Told::PassedOver) | Err(BrokeOff::RecordEnds(_)) => {}
            Err(BrokeOff::Model(_)) if over => {}
            Err(BrokeOff::Limit(_)) if over => return Ok(()),
            Err(err) => return Err(err),
        }
        self.note(Event::Reflected(Reflected { round, lessons, skill }))
    }

    /// What was written down so far, in the form that the policy has it.
    pub(super) fn learned(&self) -> Result<Learned, BrokeOff> {
        let reflected = || self.book.so_far().reflected();
        if self.policy.reflect != Some(Reflect::Skill) {
            return Ok(Learned::Lessons(reflected().flat_map(|one| one.lessons.clone()).collect()));
        }
        let last = reflected().rev().find_map(|one| one.skill.as_ref());
        Ok(Learned::Skill(last.map(|text| self.book.fetch(text)).transpose()?.unwrap_or_default()))
    }
}
