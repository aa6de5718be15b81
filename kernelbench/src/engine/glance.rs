//! A brief look: which of many configurations of a context is worth more?
//!
//! A search looks at hundreds, and what it ranks first is examined in full. So a configuration is compared as little as shows
//! that it is wrong, and timed for a ranking. Configurations of one text may be given to one process after the other: what one
//! leaves behind there, it leaves to its own kind, and what counts is examined in processes that had no other.

use super::{
    Inner, Purpose,
    backend::{Backend, Both, Processes, Standard},
    check::{self, Checking},
    ranked::Ranked,
    sessions::is_full,
    time::{self, What},
};
use crate::{
    Hash,
    measure::numbers::Effort,
    result::{
        candidate::{Built, Candidate},
        error::{Attempt, EvalError},
        evaluation::Timed,
        failure::Failure,
    },
    stage::{self, Stage},
    task::{Case, Task, suite::Suite},
    workshop::TimingPlan,
};

fn is_invalid(error: &EvalError) -> bool {
    matches!(error, EvalError::Candidate(failure) if matches!(**failure, Failure::Invalid { .. }))
}

/// What a brief look is enough for: no other process would say otherwise. Of a process that had others before, what they left
/// behind there may have been forbidden.
fn is_settled(failure: &Failure, had_others: bool) -> bool {
    match failure {
        Failure::Invalid { .. } => true,
        Failure::Forbidden { .. } => !had_others,
        _ => false,
    }
}

impl<B: Backend> Inner<B> {
    /// Looks at a configuration of a search. What seems wrong may be the doing of others beside it: it is checked in full before
    /// it counts.
    pub(super) fn glance(
        &self,
        task: &Task,
        built: Built,
        suite: &Suite,
        plan: &TimingPlan,
        self_difference: f64,
    ) -> Attempt<Timed> {
        let what = What { task, suite, plan, effort: Effort::Loop, trusted: false, self_difference };
        let mut had_others = false;
        match self.glance_once(&built.candidate, &what, &mut had_others) {
            Err(EvalError::Candidate(failure)) if !is_settled(&failure, had_others) => {
                let verified = self.check(task, built, suite)?;
                self.time(task, verified.candidate(), suite, plan, self_difference)
            }
            done => done,
        }
    }

    /// Compares a candidate once on every case that is not timed, and times it, under one lease: what timed calls put out is
    /// compared too. Says whether its process had others before it.
    fn glance_once(&self, candidate: &Candidate, what: &What<'_>, had_others: &mut bool) -> Attempt<Timed> {
        let (task, id) = (what.task, candidate.id());
        let untimed = |case: &&Case| !what.suite.timed.contains(&case.name);
        let untimed: Vec<Case> = what.suite.cases.iter().filter(untimed).cloned().collect();
        let mut parked = Some(self.unpark(task, candidate)?);
        let text = Hash::of(format!("{}\n{}", self.backend.key(task), candidate.source()).as_bytes());
        let most = self.backend.numbers().ranked_in_one;
        let glanced = self.in_session_with((task, Some(&id)), B::wanted_memory, is_full, |session, lease| {
            let before = self.kept.ranked.take(&text, most);
            let mut loaded = parked.take().map_or_else(|| self.unpark(task, candidate), Ok)?;
            let so_far = before.map_or(0, |before| {
                let goes_on = stage::during(Stage::Load, || self.backend.go_on_with(before.loaded, &mut loaded));
                if goes_on { before.so_far } else { 0 }
            });
            *had_others = so_far > 0;
            let which = (Standard::Outputs, Processes::AtHand);
            let pair = stage::during(Stage::Load, || self.backend.pair(task, session, &mut loaded, which));
            let how = Checking { draws: 1, signed: false, oracle: false, ..self.checking(task) };
            let checked = pair.and_then(|mut pair| {
                check::one_by_one(&mut pair, &untimed, (&how, lease), &mut self.rng(Purpose::Check))
            });
            let both = Both { session: &mut *session, loaded: &mut loaded, lease: &mut *lease };
            let timed = checked.and_then(|_| time::time(&self.backend, both, what, &mut self.rng(Purpose::Time)));
            lease.let_others_in();
            let tidied = self.backend.tidy(session);
            if tidied.is_ok() && most > 1 && timed.as_ref().map_or_else(is_invalid, |_| true) {
                self.kept.ranked.keep(Ranked { text: text.clone(), loaded, so_far: so_far + 1 });
            } else if tidied.is_ok() && timed.is_ok() {
                self.kept.park(&self.backend, &id, loaded)?;
            }
            let (timed, _) = timed?;
            tidied.map(|()| timed)
        });
        // One whose process goes on needs none that is new.
        if most == 1 {
            self.backend.get_ready();
        }
        glanced
    }
}

#[cfg(test)]
mod tests;
