//! What do the events add up to?

use crate::event::{End, Event, LookedUp, Reflected, Step};
use crate::head::Weighed;
use crate::llm::{CallId, Role, Usage};
use crate::search::{Reached, Tree};
use crate::validator::Validated;
use crate::workflow::{Fate, Order, Ordered, Workflow};
use kernelbench::{
    Baseline, Bindings, CandidateId, Certificate, CertificateVerdict, CodeObject, Counts, Evaluation, Failure, Hash,
    Suite, Tried,
};
use metrics::{Machine, Profile, Speedup};
use prompts::{Approaches, Suggestions, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// One turn of the loop, as far as it got.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Its number.
    pub number: u32,
    /// What it sets out to do.
    pub step: Step,
    /// What the Profiler saw of the base, or why nothing.
    pub profile: Option<Result<Profile, String>>,
    /// What the Judge said of the base.
    pub verdict: Option<Verdict>,
    /// The approaches that the Planner ranked before the first candidate.
    pub approaches: Option<Approaches>,
    /// What the Planner suggested.
    pub suggestions: Option<Suggestions>,
    /// Model calls, in order.
    pub answers: Vec<Answered>,
    /// Recorded replies that did not fit.
    pub passed_over: Vec<(Role, String)>,
    /// What the Coder looked up before it wrote, in order.
    pub looked_up: Vec<LookedUp>,
    /// Replies that could not be read.
    pub misread: Vec<(CallId, String)>,
    /// What was offered.
    pub candidate: Option<CandidateId>,
    /// The drawn configurations of it that were compared with the reference, and how those failed that did.
    pub checked: Vec<(Bindings, Option<Failure>)>,
    /// Those of them that ran under sanitizers too, and how those failed that did.
    pub sanitized: Vec<(Bindings, Option<Failure>)>,
    /// What validators of the user's had to say, by name, of which configuration.
    pub validated: Vec<(String, Bindings, Validated)>,
    /// The configurations of it that were tried, where it left tuning parameters open; then `candidate` is the bound one.
    pub tried: Vec<Tried>,
    /// The best of these by brief timings, timed again in full.
    pub retimed: Vec<Tried>,
    /// The generated operator that it came to, by hash.
    pub operator: Option<Hash>,
    /// What came of it.
    pub evaluation: Option<Evaluation>,
    /// What was read of its candidate once that had passed, or why nothing.
    pub counters: Option<Result<Profile, String>>,
    /// What came of weighing it.
    pub weighed: Option<Weighed>,
    /// What it taught, where that was written down.
    pub reflected: Option<Reflected>,
    /// Why the round has no candidate.
    pub unreadable: Option<(Role, String)>,
    /// How a person ended it before a call: `left out`, or what is to be said otherwise.
    pub steered: Option<String>,
    /// Why its candidate could not be timed.
    pub not_timed: Option<String>,
}

impl Round {
    /// Whether it is over.
    #[must_use]
    pub fn finished(&self) -> bool {
        let nothing_came = self.unreadable.is_some() || self.steered.is_some() || self.not_timed.is_some();
        self.evaluation.is_some() || nothing_came
    }

    /// Whether a checkpoint may come of it: it is not over, or it passed.
    fn may_be_a_checkpoint(&self) -> bool {
        !self.finished() || self.evaluation.as_ref().is_some_and(Evaluation::holds)
    }

    /// The metrics that the Judge says it reasons from and that its profile does not have (CudaForge §2.2: three or four of
    /// those shown). None where there was no profile: then it was shown times alone.
    #[must_use]
    pub fn unmeasured(&self) -> Vec<&str> {
        let (Some(Verdict::Optimization(optimization)), Some(Ok(profile))) = (&self.verdict, &self.profile) else {
            return vec![];
        };
        let readings = || profile.readings.iter().chain(profile.kernels.iter().flat_map(|kernel| &kernel.readings));
        let is = |named: &str, name: &str| {
            let [named, name] = [named, name].map(str::to_lowercase);
            named.contains(&name) || (named.len() > 2 && name.contains(&named))
        };
        let shown = |named: &&str| {
            readings().any(|one| is(named, &one.name) || one.stands_for.as_ref().is_some_and(|name| is(named, name)))
        };
        optimization.metrics.iter().map(|named| named.trim()).filter(|named| !shown(named)).collect()
    }

    /// Takes in what a profiler read: of its own candidate once that is evaluated, else of its base.
    fn profiled(&mut self, candidate: &CandidateId, profile: Result<Profile, String>) {
        let own = self.evaluation.is_some() && self.candidate.as_ref() == Some(candidate);
        *(if own { &mut self.counters } else { &mut self.profile }) = Some(profile);
    }
}

/// A model call that was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Which call.
    pub call: CallId,
    /// The prompt, by hash.
    pub prompt: Hash,
    /// The reply, by hash.
    pub reply: Hash,
    /// Who answered.
    pub model: String,
    /// Tokens.
    pub usage: Option<Usage>,
    /// Dollars.
    pub usd: Option<f64>,
    /// In milliseconds.
    pub latency_ms: u64,
}

/// The fastest right answer so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// Which candidate.
    pub candidate: CandidateId,
    /// How fast, as measured in its round.
    pub speedup: Speedup,
    /// In which round.
    pub round: u32,
}

/// The story of one task. A fold over its events: see [`Trajectory::apply`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trajectory {
    /// The task's name.
    pub name: String,
    /// The task as JSON, by hash.
    pub task: Option<Hash>,
    /// The policy as TOML, by hash.
    pub policy: Option<Hash>,
    /// What answers in the model's place.
    pub model: String,
    /// The machine.
    pub machine: Option<Machine>,
    /// The shapes.
    pub suite: Option<Suite>,
    /// What was said when the shapes were chosen.
    pub suite_notes: Vec<String>,
    /// The reference's times.
    pub baseline: Option<Baseline>,
    /// Calls made before the first round.
    pub opening: Vec<Answered>,
    /// In order; only the last may be unfinished.
    pub rounds: Vec<Round>,
    /// What the Planner proposed, by round: its words, and whether the policy took it.
    pub proposals: BTreeMap<u32, (String, bool)>,
    /// Its checkpoints and what was ordered, where transformations are applied.
    pub workflow: Workflow,
    /// What scripts printed with which values, by hash; how they failed.
    pub printed: BTreeMap<(Hash, Bindings), Result<Hash, Failure>>,
    /// The nodes of its search.
    pub tree: Tree,
    /// Certificates, in order: at most the last certifies.
    pub certificates: Vec<Certificate>,
    /// How long devices were held for it, in microseconds.
    pub leased_us: u64,
    /// Why it broke off, if it did and was not resumed.
    pub broke_off: Option<String>,
    /// Why it ended, if it has.
    pub end: Option<End>,
    /// How many candidates models may write in all, where it was given another number than its policy's.
    pub extended_to: Option<u32>,
    /// The rounds before which the Planner's model proposed to stop and whoever runs it had it go on, and how often.
    pub overruled: BTreeMap<u32, u32>,
}

impl Trajectory {
    /// The rounds that are over.
    #[must_use]
    pub fn finished(&self) -> impl DoubleEndedIterator<Item = &Round> {
        self.rounds.iter().filter(|round| round.finished())
    }

    /// The round that began and is not over.
    #[must_use]
    pub fn open(&self) -> Option<&Round> {
        self.rounds.last().filter(|round| !round.finished())
    }

    /// The evaluation of a candidate: that of the last round that offered it and came to one.
    #[must_use]
    pub fn evaluation(&self, candidate: &CandidateId) -> Option<&Evaluation> {
        let mut rounds = self.rounds.iter().rev().filter(|round| round.candidate.as_ref() == Some(candidate));
        rounds.find_map(|round| round.evaluation.as_ref())
    }

    /// How many candidates models have written, or should have.
    #[must_use]
    pub fn written(&self) -> u32 {
        self.finished().filter(|round| round.step != Step::Baseline).count() as u32
    }

    /// How many of a run's rounds are spent: the candidates that models have written, or should have, and whatever was looked
    /// up, each thing once (Hawkeye §3: productive turns).
    #[must_use]
    pub fn spent(&self) -> u32 {
        self.spent_in(self.rounds.iter())
    }

    /// The same before the round that is open.
    #[must_use]
    pub fn spent_before(&self) -> u32 {
        self.spent_in(self.finished())
    }

    fn spent_in<'a>(&self, rounds: impl Iterator<Item = &'a Round>) -> u32 {
        let looked_up = rounds.flat_map(|round| &round.looked_up).map(|one| &one.lookup);
        self.written() + looked_up.collect::<BTreeSet<_>>().len() as u32
    }

    /// The approaches that the Planner ranked before the first candidate, where it did.
    #[must_use]
    pub fn approaches(&self) -> Option<&Approaches> {
        self.rounds.iter().find_map(|round| round.approaches.as_ref())
    }

    /// Which of them a round's first candidate carries out, counted from 0: the one behind those whose first candidates failed.
    /// `None` where none is left, or none was ranked.
    #[must_use]
    pub fn next_approach(&self, number: u32) -> Option<(&Approaches, usize)> {
        let failed = |round: &&Round| {
            let evaluated = round.evaluation.as_ref();
            round.number < number && round.step == Step::Seed && evaluated.is_some_and(|evaluation| !evaluation.holds())
        };
        let at = self.rounds.iter().filter(failed).count();
        self.approaches().filter(|approaches| at < approaches.items.len()).map(|approaches| (approaches, at))
    }

    /// The number of the round that comes next.
    #[must_use]
    pub fn next_round(&self) -> u32 {
        self.rounds.last().map_or(0, |round| round.number) + 1
    }

    /// What was read of a candidate when it was weighed.
    #[must_use]
    pub fn counters(&self, candidate: &CandidateId) -> Option<&Profile> {
        let mut rounds = self.rounds.iter().rev().filter(|round| round.candidate.as_ref() == Some(candidate));
        rounds.find_map(|round| round.counters.as_ref()?.as_ref().ok())
    }

    /// The last profile of a candidate: when it was weighed, or as the base of a later round.
    #[must_use]
    pub fn profile_of(&self, candidate: &CandidateId) -> Option<&Profile> {
        let as_base = |round: &'_ Round| round.step.base() == Some(candidate);
        let mut of_base = self.rounds.iter().rev().filter(|round| as_base(round));
        self.counters(candidate).or_else(|| of_base.find_map(|round| round.profile.as_ref()?.as_ref().ok()))
    }

    /// The features that a candidate was to bring in: those that the Judge named for it, or for the one that it mends.
    #[must_use]
    pub fn features_of(&self, candidate: &CandidateId) -> Vec<String> {
        let mut wanted = candidate;
        for round in self.rounds.iter().rev().filter(|round| round.finished()) {
            if round.candidate.as_ref() != Some(wanted) {
                continue;
            }
            match (&round.step, &round.verdict) {
                (Step::Fix { base }, _) => wanted = base,
                (_, Some(Verdict::Optimization(optimization))) => return optimization.features.clone(),
                _ => return vec![],
            }
        }
        vec![]
    }

    /// The fastest correct candidate that no certificate has refused (CudaForge §2.1; Astra, Algorithm 1).
    #[must_use]
    pub fn best(&self) -> Option<Best> {
        let correct = self.finished().filter_map(|round| {
            let (candidate, timed) = (round.candidate.clone()?, round.evaluation.as_ref()?.passed()?);
            Some(Best { candidate, speedup: timed.speedup, round: round.number })
        });
        correct
            .filter(|best| !self.refused(&best.candidate))
            .reduce(|best, next| if next.speedup.ratio > best.speedup.ratio { next } else { best })
    }

    /// The candidate that is right on a processor that is emulated, and its instructions; the reference is none.
    #[must_use]
    pub fn counted(&self) -> Option<(&CandidateId, &Counts)> {
        let written = self.finished().filter(|round| round.step != Step::Baseline);
        written.into_iter().find_map(|round| match (&round.candidate, &round.evaluation) {
            (Some(candidate), Some(Evaluation::Counted(counts))) => Some((candidate, counts)),
            _ => None,
        })
    }

    /// The last candidate that compiles for a GPU that is not here, and what its compiler says; the reference is none.
    #[must_use]
    pub fn compiled(&self) -> Option<(&CandidateId, &CodeObject)> {
        let written = self.finished().filter(|round| round.step != Step::Baseline);
        written.rev().find_map(|round| match (&round.candidate, &round.evaluation) {
            (Some(candidate), Some(Evaluation::Compiled(code))) => Some((candidate, code)),
            _ => None,
        })
    }

    /// The certificate that certifies, if there is one.
    #[must_use]
    pub fn certified(&self) -> Option<&Certificate> {
        self.certificates.iter().find(|c| matches!(c.verdict, CertificateVerdict::Certified(_)))
    }

    /// What rounds taught, in order, as far as it was written down.
    #[must_use]
    pub fn reflected(&self) -> impl DoubleEndedIterator<Item = &Reflected> {
        self.rounds.iter().filter_map(|round| round.reflected.as_ref())
    }

    fn refused(&self, candidate: &CandidateId) -> bool {
        let refused = |c: &&Certificate| matches!(c.verdict, CertificateVerdict::Refused(_));
        self.certificates.iter().filter(refused).any(|c| c.candidate == *candidate)
    }

    /// Every model call that was answered.
    pub fn answers(&self) -> impl Iterator<Item = &Answered> {
        self.opening.iter().chain(self.rounds.iter().flat_map(|round| &round.answers))
    }

    /// Takes in one event. What a log cannot have written (a verdict before any round) is left out.
    pub fn apply(&mut self, event: Event) {
        if !matches!(event, Event::BrokeOff { .. }) {
            self.broke_off = None;
        }
        match event {
            Event::Opened { task, name, policy, model, machine, .. } => {
                (self.name, self.model) = (name, model);
                (self.task, self.policy, self.machine) = (Some(task), Some(policy), Some(machine));
            }
            Event::SuiteFrozen { suite, notes } => (self.suite, self.suite_notes) = (Some(suite), notes),
            Event::Prepared { baseline } => self.baseline = Some(baseline),
            Event::Began { round, step } => self.begin(round, step),
            Event::Answered { call, prompt, reply, model, usage, usd, latency_ms, .. } => {
                let answered = Answered { call, prompt, reply, model, usage, usd, latency_ms };
                match self.rounds.last_mut() {
                    Some(round) => round.answers.push(answered),
                    None => self.opening.push(answered),
                }
            }
            Event::Proposed { round, proposal, taken } => {
                self.proposals.insert(round, (proposal, taken));
            }
            Event::Reflected(reflected) => self.in_round(|round| round.reflected = Some(reflected)),
            Event::Certified { certificate, .. } => self.certificates.push(certificate),
            Event::BrokeOff { why } => self.broke_off = Some(why),
            Event::Ended { end } => self.end = Some(end),
            Event::Extended { rounds } => self.extend(rounds),
            Event::Spent { lease, .. } => self.leased_us += lease.map_or(0, |lease| lease.us()),
            Event::Asked { .. } => {}
            Event::LookedUp(looked_up) => self.in_round(|round| round.looked_up.push(looked_up)),
            Event::Misread { call, why } => self.in_round(|round| round.misread.push((call, why))),
            Event::PassedOver { role, why } => self.in_round(|round| round.passed_over.push((role, why))),
            Event::Profiled { candidate, profile } => self.in_round(|round| round.profiled(&candidate, profile)),
            Event::Weighed(weighed) => self.in_round(|round| round.weighed = Some(weighed)),
            Event::Judged { verdict, .. } => self.in_round(|round| round.verdict = Some(verdict)),
            Event::Ranked { approaches } => self.in_round(|round| round.approaches = Some(approaches)),
            Event::Suggested { suggestions, .. } => self.in_round(|round| round.suggestions = Some(suggestions)),
            Event::Wrote { candidate } => self.in_round(|round| round.candidate = Some(candidate)),
            Event::Tuned { bound, tried, .. } => {
                self.in_round(|round| (round.candidate, round.tried) = (Some(bound), tried));
            }
            Event::Ordered(order) => {
                // A workflow that goes on is certified anew at its end.
                if self.end.take().is_some() {
                    self.certificates
                        .retain(|certificate| matches!(certificate.verdict, CertificateVerdict::Refused(_)));
                }
                self.workflow.ordered(order, self.rounds.len());
            }
            Event::Validated { bindings, validator, found, .. } => {
                self.in_round(|round| round.validated.push((validator, bindings, found)));
            }
            Event::Checked { bindings, failure, sanitized: true, .. } => {
                self.in_round(|round| round.sanitized.push((bindings, failure)));
            }
            Event::Checked { bindings, failure, .. } => self.in_round(|round| round.checked.push((bindings, failure))),
            Event::Tried { tried } => self.in_round(|round| round.tried.push(tried)),
            Event::Retimed { tried } => self.in_round(|round| round.retimed.push(tried)),
            Event::Generated { operator } => self.in_round(|round| round.operator = Some(operator)),
            Event::Printed { script, bindings, text } => {
                self.printed.insert((script, bindings), text);
            }
            Event::Expanded { parent, action, point, candidate, .. } => {
                self.tree.expanded(parent, action, point, candidate);
            }
            Event::Simulated { node, found, .. } => self.tree.simulated(node, Reached::from(&found)),
            Event::Offered { node, candidates, dropped } => self.tree.offered(node, candidates, dropped),
            Event::Checkpointed(checkpoint) => self.workflow.made(checkpoint),
            Event::Restored { branch, checkpoint, drops } | Event::Branched { branch, checkpoint, drops } => {
                if drops {
                    self.drop_order();
                }
                self.workflow.moved(branch, checkpoint);
            }
            Event::Named { name, checkpoint } => {
                self.workflow.names.insert(name, checkpoint);
            }
            Event::Evaluated { evaluation, .. } => self.in_round(|round| round.evaluation = Some(evaluation)),
            Event::NotTimed { why, .. } => self.in_round(|round| round.not_timed = Some(why)),
            Event::Steered { say, .. } => {
                let how = say.as_ref().map_or("left out".to_owned(), |say| format!("to be said otherwise: {say}"));
                self.in_round(|round| round.steered = Some(how));
                if say.is_none() {
                    self.workflow.decided(Fate::LeftOut);
                }
            }
            Event::Unreadable { role, why } => self.in_round(|round| round.unreadable = Some((role, why))),
        }
    }

    /// The last order, with how many of its tries were made, where a checkpoint may come of it still: it is open, or a try of it
    /// passed and the checkpoint is all that is missing.
    #[must_use]
    pub fn under_way(&self) -> Option<(&Order, u32)> {
        let Ordered { order, rounds_before, fate } = self.workflow.orders.last()?;
        let tries = self.rounds.iter().skip(*rounds_before);
        let passed = || tries.clone().any(Round::may_be_a_checkpoint);
        let missing =
            || (*fate == Fate::Open && !order.trial && passed()).then(|| (order, order.tries.saturating_sub(1)));
        self.workflow.open_order(&self.rounds).or_else(missing)
    }

    /// Drops the last order: its last try is over, and comes to no checkpoint.
    fn drop_order(&mut self) {
        let before = self.workflow.orders.last().map_or(0, |ordered| ordered.rounds_before);
        for round in self.rounds.iter_mut().skip(before).filter(|round| round.may_be_a_checkpoint()) {
            round.steered = Some("dropped: the workflow went on from another checkpoint".to_owned());
        }
        self.workflow.decided(Fate::Dropped);
    }

    /// What ended it is no end any more. What was certified was the best of then; what was refused stays refused.
    fn extend(&mut self, rounds: Option<u32>) {
        if self.end.take() == Some(End::Stopped) {
            let next = self.next_round();
            self.proposals.remove(&next);
            *self.overruled.entry(next).or_default() += 1;
        }
        self.extended_to = rounds.or(self.extended_to);
        self.certificates.retain(|c| matches!(c.verdict, CertificateVerdict::Refused(_)));
    }

    fn in_round(&mut self, take_in: impl FnOnce(&mut Round)) {
        if let Some(round) = self.rounds.last_mut() {
            take_in(round);
        }
    }

    fn begin(&mut self, number: u32, step: Step) {
        self.rounds.push(Round {
            number,
            step,
            profile: None,
            verdict: None,
            approaches: None,
            suggestions: None,
            answers: vec![],
            passed_over: vec![],
            looked_up: vec![],
            misread: vec![],
            candidate: None,
            checked: vec![],
            sanitized: vec![],
            validated: vec![],
            tried: vec![],
            retimed: vec![],
            operator: None,
            evaluation: None,
            counters: None,
            weighed: None,
            reflected: None,
            unreadable: None,
            steered: None,
            not_timed: None,
        });
    }
}

impl FromIterator<Event> for Trajectory {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        let mut trajectory = Self::default();
        events.into_iter().for_each(|event| trajectory.apply(event));
        trajectory
    }
}
