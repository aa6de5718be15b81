//! A brief look: which of many configurations of a context is worth more?
//!
//! A search looks at hundreds, and what it ranks first is examined in full. So a configuration is compared as little as shows
//! that it is wrong, and timed for a ranking.

use super::{
    Inner, Purpose,
    backend::{Backend, Both, Processes, Standard},
    check::{self, Checking},
    sessions::is_full,
    time::{self, What},
};
use crate::{
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

/// What a brief look is enough for: no other process would say otherwise.
fn is_settled(failure: &Failure) -> bool {
    matches!(failure, Failure::Invalid { .. } | Failure::Forbidden { .. })
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
        match self.glance_once(&built.candidate, &what) {
            Err(EvalError::Candidate(failure)) if !is_settled(&failure) => {
                let verified = self.check(task, built, suite)?;
                self.time(task, verified.candidate(), suite, plan, self_difference)
            }
            done => done,
        }
    }

    /// Compares a candidate once on every case that is not timed, and times it, under one lease: what timed calls put out is
    /// compared too.
    fn glance_once(&self, candidate: &Candidate, what: &What<'_>) -> Attempt<Timed> {
        let (task, id) = (what.task, candidate.id());
        let untimed = |case: &&Case| !what.suite.timed.contains(&case.name);
        let untimed: Vec<Case> = what.suite.cases.iter().filter(untimed).cloned().collect();
        let mut parked = Some(self.unpark(task, candidate)?);
        let glanced = self.in_session((task, Some(&id)), is_full, |session, lease| {
            let mut loaded = parked.take().map_or_else(|| self.unpark(task, candidate), Ok)?;
            let which = (Standard::Outputs, Processes::AtHand);
            let pair = stage::during(Stage::Load, || self.backend.pair(task, session, &mut loaded, which));
            let how = Checking { draws: 1, signed: false, oracle: false, ..self.checking(task) };
            let checked =
                pair.and_then(|mut pair| check::one_by_one(&mut pair, &untimed, &how, &mut self.rng(Purpose::Check)));
            let both = Both { session: &mut *session, loaded: &mut loaded, lease: &mut *lease };
            let timed = checked.and_then(|_| time::time(&self.backend, both, what, &mut self.rng(Purpose::Time)));
            lease.let_others_in();
            let tidied = self.backend.tidy(session);
            let (timed, _) = timed?;
            tidied?;
            self.kept.park(&self.backend, &id, loaded)?;
            Ok(timed)
        });
        self.backend.get_ready();
        glanced
    }
}
