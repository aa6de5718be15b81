//! The round in which a generated operator is searched for its fastest form (QiMeng-TensorOp §3.3).
//!
//! What comes next is a function of the tree in the record. Nodes in flight are waited for in the order in which they were
//! made, so a record is made again whatever took how long.

use super::talk::{Told, asked, undisturbed};
use super::{BrokeOff, Loop};
use crate::answer;
use crate::event::Event;
use crate::lease::{Work, Worked};
use crate::llm::{Purpose, Role};
use crate::search::{Action, Ground, Mode, Next, Pace, Point, REACH, Reached, Search, Tree};
use crate::tester::Examine;
use futures::TryFutureExt;
use kernelbench::assembly::Orders;
use kernelbench::{Baseline, Evaluation, Found, Operator, in_words};
use prompts::{Choosing, Offering, Taken};
use std::collections::BTreeMap;
use tokio::task::JoinHandle;

/// Swaps that a model is shown as examples, at most.
const SHOWN_SWAPS: usize = 16;
/// Instructions of blocks that a model is shown, at most.
const SHOWN_INSTRUCTIONS: usize = 160;

/// A node that is being built, checked and timed.
type Flight = JoinHandle<Result<Result<Worked<Evaluation>, String>, BrokeOff>>;

/// A search under way.
struct Hunt {
    round: u32,
    search: Search,
    operator: Operator,
    pace: Pace,
    flights: BTreeMap<usize, Flight>,
}

impl Loop {
    /// The whole search: until the evaluations are spent or nothing is left to try. A limit ends it with what it has.
    pub(super) async fn hunt(&mut self, round: u32) -> Result<(), BrokeOff> {
        let hash = self.book.so_far().rounds.iter().rev().find_map(|round| round.operator.clone());
        let hash = hash.ok_or_else(|| BrokeOff::Gone("a search has no operator in the record".to_owned()))?;
        let mut hunt = Hunt {
            round,
            search: self.search(),
            operator: self.operator(&hash)?,
            pace: self.pace(),
            flights: BTreeMap::new(),
        };
        loop {
            match self.step(&mut hunt).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(BrokeOff::Limit(_) | BrokeOff::RecordEnds(_)) => {
                    self.land_all(&mut hunt).await?;
                    break;
                }
                Err(why) => return Err(why),
            }
        }
        self.examine_best(&hunt).await
    }

    /// What the reference's speedups stand for.
    fn pace(&self) -> Pace {
        let so_far = self.book.so_far();
        let none = Pace { reference: None, peak: self.crew.machine.peak_flops, tera: false };
        so_far
            .baseline
            .as_ref()
            .map_or(none, |baseline| Pace::of(&self.task, &self.suite(), baseline, &self.crew.machine))
    }

    fn tree(&self) -> &Tree {
        &self.book.so_far().tree
    }

    /// One thing of the search; whether there is another.
    async fn step(&mut self, hunt: &mut Hunt) -> Result<bool, BrokeOff> {
        match self.tree().next(&hunt.search) {
            Next::Root => {
                let bindings = hunt.operator.first().map_err(BrokeOff::Refused)?;
                self.make(hunt, None, None, Point { bindings, orders: Orders::new() }).await?;
            }
            Next::Offer(at) => self.offer(hunt, at).await?,
            Next::Expand(at) => {
                self.within_limits()?;
                self.expand(hunt, at).await?;
            }
            Next::Await(at) => self.land(hunt, at).await?,
            Next::Spent | Next::Exhausted => return Ok(false),
        }
        Ok(true)
    }

    /// Chooses an action of a node, and makes a node by it. Actions whose points were reached meanwhile are dropped first.
    async fn expand(&mut self, hunt: &mut Hunt, at: usize) -> Result<(), BrokeOff> {
        let untried: Vec<Action> = self.tree().untried(at).into_iter().cloned().collect();
        let parent = self.tree().nodes()[at].point.clone();
        let before = self.assembly(&hunt.operator, &parent.bindings).await?;
        let ground = Ground { point: &parent, space: &hunt.operator.tuning, printed: before.as_ref() };
        let stale: Vec<Action> = untried.iter().filter(|action| !self.is_new(&ground, action)).cloned().collect();
        if !stale.is_empty() {
            return self.drop_actions(at, &stale);
        }
        let action = match hunt.search.mode {
            Mode::Naive => untried.first().cloned(),
            Mode::Guided | Mode::NoHistory => Some(self.choose(hunt, at, &untried).await?),
        };
        let action = action.ok_or_else(|| BrokeOff::Gone("a node without actions was expanded".to_owned()))?;
        let mut point = ground.after(&action).map_err(BrokeOff::Refused)?;
        if !point.orders.is_empty() && point.bindings != parent.bindings {
            let after = self.assembly(&hunt.operator, &point.bindings).await?;
            let carried = after.zip(before).map(|(after, before)| after.carried(&before, &point.orders));
            point.orders = carried.unwrap_or_default();
        }
        if self.tree().knows(&point) {
            return self.drop_actions(at, &[action]);
        }
        self.make(hunt, Some(at), Some(action), point).await
    }

    /// Takes actions from those of a node: they lead where a node stands already.
    fn drop_actions(&mut self, at: usize, gone: &[Action]) -> Result<(), BrokeOff> {
        let node = &self.tree().nodes()[at];
        let kept = node.candidates.iter().flatten().filter(|action| !gone.contains(action)).cloned().collect();
        let dropped = node.dropped + gone.len() as u32;
        self.note(Event::Offered { node: at, candidates: kept, dropped })
    }

    /// Makes a node and sets it off; one whose script fails has failed already.
    async fn make(
        &mut self,
        hunt: &mut Hunt,
        parent: Option<usize>,
        action: Option<Action>,
        point: Point,
    ) -> Result<(), BrokeOff> {
        let node = self.tree().nodes().len();
        let made = self.materialized(&hunt.operator, &point).await?;
        let candidate = made.as_ref().ok().map(kernelbench::Candidate::id);
        self.note(Event::Expanded { node, parent, action, point, candidate })?;
        if let Err(failure) = made {
            return self.note(Event::Simulated { node, candidate: None, found: Ok(Found::Failed(failure)) });
        }
        self.take_off(hunt, node).await
    }

    /// Sets a node off: its build and its check run beside whatever else is done, its timing alone on the device.
    async fn take_off(&mut self, hunt: &mut Hunt, at: usize) -> Result<(), BrokeOff> {
        let point = self.tree().nodes()[at].point.clone();
        let candidate = match self.materialized(&hunt.operator, &point).await? {
            Ok(candidate) => candidate,
            Err(failure) => {
                return self.note(Event::Simulated { node: at, candidate: None, found: Ok(Found::Failed(failure)) });
            }
        };
        let (task, suite, plan) = (self.task.clone(), self.suite(), self.policy.timing.glance());
        let self_difference = self.book.so_far().baseline.as_ref().map_or(0.0, Baseline::self_difference);
        let (examine, tester) =
            (Examine { task, candidate, suite, plan, self_difference }, self.crew.tester.examine.clone());
        let flight = async move { undisturbed(|| asked(&tester, examine.clone())).await };
        hunt.flights.insert(at, tokio::spawn(flight));
        Ok(())
    }

    /// Waits for a node, and notes what came of it. One that was in flight when the program was killed is set off again.
    async fn land(&mut self, hunt: &mut Hunt, at: usize) -> Result<(), BrokeOff> {
        let flying: Vec<usize> = self.tree().in_flight().filter(|at| !hunt.flights.contains_key(at)).collect();
        for lost in flying {
            self.take_off(hunt, lost).await?;
        }
        let Some(flight) = hunt.flights.remove(&at) else { return Ok(()) };
        let landed = flight.await.map_err(|why| BrokeOff::Gone(format!("an evaluation broke: {why}")))??;
        let found = match landed {
            Ok(worked) => Ok(Found::from(self.note_spent(Work::Examine, worked)?)),
            Err(why) => Err(why),
        };
        let candidate = self.tree().nodes()[at].candidate.clone();
        self.note(Event::Simulated { node: at, candidate, found })
    }

    async fn land_all(&mut self, hunt: &mut Hunt) -> Result<(), BrokeOff> {
        let flying: Vec<usize> = self.tree().in_flight().collect();
        for at in flying {
            self.land(hunt, at).await?;
        }
        Ok(())
    }

    /// One of a node's actions, by a model; the first where its reply names none of them even when asked again.
    async fn choose(&mut self, hunt: &Hunt, at: usize, untried: &[Action]) -> Result<Action, BrokeOff> {
        let candidates: Vec<String> = untried.iter().map(ToString::to_string).collect();
        let told_history = hunt.search.mode == Mode::Guided;
        let choosing = Choosing {
            point: words(&self.tree().nodes()[at].point),
            path: told_history.then(|| self.tree().path(at).iter().map(|at| self.taken(hunt, *at)).collect()),
            candidates: candidates.clone(),
        };
        let (llm, page) = (self.crew.llm.clone(), self.crew.prompts.clone());
        let first = page.action(&self.task, &choosing);
        // A choice that led where a node stands is dropped, and the same node is chosen for anew.
        let part = format!("{}-{}", self.tree().nodes().len(), self.tree().nodes()[at].dropped);
        let told = self.ask_part_twice((hunt.round, &part), Role::Planner, Purpose::Action, |call, earlier| {
            let prompt = earlier.map_or_else(|| first.clone(), |e| page.again(&e.prompt, &e.reply, &e.why));
            let read = |reply: &str| prompts::read_action(reply, &candidates);
            answer::ask(&*llm, call, prompt, read).map_err(BrokeOff::from)
        });
        let named = if let Told::Read(name) = told.await? { name.parse().ok() } else { None };
        let none = || BrokeOff::Gone("a node without actions was expanded".to_owned());
        named.or_else(|| untried.first().cloned()).ok_or_else(none)
    }

    /// Finds the actions of a node. What a model names and is not legal, or is known, is dropped and counted; where nothing is
    /// left, they are drawn.
    async fn offer(&mut self, hunt: &Hunt, at: usize) -> Result<(), BrokeOff> {
        let point = self.tree().nodes()[at].point.clone();
        let printed = self.assembly(&hunt.operator, &point.bindings).await?;
        let ground = Ground { point: &point, space: &hunt.operator.tuning, printed: printed.as_ref() };
        let (mut candidates, mut dropped) = (vec![], 0);
        // Of an operator of one form nobody is asked what to try.
        let may_change = hunt.operator.tuning.points() > 1 || printed.is_some();
        if hunt.search.mode != Mode::Naive && may_change {
            for text in self.named(hunt, at, &ground).await? {
                match text.parse::<Action>().ok().filter(|action| self.is_new(&ground, action)) {
                    Some(action) if !candidates.contains(&action) && candidates.len() < hunt.search.candidates() => {
                        candidates.push(action);
                    }
                    _ => dropped += 1,
                }
            }
        }
        if candidates.is_empty() {
            candidates = hunt.search.drawn(&ground, self.tree(), at);
        }
        self.note(Event::Offered { node: at, candidates, dropped })
    }

    fn is_new(&self, ground: &Ground<'_>, action: &Action) -> bool {
        ground.after(action).is_ok_and(|point| !self.tree().knows(&point))
    }

    /// What a model names as actions of a node; nothing where its replies cannot be read.
    async fn named(&mut self, hunt: &Hunt, at: usize, ground: &Ground<'_>) -> Result<Vec<String>, BrokeOff> {
        let offering = self.offering(hunt, at, ground);
        let (llm, page) = (self.crew.llm.clone(), self.crew.prompts.clone());
        let first = page.space(&self.task, &self.crew.machine, &offering);
        let part = at.to_string();
        let told = self.ask_part_twice((hunt.round, &part), Role::Planner, Purpose::Space, |call, earlier| {
            let prompt = earlier.map_or_else(|| first.clone(), |e| page.again(&e.prompt, &e.reply, &e.why));
            answer::ask(&*llm, call, prompt, prompts::read_space).map_err(BrokeOff::from)
        });
        Ok(if let Told::Read(named) = told.await? { named } else { vec![] })
    }

    fn offering(&self, hunt: &Hunt, at: usize, ground: &Ground<'_>) -> Offering {
        let (tree, node) = (self.tree(), &self.tree().nodes()[at]);
        let told = |child: usize| {
            let before = tree.nodes()[child].parent.and_then(|parent| tree.nodes()[parent].rate());
            let factor = tree.nodes()[child].rate().zip(before).map(|(rate, before)| rate / before);
            (self.taken(hunt, child), factor)
        };
        let swaps: Vec<String> = ground.swaps(REACH).iter().map(ToString::to_string).collect();
        let step = swaps.len().div_ceil(SHOWN_SWAPS).max(1);
        Offering {
            point: words(&node.point),
            came: node.rate().map(|rate| hunt.pace.words(rate)).unwrap_or_default(),
            tuning: hunt.operator.tuning.clone(),
            blocks: blocks(ground),
            swaps: swaps.into_iter().step_by(step).collect(),
            history: (hunt.search.mode == Mode::Guided).then(|| (1..tree.nodes().len()).map(told).collect()),
            most: hunt.search.candidates(),
        }
    }

    /// A node as models are told of it.
    fn taken(&self, hunt: &Hunt, at: usize) -> Taken {
        let node = &self.tree().nodes()[at];
        let came = match &node.reached {
            Reached::Rate(rate) => hunt.pace.words(*rate),
            Reached::Failed(why) => format!("failed: {why}"),
            Reached::InFlight => "being evaluated".to_owned(),
        };
        Taken { action: node.action.as_ref().map_or("first values".to_owned(), ToString::to_string), came }
    }

    /// Examines the fastest node in full: with that the round ends.
    async fn examine_best(&mut self, hunt: &Hunt) -> Result<(), BrokeOff> {
        let first = || hunt.operator.first().map(|bindings| Point { bindings, orders: Orders::new() });
        let best = self.tree().best().map(|(at, _)| self.tree().nodes()[at].point.clone());
        let point = best.map_or_else(first, Ok).map_err(BrokeOff::Refused)?;
        match self.materialized(&hunt.operator, &point).await? {
            Ok(candidate) => {
                self.keep_candidate(&candidate)?;
                self.examine(candidate).await
            }
            Err(failure) => Err(BrokeOff::Gone(format!("the fastest node is gone: {failure}"))),
        }
    }
}

/// A point in words.
pub(crate) fn words(point: &Point) -> String {
    let orders: Vec<String> = point.orders.keys().map(|block| format!("{block} in another order")).collect();
    let values = in_words(&point.bindings);
    if orders.is_empty() { values } else { format!("{values}; {}", orders.join(", ")) }
}

/// The blocks of a node's instructions, in their order there, as far as they are shown.
fn blocks(ground: &Ground<'_>) -> Vec<(String, Vec<String>)> {
    let Some(Ok(now)) = ground.printed.map(|printed| printed.ordered(&ground.point.orders)) else { return vec![] };
    let (mut shown, mut left) = (vec![], SHOWN_INSTRUCTIONS);
    for block in now.blocks().iter().filter(|block| block.len() > 1) {
        if block.len() > left {
            break;
        }
        left -= block.len();
        let instruction = |at: usize| now.instruction(&block.name, at).unwrap_or_default().to_owned();
        shown.push((block.name.clone(), (0..block.len()).map(instruction).collect()));
    }
    shown
}
