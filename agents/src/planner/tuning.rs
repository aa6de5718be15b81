//! Checking and tuning a context: drawn configurations are compared with the reference, others timed, the fastest examined.
//!
//! No configuration that the record has is checked or timed again.

use super::hands::Hands;
use super::talk::{asked, undisturbed};
use super::{BrokeOff, Loop};
use crate::event::{Event, Step};
use crate::lease::{Work, Worked};
use crate::tester::{BuildAhead, Check, Examine, Validate};
use crate::validator::{Validated, Validator};
use crate::workflow::{Order, TUNE, TuningPlan};
use kernelbench::{
    Baseline, Bindings, Candidate, Evaluation, Failure, Found, Space, TimingPlan, Tried, Tuner, Tuning, Unbuilt, spread,
};
use metrics::MachineKind;
use std::ops::ControlFlow;

/// What configurations are drawn by where an order names nothing; always the same, so that a record can be made again.
const SEED: u64 = 0;
/// What the round of a trial ends with that is right.
const TRIAL: &str = "a trial is checked and not timed";
/// As many are built side by side before they are timed one by one; always the same, for the same reason.
const SIDE_BY_SIDE: usize = 32;

/// A context that is to be checked and tuned, and the parameters that it has.
pub(super) struct Attempt {
    pub(super) context: Candidate,
    pub(super) tuning: Space,
    pub(super) kept: Vec<Bindings>,
}

impl Loop {
    /// How configurations are chosen and how many are tried: as the order says, else as the policy does.
    fn searches(&self) -> (Option<Tuner>, usize) {
        let own = self.own_plan();
        (own.tuner.or(self.policy.tuner), own.tests.unwrap_or(self.policy.tests()).max(1))
    }

    /// How many of the fastest are kept.
    pub(super) fn keeps(&self) -> usize {
        self.own_plan().keep.unwrap_or(self.policy.kept()).max(1)
    }

    /// What the order of the last round says of its search; nothing for the initial context.
    fn own_plan(&self) -> TuningPlan {
        self.own_order().map(|order| order.tuning).unwrap_or_default()
    }

    /// The order of the last round; none for the initial context.
    fn own_order(&self) -> Option<&Order> {
        let so_far = self.book.so_far();
        let transforms = so_far.rounds.last().is_some_and(|round| matches!(round.step, Step::Transform { .. }));
        so_far.workflow.orders.last().filter(|_| transforms).map(|ordered| &ordered.order)
    }

    /// Whether the last round is a search that is repeated with other draws: what it finds is to rest on its own samples.
    pub(super) fn is_repeated_search(&self) -> bool {
        self.own_plan().seed.is_some()
    }

    /// Whether the last round is a trial of a model.
    pub(super) fn on_trial(&self) -> bool {
        self.own_order().is_some_and(|order| order.trial)
    }

    /// Checks drawn configurations, times all of them, and examines the fastest. A wrong one fails the whole.
    pub(super) async fn prove(&mut self, attempt: Attempt) -> Result<(), BrokeOff> {
        let Attempt { context, tuning, kept } = attempt;
        if !context.bindings().is_empty() {
            return self.examine(context).await;
        }
        let all = tuning.extending(&kept).map_err(BrokeOff::Refused)?;
        if let Some((wrong, failure)) = self.check_drawn(&context, &all).await? {
            return self.failed(&wrong, failure);
        }
        if let Some((wrong, failure)) = self.sanitize(&context, &all).await? {
            return self.failed(&wrong, failure);
        }
        if let Some((wrong, failure)) = self.validate(&context, &all).await? {
            return self.failed(&wrong, failure);
        }
        if self.on_trial() {
            return self.settle_trial(&context);
        }
        if self.task.gfx().is_some() {
            return self.first_that_compiles(&context, all).await;
        }
        match &all[..] {
            [only] => self.examine_bound(&context, only.clone(), vec![]).await,
            _ => self.time_all(&context, all).await,
        }
    }

    /// Ends the round of a trial of which no drawn configuration is wrong: one of them must have been right.
    fn settle_trial(&mut self, context: &Candidate) -> Result<(), BrokeOff> {
        if self.opened(|round| round.checked.iter().any(|(_, failure)| failure.is_none())) {
            return self.note(Event::NotTimed { candidate: context.id(), why: TRIAL.to_owned() });
        }
        self.failed(context, Failure::Invalid { case: "every case".to_owned() })
    }

    /// Whether a configuration that fails so is left out of a search, and the search goes on: it says itself that it is none; or
    /// a context that was found right is only searched again, over more than was kept of it, and the compiler has no room for it.
    fn is_left_out(&self, failure: &Failure) -> bool {
        let only_searched = || self.own_order().is_some_and(|order| order.transformation == TUNE);
        match failure {
            Failure::Invalid { .. } => true,
            Failure::Build { .. } => only_searched(),
            _ => false,
        }
    }

    /// Checks some configurations, drawn from all; the first that is wrong, and how. One that is invalid is pruned.
    async fn check_drawn(
        &mut self,
        context: &Candidate,
        all: &[Bindings],
    ) -> Result<Option<(Candidate, Failure)>, BrokeOff> {
        let drawn = spread(all.to_vec(), self.policy.samples(), SEED, "validation");
        let mut unbuilt = None;
        let is_first = self.opened(|round| round.checked.is_empty());
        let mut ahead = if is_first { self.build_ahead(context, &drawn).await? } else { vec![] };
        for bindings in drawn {
            let bound = context.bound(bindings.clone());
            let known = self.opened(|round| round.checked.iter().find(|(at, _)| *at == bindings).cloned());
            let at_hand = ahead.iter().position(|(at, _)| *at == bindings).map(|at| ahead.remove(at).1);
            let failure = match (known, at_hand) {
                (Some((_, failure)), _) => failure,
                (None, Some(failure)) => {
                    let (candidate, failure) = (bound.id(), Some(failure));
                    self.note(Event::Checked { candidate, bindings, failure: failure.clone(), sanitized: false })?;
                    failure
                }
                (None, None) => self.check_one(&bound, bindings, false).await?,
            };
            match failure {
                Some(failure) if !self.is_left_out(&failure) => return Ok(Some((bound, failure))),
                Some(failure @ Failure::Build { .. }) => unbuilt = unbuilt.or(Some((bound, failure))),
                _ => {}
            }
        }
        // Where none that was drawn is right nothing is known of the others.
        let right = self.opened(|round| round.checked.iter().any(|(_, failure)| failure.is_none()));
        Ok(unbuilt.filter(|_| !right))
    }

    /// Examines the first of all that compiles, where nothing can be timed.
    async fn first_that_compiles(&mut self, context: &Candidate, all: Vec<Bindings>) -> Result<(), BrokeOff> {
        for bindings in all {
            let known = self.opened(|round| round.checked.iter().find(|(at, _)| *at == bindings).cloned());
            let failure = match known {
                Some((_, failure)) => failure,
                None => self.check_one(&context.bound(bindings.clone()), bindings.clone(), false).await?,
            };
            if failure.is_none() {
                return self.examine_bound(context, bindings, vec![]).await;
            }
        }
        self.failed(context, Failure::Invalid { case: "every case".to_owned() })
    }

    /// Runs drawn configurations that are right under sanitizers, as many as the policy wishes, where a transformation made
    /// them; the first that failed, and how.
    async fn sanitize(
        &mut self,
        context: &Candidate,
        all: &[Bindings],
    ) -> Result<Option<(Candidate, Failure)>, BrokeOff> {
        let transformed = self.opened(|round| matches!(round.step, Step::Transform { .. }));
        let count = self.policy.sanitize.filter(|_| transformed && self.task.gfx().is_none()).unwrap_or(0);
        for bindings in self.drawn_and_right(all).into_iter().take(count) {
            let bound = context.bound(bindings.clone());
            let known = self.opened(|round| round.sanitized.iter().find(|(at, _)| *at == bindings).cloned());
            let failure = match known {
                Some((_, failure)) => failure,
                None => self.check_one(&bound, bindings, true).await?,
            };
            if let Some(failure) = failure {
                return Ok(Some((bound, failure)));
            }
        }
        Ok(None)
    }

    /// Has the user's validators look at drawn configurations that are right, where a transformation made them; the first in
    /// which one found something, and what.
    async fn validate(
        &mut self,
        context: &Candidate,
        all: &[Bindings],
    ) -> Result<Option<(Candidate, Failure)>, BrokeOff> {
        if !self.opened(|round| matches!(round.step, Step::Transform { .. })) {
            return Ok(None);
        }
        for validator in self.crew.validators.clone().iter() {
            for bindings in self.drawn_and_right(all).into_iter().take(validator.samples) {
                let bound = context.bound(bindings.clone());
                let is_it = |(by, at, _): &&(String, Bindings, _)| *by == validator.name && *at == bindings;
                let known = self.opened(|round| round.validated.iter().find(is_it).cloned());
                let found = match known {
                    Some((_, _, found)) => found,
                    None => self.validate_one(&bound, bindings, validator.clone()).await?,
                };
                if let Validated::Failed(finding) = found {
                    return Ok(Some((bound, Failure::Sanitizer { tool: validator.name.clone(), finding })));
                }
            }
        }
        Ok(None)
    }

    async fn validate_one(
        &mut self,
        bound: &Candidate,
        bindings: Bindings,
        validator: Validator,
    ) -> Result<Validated, BrokeOff> {
        let (task, candidate, name) = (self.task.clone(), bound.clone(), validator.name.clone());
        let found = asked(&self.crew.tester.validate, Validate { task, candidate, validator }).await?;
        let noted = found.clone();
        self.note(Event::Validated { candidate: bound.id(), bindings, validator: name, found: noted })?;
        Ok(found)
    }

    /// The drawn configurations that are right.
    fn drawn_and_right(&self, all: &[Bindings]) -> Vec<Bindings> {
        let mut drawn = spread(all.to_vec(), self.policy.samples(), SEED, "validation");
        drawn.retain(|bindings| {
            self.opened(|round| round.checked.iter().any(|(at, failure)| at == bindings && failure.is_none()))
        });
        drawn
    }

    async fn check_one(
        &mut self,
        bound: &Candidate,
        bindings: Bindings,
        sanitize: bool,
    ) -> Result<Option<Failure>, BrokeOff> {
        let (task, suite, candidate) = (self.task.clone(), self.suite(), bound.clone());
        let worked = asked(&self.crew.tester.check, Check { task, candidate, suite, sanitize }).await?;
        let failure = self.note_spent(Work::Check, worked)?;
        let noted = failure.clone();
        self.note(Event::Checked { candidate: bound.id(), bindings, failure: noted, sanitized: sanitize })?;
        Ok(failure)
    }

    /// Times configurations briefly, as many as may be, times the best again in full, and examines the fastest. Those that
    /// are timed next are built side by side first; nothing is built while a processor times.
    async fn time_all(&mut self, context: &Candidate, all: Vec<Bindings>) -> Result<(), BrokeOff> {
        let (tuner, tests) = self.searches();
        let mut tuning = Tuning::new(tuner, all, tests, self.own_plan().seed.unwrap_or(SEED));
        let mut next = tuning.ask(SIDE_BY_SIDE);
        let mut hands = Hands::of(&self.crew.searchers);
        let mut refused = self.build_ahead(context, &next).await?;
        while !next.is_empty() {
            let batch = std::mem::replace(&mut next, tuning.ask(SIDE_BY_SIDE));
            let lost = self.wrong_of(&batch).is_some();
            for (bindings, failure) in std::mem::take(&mut refused).into_iter().filter(|_| !lost) {
                let is_left_out = self.is_left_out(&failure);
                let (candidate, found) = (context.bound(bindings.clone()).id(), Found::Failed(failure));
                self.note(Event::Tried { tried: Tried { candidate, bindings, found } })?;
                if !is_left_out {
                    break;
                }
            }
            // A processor that times may not compile meanwhile; beside a GPU it does.
            let beside = self.crew.machine.kind == MachineKind::Gpu;
            let ahead = beside.then(|| tokio::spawn(self.building(context, &next)));
            if self.time_batch(context, batch, (&mut tuning, &mut hands)).await?.is_break() {
                return Ok(());
            }
            match ahead.map(|built| async { built.await.unwrap_or(Ok(None)) }) {
                Some(built) => refused = self.note_built(context, &next, built.await?)?,
                None => refused = self.build_ahead(context, &next).await?,
            }
        }
        let tried = self.opened(|round| round.tried.clone());
        let Some(best) = self.time_again(context, fastest(&tried)).await? else {
            if self.book.so_far().open().is_none() {
                return Ok(());
            }
            let unbuilt = tried.into_iter().find_map(|tried| match tried.found {
                Found::Failed(failure) => Some(failure),
                _ => None,
            });
            return self.failed(context, unbuilt.unwrap_or(Failure::Invalid { case: "every case".to_owned() }));
        };
        self.examine_bound(context, best, tried).await
    }

    /// Times some briefly, one after another on each device of a search; breaks off where one is wrong, or none can be timed,
    /// and the round is over. What is under way by then is finished and noted.
    async fn time_batch(
        &mut self,
        context: &Candidate,
        batch: Vec<Bindings>,
        (tuning, hands): (&mut Tuning, &mut Hands),
    ) -> Result<ControlFlow<()>, BrokeOff> {
        let plan = self.policy.timing.glance();
        let mut untimed = None;
        if self.wrong_of(&batch).is_none() {
            let new: Vec<&Bindings> = batch.iter().filter(|bindings| self.known_of(bindings).is_none()).collect();
            hands.begin(new.into_iter().map(|bindings| self.examining(context, bindings, plan)));
        }
        while let Some((asked, examined)) = hands.next().await {
            let goes_on = match examined {
                Ok(Ok(worked)) => {
                    let tried = self.tried_by(&asked.candidate, worked)?;
                    self.note(Event::Tried { tried: tried.clone() })?;
                    self.failure_of(tried).is_none()
                }
                Ok(Err(why)) => {
                    untimed = untimed.or(Some(Ok((asked.candidate, why))));
                    false
                }
                Err(broke_off) => {
                    untimed = untimed.or(Some(Err(broke_off)));
                    false
                }
            };
            if !goes_on {
                hands.stop();
            }
        }
        if !hands.given_up.is_empty() {
            let left = self.crew.searchers.iter().filter(|searcher| !hands.given_up.contains(&searcher.device));
            self.crew.searchers = left.cloned().collect();
        }
        // Of several that are wrong the first in order, whichever was done first; and whatever failed beside it.
        if let Some((bindings, failure)) = self.wrong_of(&batch) {
            self.failed(&context.bound(bindings), failure)?;
            return Ok(ControlFlow::Break(()));
        }
        if let Some((configuration, why)) = untimed.transpose()? {
            self.not_timed(&configuration, why)?;
            return Ok(ControlFlow::Break(()));
        }
        for tried in batch.iter().filter_map(|bindings| self.known_of(bindings)) {
            tuning.tell(&tried.bindings, ratio(&tried));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// What the record has of a configuration.
    fn known_of(&self, bindings: &Bindings) -> Option<Tried> {
        self.opened(|round| round.tried.iter().find(|tried| tried.bindings == *bindings).cloned())
    }

    /// The first of some that the record has as wrong, and how.
    fn wrong_of(&self, batch: &[Bindings]) -> Option<(Bindings, Failure)> {
        batch.iter().filter_map(|bindings| self.known_of(bindings)).find_map(|tried| self.failure_of(tried))
    }

    /// Which configuration is wrong, and how; none where it is not, or is left out.
    fn failure_of(&self, tried: Tried) -> Option<(Bindings, Failure)> {
        match tried.found {
            Found::Failed(failure) if !self.is_left_out(&failure) => Some((tried.bindings, failure)),
            _ => None,
        }
    }

    /// Builds some side by side, for what times them one by one to find them built. Which cannot be, in order, and why not.
    async fn build_ahead(
        &mut self,
        context: &Candidate,
        batch: &[Bindings],
    ) -> Result<Vec<(Bindings, Failure)>, BrokeOff> {
        let built = self.building(context, batch).await?;
        self.note_built(context, batch, built)
    }

    fn building(
        &self,
        context: &Candidate,
        batch: &[Bindings],
    ) -> impl Future<Output = Result<Option<Worked<Vec<Unbuilt>>>, BrokeOff>> + Send + 'static {
        let known = |bindings: &Bindings| self.opened(|round| round.tried.iter().any(|at| at.bindings == *bindings));
        let left = batch.iter().filter(|bindings| !known(bindings));
        let candidates: Vec<Candidate> = left.map(|bindings| context.bound(bindings.clone())).collect();
        let (task, tester) = (self.task.clone(), self.crew.tester.build_ahead.clone());
        async move {
            if candidates.len() < 2 {
                return Ok(None);
            }
            asked(&tester, BuildAhead { task, candidates }).await.map(Some)
        }
    }

    fn note_built(
        &mut self,
        context: &Candidate,
        batch: &[Bindings],
        built: Option<Worked<Vec<Unbuilt>>>,
    ) -> Result<Vec<(Bindings, Failure)>, BrokeOff> {
        let Some(worked) = built else { return Ok(vec![]) };
        let unbuilt = self.note_spent(Work::Build, worked)?;
        let failure_of = |bindings: &Bindings| {
            let id = context.bound(bindings.clone()).id();
            unbuilt.iter().find(|(candidate, _)| *candidate == id).map(|(_, failure)| failure.clone())
        };
        Ok(batch.iter().filter_map(|bindings| Some((bindings.clone(), failure_of(bindings)?))).collect())
    }

    /// The fastest, where the best by brief timings are timed again in full, in pairs with the reference; none where there is
    /// none, or the round is over.
    async fn time_again(&mut self, context: &Candidate, best: Vec<Bindings>) -> Result<Option<Bindings>, BrokeOff> {
        let again = self.policy.retime.unwrap_or(0);
        if again < 2 || best.len() < 2 {
            return Ok(best.into_iter().next());
        }
        for bindings in best.into_iter().take(again) {
            let known = self.opened(|round| round.retimed.iter().any(|tried| tried.bindings == bindings));
            if known {
                continue;
            }
            let plan = self.policy.timing;
            let Some(tried) = self.found_by(context, &bindings, plan).await? else { return Ok(None) };
            self.note(Event::Retimed { tried: tried.clone() })?;
            if let Found::Failed(failure) = tried.found {
                self.failed(&context.bound(tried.bindings), failure)?;
                return Ok(None);
            }
        }
        Ok(fastest(&self.opened(|round| round.retimed.clone())).into_iter().next())
    }

    /// What a timing of one finds; `None` where nothing can be timed here and the round is over.
    async fn found_by(
        &mut self,
        context: &Candidate,
        bindings: &Bindings,
        plan: TimingPlan,
    ) -> Result<Option<Tried>, BrokeOff> {
        let examine = self.examining(context, bindings, plan);
        match undisturbed(|| asked(&self.crew.tester.examine, examine.clone())).await? {
            Ok(worked) => self.tried_by(&examine.candidate, worked).map(Some),
            Err(why) => self.not_timed(&examine.candidate, why).map(|()| None),
        }
    }

    /// What asks for a timing of one.
    fn examining(&self, context: &Candidate, bindings: &Bindings, plan: TimingPlan) -> Examine {
        let (task, suite, candidate) = (self.task.clone(), self.suite(), context.bound(bindings.clone()));
        let self_difference = self.book.so_far().baseline.as_ref().map_or(0.0, Baseline::self_difference);
        Examine { task, candidate, suite, plan, self_difference }
    }

    /// What a timing found, after what it took is noted.
    fn tried_by(&mut self, bound: &Candidate, worked: Worked<Evaluation>) -> Result<Tried, BrokeOff> {
        let found = Found::from(self.note_spent(Work::Examine, worked)?);
        Ok(Tried { candidate: bound.id(), bindings: bound.bindings().clone(), found })
    }

    /// Ends the round, for a configuration cannot be timed here; it stands in the record by its canonical form.
    fn not_timed(&mut self, configuration: &Candidate, why: String) -> Result<(), BrokeOff> {
        self.book.keep(&configuration.canonical())?;
        self.note(Event::NotTimed { candidate: configuration.id(), why })
    }

    /// Ends the round with a configuration that failed; it stands in the record by its canonical form.
    fn failed(&mut self, configuration: &Candidate, failure: Failure) -> Result<(), BrokeOff> {
        let candidate = self.book.keep(&configuration.canonical())?;
        self.note(Event::Evaluated { candidate, evaluation: Evaluation::Failed(failure) })
    }

    /// Examines the fastest configuration in full; it stands in the record by its canonical form.
    async fn examine_bound(
        &mut self,
        context: &Candidate,
        bindings: Bindings,
        tried: Vec<Tried>,
    ) -> Result<(), BrokeOff> {
        let bound = context.bound(bindings);
        if bound != *context {
            self.book.keep(&bound.canonical())?;
            self.note(Event::Tuned { candidate: context.id(), bound: bound.id(), tried })?;
        }
        self.examine(bound).await
    }
}

/// How many times as fast as the reference it is, where it is right.
fn ratio(tried: &Tried) -> Option<f64> {
    if let Found::Ratio(ratio) = tried.found { Some(ratio) } else { None }
}

/// The right configurations, fastest first.
pub(super) fn fastest(tried: &[Tried]) -> Vec<Bindings> {
    let mut right: Vec<(f64, &Bindings)> =
        tried.iter().filter_map(|tried| Some((ratio(tried)?, &tried.bindings))).collect();
    right.sort_by(|a, b| b.0.total_cmp(&a.0));
    right.into_iter().map(|(_, bindings)| bindings.clone()).collect()
}
