//! One transformation: its order, its calls, and the checkpoint that comes of it (PEAK §3.2-3.4).
//!
//! What is in the record already is not done again: no call is asked twice, no configuration checked or timed twice.

use super::talk::{Told, asked};
use super::tuning::{Attempt, fastest};
use super::{BrokeOff, Loop};
use crate::answer;
use crate::coder::Rewrite;
use crate::event::{End, Event, Step};
use crate::llm::{AskError, Purpose, Role};
use crate::log::LogError;
use crate::policy::STOP;
use crate::workflow::{Checkpoint, Fate, MAIN, Order, Ordered, TUNE, TuningPlan, canonical};
use futures::TryFutureExt;
use kernelbench::{Bindings, Candidate, Evaluation, Failure, Hash, Space};
use prompts::{OpenTransformation, PlanLine, Proposing, Rewriting, Transformation, backend, read_plan};
use std::ops::ControlFlow;

/// A transformation that a person asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub transformation: String,
    /// The checkpoint that it is applied to; the head where none is named.
    pub from: Option<Hash>,
    /// What the person says beside it.
    pub say: Option<String>,
    /// How often it is tried, where the person says.
    pub tries: Option<u32>,
    /// How its configurations are searched, where the person says.
    pub tuning: TuningPlan,
    /// Whether it only tries what a model can do; see [`Order::trial`].
    pub trial: bool,
}

impl Loop {
    /// Applies the transformations that were asked for, each behind the other, and ends no run: the workflow may go on.
    pub(super) async fn apply_all(&mut self, requests: Vec<Request>) -> Result<(), BrokeOff> {
        self.open().await?;
        self.until_settled().await?;
        for request in requests {
            self.apply(request).await?;
        }
        Ok(())
    }

    async fn apply(&mut self, request: Request) -> Result<(), BrokeOff> {
        if self.book.so_far().workflow.head().is_none() {
            self.round(Step::Baseline).await?;
            self.checkpoint_if_due()?;
        }
        let head = self.book.so_far().workflow.head().map(|head| head.id.clone());
        let head = head.ok_or_else(|| {
            BrokeOff::Refused("the initial context is not right: there is nothing to transform".into())
        })?;
        let from = request.from.clone().unwrap_or(head);
        if request.transformation == TUNE {
            self.order_tuning(from, request)?;
        } else {
            self.order(&request.transformation.clone(), from, Some(request))?;
        }
        self.until_settled().await
    }

    /// Finishes the round that is open, and the tries of what was ordered last.
    async fn until_settled(&mut self) -> Result<(), BrokeOff> {
        loop {
            self.checkpoint_if_due()?;
            let so_far = self.book.so_far();
            if so_far.open().is_none() && so_far.workflow.open_order(&so_far.rounds).is_none() {
                return Ok(());
            }
            match self.next().await? {
                ControlFlow::Continue(step) => self.round(step).await?,
                ControlFlow::Break(_) => return Ok(()),
            }
        }
    }

    /// Notes that a transformation is to be applied, unless that was noted already. Its text goes into the record.
    pub(super) fn order(&mut self, name: &str, from: Hash, request: Option<Request>) -> Result<(), BrokeOff> {
        let listed = self.crew.prompts.transformations().named(name).map_err(BrokeOff::Refused)?.clone();
        let (transformation, backend) = (&listed.transformation, backend(&self.task));
        let checkpoint = self.checkpoint(&from)?;
        transformation.fits(backend, &checkpoint.tuning).map_err(BrokeOff::Refused)?;
        if let Some(here) = self.other_arch(transformation) {
            let (name, known) = (&transformation.name, transformation.arch.join(", "));
            return Err(BrokeOff::Refused(format!("{name} is for {known}; this machine is {here}")));
        }
        let wider = transformation.space(&checkpoint.tuning).map_err(BrokeOff::Refused)?;
        wider.extending(&checkpoint.kept).map_err(|why| BrokeOff::Refused(format!("{name}: {why}")))?;
        let texts: Vec<String> = self
            .crew
            .prompts
            .transformations()
            .imported(transformation, backend)
            .into_iter()
            .map(ToOwned::to_owned)
            .collect();
        let imports = texts.iter().map(|text| self.book.keep(text)).collect::<Result<_, _>>()?;
        let definition = self.book.keep(&listed.text)?;
        let (by_hand, request) = (request.is_some(), request.unwrap_or_else(|| Request::of(name)));
        let tries = request.tries.unwrap_or(transformation.tries);
        let transformation = transformation.name.clone();
        let Request { say, tuning, trial, .. } = request;
        let order = Order { transformation, definition, imports, from, tries, say, by_hand, tuning, trial };
        self.note(Event::Ordered(order))
    }

    /// Notes that a checkpoint's whole space is to be searched again: a transformation without a call.
    fn order_tuning(&mut self, from: Hash, request: Request) -> Result<(), BrokeOff> {
        let checkpoint = self.checkpoint(&from)?;
        if checkpoint.tuning.is_empty() {
            let name = &checkpoint.name;
            return Err(BrokeOff::Refused(format!("{name} has no tuning parameter: there is nothing to tune")));
        }
        checkpoint.tuning.extending(&[]).map_err(|why| BrokeOff::Refused(format!("{}: {why}", checkpoint.name)))?;
        let definition = self.book.keep(TUNE)?;
        let Request { transformation, say, tuning, .. } = request;
        let (imports, tries, by_hand, trial) = (vec![], 1, true, false);
        let order = Order { transformation, definition, imports, from, tries, say, by_hand, tuning, trial };
        self.note(Event::Ordered(order))
    }

    /// What the policy's sequence asks for is ordered before its first try.
    pub(super) fn order_if_due(&mut self, step: &Step) -> Result<(), BrokeOff> {
        let so_far = self.book.so_far();
        let Step::Transform { transformation, .. } = step else { return Ok(()) };
        if so_far.open().is_some() || so_far.workflow.open_order(&so_far.rounds).is_some() {
            return Ok(());
        }
        let head = so_far.workflow.head().map(|head| head.id.clone());
        let head = head.ok_or_else(|| BrokeOff::Gone("a transformation has no checkpoint to start from".to_owned()))?;
        self.order(&transformation.clone(), head, None)
    }

    /// What comes after the policy's sequence where a model plans: a transformation that can be applied to the head, until it
    /// proposes to stop, none is left, or the rounds are over. A step that failed in every try is told, and not offered again
    /// from the same checkpoint.
    pub(super) async fn after_the_sequence(
        &mut self,
        rule: ControlFlow<End, Step>,
    ) -> Result<ControlFlow<End, Step>, BrokeOff> {
        let so_far = self.book.so_far();
        let over = matches!(rule, ControlFlow::Break(End::SequenceEnds | End::Stuck));
        let Some(head) = so_far.workflow.head().filter(|_| over).cloned() else { return Ok(rule) };
        if so_far.written() >= so_far.extended_to.unwrap_or(self.policy.rounds) {
            return Ok(ControlFlow::Break(End::OutOfRounds));
        }
        let open = self.open_transformations(&head);
        if open.is_empty() {
            return Ok(ControlFlow::Break(End::SequenceEnds));
        }
        let (round, again) = self.to_plan();
        let may_stop = again.is_empty();
        let stop = may_stop.then(|| STOP.to_owned());
        let names: Vec<String> = open.iter().map(|one| one.name.clone()).chain(stop).collect();
        let speedup = so_far.evaluation(&head.bound).map_or_else(String::new, outcome);
        let (tuning, history) = (head.tuning.clone(), self.applied(&head));
        let context = self.book.candidate(&head.context)?;
        let proposing = Proposing { head: head.name.clone(), context, tuning, speedup, history, open, may_stop };
        let (llm, words) = (self.crew.llm.clone(), self.crew.prompts.clone());
        let first = words.propose(&self.task, &self.crew.machine, &proposing);
        // What was said of one checkpoint is no answer for another, which a person may have gone back to.
        let part = [head.name.as_str(), &again].join(if may_stop { "" } else { "-" });
        let told = self.ask_part_twice((round, &part), Role::Planner, Purpose::Plan, |call, earlier| {
            let prompt = earlier.map_or_else(|| first.clone(), |e| words.again(&e.prompt, &e.reply, &e.why));
            answer::ask(&*llm, call, prompt, |reply| read_plan(reply, &names)).map_err(|err| match err {
                AskError::NoFit(why) => BrokeOff::RecordEnds(why),
                other => other.into(),
            })
        });
        let (proposal, chosen) = match told.await? {
            Told::Read(plan) => (format!("{}: {}", plan.step, plan.why), Some(plan.step)),
            Told::Unreadable(why) => (why, None),
            Told::PassedOver => ("the recorded reply does not fit".to_owned(), None),
        };
        let proposed = (proposal, chosen.is_some());
        if self.book.so_far().proposals.get(&round) != Some(&proposed) {
            let (proposal, taken) = proposed;
            self.note(Event::Proposed { round, proposal, taken })?;
        }
        // What cannot be read proposes nothing.
        Ok(match chosen.filter(|name| name != STOP) {
            Some(transformation) => ControlFlow::Continue(Step::Transform { base: head.bound, transformation }),
            None => ControlFlow::Break(End::Stopped),
        })
    }

    /// The transformations that can be applied to a checkpoint: they fit it, did not lead to it, and did not fail on it.
    fn open_transformations(&self, head: &Checkpoint) -> Vec<OpenTransformation> {
        let (workflow, backend) = (&self.book.so_far().workflow, backend(&self.task));
        let behind = workflow.behind(head);
        let failed = |name: &str| {
            let on_it = |ordered: &&Ordered| ordered.order.from == head.id && ordered.order.transformation == name;
            let mut tried = workflow
                .orders
                .iter()
                .filter(on_it)
                .filter(|ordered| !matches!(ordered.fate, Fate::LeftOut | Fate::Dropped))
                .peekable();
            tried.peek().is_some() && !tried.any(|ordered| ordered.fate == Fate::Made)
        };
        let fits = |one: &&Transformation| {
            let wider = || one.space(&head.tuning).and_then(|wider| wider.extending(&head.kept).map(drop));
            self.other_arch(one).is_none() && one.fits(backend, &head.tuning).is_ok() && wider().is_ok()
        };
        let all = self.crew.prompts.transformations().all().iter().map(|listed| &listed.transformation);
        let left = all.filter(|one| !behind.contains(&one.name.as_str()) && !failed(&one.name)).filter(fits);
        let told = |one: &Transformation| OpenTransformation {
            name: one.name.clone(),
            summary: one.summary.clone(),
            adds: one.parameters.grid.keys().cloned().collect(),
            kernels: one.kernels.clone(),
        };
        left.map(told).collect()
    }

    /// The architecture that is here, where a transformation is for others.
    fn other_arch(&self, transformation: &Transformation) -> Option<String> {
        let here = self.task.gfx().map_or_else(|| self.crew.machine.arch.to_string(), |gfx| gfx.name().to_owned());
        (!transformation.arch.is_empty() && !transformation.arch.contains(&here)).then_some(here)
    }

    /// What was applied on the way to a checkpoint, in order, and what came of it, for a model that plans. Other branches are
    /// not on that way.
    fn applied(&self, head: &Checkpoint) -> Vec<PlanLine> {
        let so_far = self.book.so_far();
        let workflow = &so_far.workflow;
        let way = workflow.way(head);
        let line = |(at, Ordered { order, fate, .. }): (usize, &Ordered)| {
            let from = way.iter().find(|checkpoint| checkpoint.id == order.from)?;
            let rounds = workflow.rounds_of(at, &so_far.rounds);
            let evaluated = rounds.iter().rev().find_map(|round| round.evaluation.as_ref());
            let not_timed = || rounds.iter().rev().find_map(|round| round.not_timed.clone());
            let outcome = match evaluated {
                _ if *fate == Fate::LeftOut => "left out by hand".to_owned(),
                _ if *fate == Fate::Dropped => "dropped by hand".to_owned(),
                Some(evaluation) => outcome(evaluation),
                None => not_timed().map_or("failed: no readable reply".to_owned(), |why| format!("not timed: {why}")),
            };
            let step = format!("{} of {}", order.transformation, from.name);
            let round = rounds.last().map_or(0, |round| round.number);
            Some(PlanLine { round, step, candidate: String::new(), outcome })
        };
        workflow.orders.iter().enumerate().filter_map(line).collect()
    }

    /// The round of a transformation: all its calls, and what came of them.
    pub(super) async fn transform(&mut self, round: u32) -> Result<(), BrokeOff> {
        let order = self.book.so_far().workflow.orders.last().map(|ordered| ordered.order.clone());
        let order = order.ok_or_else(|| BrokeOff::Gone("nothing was ordered before this round".to_owned()))?;
        let from = self.checkpoint(&order.from)?;
        if order.transformation == TUNE {
            let context = self.book.candidate(&from.context)?;
            self.keep_candidate(&context)?;
            return self.prove(Attempt { context, tuning: from.tuning, kept: vec![] }).await;
        }
        let transformation = self.definition(&order)?;
        let tuning = transformation.space(&from.tuning).map_err(BrokeOff::Refused)?;
        let kept = from.kept.clone();
        let context = match self.opened(|round| round.candidate.clone()) {
            Some(known) => self.book.candidate(&known)?,
            None => match self.rewrite_all(round, &order, &transformation, &from, &tuning).await {
                Ok(Some(context)) => context,
                Ok(None) => return Ok(()),
                Err(BrokeOff::Model(wish @ (AskError::Rephrased(_) | AskError::Skipped))) => {
                    return self.steered(&order, wish);
                }
                Err(other) => return Err(other),
            },
        };
        self.prove(Attempt { context, tuning, kept }).await
    }

    /// The round of the initial context, in a workflow.
    pub(super) async fn initial(&mut self) -> Result<(), BrokeOff> {
        let context = match self.opened(|round| round.candidate.clone()) {
            Some(known) => self.book.candidate(&known)?,
            None => {
                self.task.initial_context().map_err(|why| BrokeOff::Refused(format!("{}: {why}", self.task.name)))?
            }
        };
        self.keep_candidate(&context)?;
        let tuning = self.task.context().map(|context| context.tuning.clone()).unwrap_or_default();
        self.prove(Attempt { context, tuning, kept: vec![] }).await
    }

    /// Every call of a transformation in order, each on what the calls before it made; `None` where a reply could not be read
    /// and the round is over.
    async fn rewrite_all(
        &mut self,
        round: u32,
        order: &Order,
        transformation: &Transformation,
        from: &Checkpoint,
        tuning: &Space,
    ) -> Result<Option<Candidate>, BrokeOff> {
        let mut context = self.book.candidate(&from.context)?;
        for import in &order.imports {
            context = context.with_import(&self.book.fetch(import)?);
        }
        let last = self.last_try()?;
        for (pass, described, call) in transformation.each_call() {
            let rewriting = Rewriting {
                context: context.clone(),
                transformation: transformation.name.clone(),
                summary: transformation.summary.clone(),
                passes: (pass, transformation.passes.len()),
                aim: described.aim.clone(),
                region: call.region.clone(),
                text: call.text.clone(),
                tuning: tuning.clone(),
                retired: transformation.retires.clone(),
                say: order.say.clone(),
                last: last.as_ref().and_then(|(failure, candidate)| seen_by(&call.region, failure, candidate)),
            };
            match self.rewrite(round, pass, rewriting).await? {
                Told::Read(text) => context = context.with_region(&call.region, &text),
                Told::Unreadable(why) => return self.unreadable(Role::Coder, why),
                Told::PassedOver => return self.unreadable(Role::Coder, "the recorded reply does not fit".to_owned()),
            }
        }
        let named = context.placeholders();
        if let Some(unused) = transformation.parameters.grid.keys().find(|name| !named.contains(name)) {
            let why = format!("the context does not name {{{{{unused}}}}}, which {} adds", transformation.name);
            return self.unreadable(Role::Coder, why);
        }
        self.keep_candidate(&context)?;
        Ok(Some(context))
    }

    async fn rewrite(&mut self, round: u32, pass: usize, rewriting: Rewriting) -> Result<Told<String>, BrokeOff> {
        let (task, machine, rewriter) = (self.task.clone(), self.crew.machine.clone(), self.crew.rewriter.clone());
        let part = format!("{pass}.{}", rewriting.region);
        self.ask_part_twice((round, &part), Role::Coder, Purpose::Transform, |call, earlier| {
            let (task, machine, rewriting) = (task.clone(), machine.clone(), rewriting.clone());
            asked(&rewriter, Rewrite { call, task, machine, rewriting, earlier })
        })
        .await
    }

    /// How the last try of the same order that came to a context failed, and what it was.
    fn last_try(&self) -> Result<Option<(Failure, Candidate)>, BrokeOff> {
        let so_far = self.book.so_far();
        let before = so_far.workflow.orders.last().map_or(0, |ordered| ordered.rounds_before);
        for round in so_far.rounds.iter().skip(before).rev() {
            if let (Some(Evaluation::Failed(failure)), Some(id)) = (&round.evaluation, &round.candidate) {
                return Ok(Some((failure.clone(), self.book.candidate(id)?)));
            }
        }
        Ok(None)
    }

    /// Makes a checkpoint of what the last round came to, where nothing speaks against it and none was made of it.
    pub(super) fn checkpoint_if_due(&mut self) -> Result<(), BrokeOff> {
        let so_far = self.book.so_far();
        let Some(last) = so_far.rounds.last().filter(|_| self.policy.sequence.is_some()) else { return Ok(()) };
        let made = so_far.workflow.checkpoints.iter().any(|checkpoint| checkpoint.round == last.number);
        let holds = last.evaluation.as_ref().is_some_and(Evaluation::holds);
        if made || !holds || last.steered.is_some() {
            return Ok(());
        }
        let Some(bound) = last.candidate.clone() else { return Ok(()) };
        let checkpoint = self.checkpoint_of(bound)?;
        self.note(Event::Checkpointed(checkpoint))
    }

    fn checkpoint_of(&mut self, bound: Hash) -> Result<Checkpoint, BrokeOff> {
        let best = self.book.candidate(&bound)?;
        let context = best.bound(Bindings::new());
        let order = self.book.so_far().workflow.orders.last().map(|ordered| ordered.order.clone());
        let (tuning, parent, transformation) = match order {
            None => (self.task.context().map(|context| context.tuning.clone()).unwrap_or_default(), None, None),
            Some(order) => {
                let from = self.checkpoint(&order.from)?.tuning;
                let tuning = if order.transformation == TUNE {
                    from
                } else {
                    self.definition(&order)?.space(&from).map_err(BrokeOff::Refused)?
                };
                (tuning, Some(order.from), Some(order.transformation))
            }
        };
        let so_far = self.book.so_far();
        let (round, tried) = so_far.rounds.last().map(|round| (round.number, round.tried.clone())).unwrap_or_default();
        let mut kept = fastest(&tried);
        kept.truncate(self.keeps());
        if kept.is_empty() {
            kept.push(best.bindings().clone());
        }
        let name = format!("c{}", so_far.workflow.checkpoints.len());
        let canonical = canonical(parent.as_ref(), transformation.as_deref(), &context, &tuning);
        let (id, context) = (self.book.keep(&canonical)?, self.book.keep(&context.canonical())?);
        Ok(Checkpoint { id, name, parent, transformation, round, context, bound, tuning, kept })
    }

    fn definition(&self, order: &Order) -> Result<Transformation, BrokeOff> {
        let text = self.book.fetch(&order.definition)?;
        Transformation::parse(&order.transformation, &text).map_err(|why| LogError(why.to_string()).into())
    }

    fn checkpoint(&self, id: &Hash) -> Result<Checkpoint, BrokeOff> {
        let found = self.book.so_far().workflow.checkpoint(id).cloned();
        found.ok_or_else(|| LogError(format!("the record holds no checkpoint {id} on {MAIN}")).into())
    }
}

impl Request {
    pub(super) fn of(name: &str) -> Self {
        let (from, say, tries, tuning) = (None, None, None, TuningPlan::default());
        Self { transformation: name.to_owned(), from, say, tries, tuning, trial: false }
    }

    /// That a transformation of a checkpoint be tried once, to see what a model can do (PEAK §5.2).
    #[must_use]
    pub fn trial(name: &str, from: Hash) -> Self {
        Self { from: Some(from), tries: Some(1), trial: true, ..Self::of(name) }
    }

    /// That a checkpoint's whole space be searched again, the head's where none is named.
    #[must_use]
    pub fn tune(from: Option<Hash>, tuning: TuningPlan) -> Self {
        Self { from, tuning, ..Self::of(TUNE) }
    }
}

/// An evaluation in a line.
fn outcome(evaluation: &Evaluation) -> String {
    match evaluation {
        Evaluation::Passed(timed) => format!("{} the reference's speed", timed.speedup),
        Evaluation::Counted(counts) => counts.to_string(),
        Evaluation::Compiled(code) => code.to_string(),
        Evaluation::Failed(failure) => format!("failed: {failure}"),
    }
}

/// What a region's call is shown of the last try: a compiler's message goes to the regions that it names, every other
/// failure to all.
fn seen_by(region: &str, failure: &Failure, candidate: &Candidate) -> Option<(Failure, Option<String>)> {
    if let Failure::Build { log } = failure {
        let names = |region: &str| {
            ["cpp", "cu", "hip", "hlsl", "c"].iter().any(|ending| {
                log.contains(&format!("{region}.{ending}:")) || log.contains(&format!("{region}.{ending}("))
            })
        };
        let blamed = kernelbench::region::REGIONS.iter().any(|region| names(region));
        if blamed && !names(region) {
            return None;
        }
    }
    Some((failure.clone(), candidate.region(region).map(ToOwned::to_owned)))
}
