//! One round, top to bottom: profile, advise, write, examine. What is already in the record is not done again.

use super::talk::{Told, asked, undisturbed};
use super::{BrokeOff, Loop};
use super::{lookup, same_code};
use crate::answer;
use crate::coder::{Assignment, Write};
use crate::event::{End, Event, Step};
use crate::judge::{Consider, Evidence};
use crate::lease::Work;
use crate::llm::{Purpose, Role};
use crate::policy::{self, Memory, STOP};
use crate::profiler::TakeProfile;
use crate::tester::{Examine, Searched, Tune};
use crate::trajectory::Round;
use futures::TryFutureExt;
use kernelbench::{Baseline, Candidate, Evaluation, Suite, Tuned};
use metrics::{Profile, facts};
use prompts::{Looking, PlanLine, Prompt, Speaker, Suggestions, Turn, Verdict, Written};
use std::ops::ControlFlow;

/// The candidate that a round starts from, and what came of it.
struct Base {
    candidate: Candidate,
    evaluation: Evaluation,
}

impl Loop {
    /// One round. Ends with an evaluation, or with a word why there is none.
    pub(super) async fn round(&mut self, step: Step) -> Result<(), BrokeOff> {
        self.order_if_due(&step)?;
        let round = self.begin(&step)?;
        let candidate = match step {
            Step::Baseline if self.policy.sequence.is_some() => return self.initial().await,
            Step::Transform { .. } => return self.transform(round).await,
            Step::Generate => return self.generate(round).await,
            Step::Repair { .. } => return self.repair(round).await,
            Step::Search { .. } => return self.hunt(round).await,
            Step::Baseline => Some(self.baseline()?),
            Step::Seed => {
                self.rank(round).await?;
                let assignment = self.beginning()?;
                self.write(round, assignment).await?
            }
            _ => {
                let base = self.base(&step)?;
                let profile = self.profile(&base).await?;
                match self.assignment(round, step, base, profile).await? {
                    Some(assignment) => self.write(round, assignment).await?,
                    None => None,
                }
            }
        };
        match candidate {
            Some(candidate) => self.examine(candidate).await,
            None => Ok(()),
        }
    }

    /// Begins a round, or takes up the one that is open. Gives its number.
    fn begin(&mut self, step: &Step) -> Result<u32, BrokeOff> {
        if let Some(open) = self.book.so_far().open() {
            return Ok(open.number);
        }
        let last = self.book.so_far().rounds.last().map_or(0, |round| round.number);
        let round = if *step == Step::Baseline { 0 } else { last + 1 };
        self.note(Event::Began { round, step: step.clone() })?;
        Ok(round)
    }

    /// The reference as a candidate.
    fn baseline(&mut self) -> Result<Candidate, BrokeOff> {
        let candidate = Candidate::new(self.task.reference_as_candidate());
        self.keep_candidate(&candidate)?;
        Ok(candidate)
    }

    fn base(&self, step: &Step) -> Result<Base, BrokeOff> {
        let missing = || BrokeOff::Gone(format!("the step {} has no base in the record", step.name()));
        let id = step.base().ok_or_else(missing)?;
        let evaluation = self.book.so_far().evaluation(id).cloned().ok_or_else(missing)?;
        Ok(Base { candidate: self.book.candidate(id)?, evaluation })
    }

    /// Where the base's time goes, if the policy wants to know.
    async fn profile(&mut self, base: &Base) -> Result<Option<Profile>, BrokeOff> {
        let passed = base.evaluation.passed().is_some();
        let (wanted, known) =
            self.opened(|round| (policy::profiles(&self.policy, round, passed), round.profile.clone()));
        if let Some(known) = known {
            return Ok(known.ok());
        }
        // What was weighed was profiled then.
        if let Some(known) = self.counters(&base.candidate.id()).filter(|_| wanted) {
            return Ok(Some(known));
        }
        if !wanted {
            return Ok(None);
        }
        let profile = match &base.evaluation {
            Evaluation::Failed(failure) => Err(format!("not measured: {failure}")),
            Evaluation::Counted(_) => Err("not measured: its processor is emulated".to_owned()),
            Evaluation::Compiled(_) => Err("not measured: its GPU is not here".to_owned()),
            Evaluation::Passed(_) => {
                let (task, candidate, suite) = (self.task.clone(), base.candidate.clone(), self.suite());
                let worked = asked(&self.crew.profiler, TakeProfile { task, candidate, suite }).await?;
                self.note_spent(Work::Profile, worked)?
            }
        };
        self.note(Event::Profiled { candidate: base.candidate.id(), profile: profile.clone() })?;
        Ok(profile.ok())
    }

    /// What the Coder is to do with the base; `None` when the advice on it could not be read and the round is over.
    async fn assignment(
        &mut self,
        round: u32,
        step: Step,
        base: Base,
        profile: Option<Profile>,
    ) -> Result<Option<Assignment>, BrokeOff> {
        let Base { candidate, evaluation } = base;
        let passed = evaluation.passed().is_some();
        Ok(Some(match (step, evaluation) {
            (Step::Refine { .. }, evaluation) => Assignment::Refine { candidate, evaluation, profile },
            (Step::Retry { .. }, _) => Assignment::Retry { candidate, passed },
            (Step::Suggest { .. }, evaluation) => {
                let suggestions = match self.suggest(round, &candidate, &evaluation, profile.as_ref()).await? {
                    Told::Read(suggestions) => Some(suggestions),
                    Told::PassedOver => None,
                    Told::Unreadable(why) => return self.unreadable(Role::Planner, why),
                };
                Assignment::Apply { candidate, passed, suggestions }
            }
            (_, Evaluation::Failed(failure)) => {
                let fix = match self.judge(round, &candidate, Evidence::Failed(failure.clone())).await? {
                    Told::Read(Verdict::Fix(fix)) => Some(self.guided_again(fix, &candidate.id())),
                    Told::Read(Verdict::Optimization(_)) | Told::PassedOver => None,
                    Told::Unreadable(why) => return self.unreadable(Role::Judge, why),
                };
                Assignment::Fix { candidate, failure, fix }
            }
            (_, Evaluation::Counted(_) | Evaluation::Compiled(_)) => {
                Assignment::Optimize { candidate, optimization: None }
            }
            (_, Evaluation::Passed(timed)) => {
                let offered = self.offered(profile.as_ref());
                let profile = profile.map(|profile| self.told(profile));
                let evidence = Evidence::Passed { timed, profile, offered };
                let optimization = match self.judge(round, &candidate, evidence).await? {
                    Told::Read(Verdict::Optimization(optimization)) => Some(self.guided(optimization)),
                    Told::Read(Verdict::Fix(_)) | Told::PassedOver => None,
                    Told::Unreadable(why) => return self.unreadable(Role::Judge, why),
                };
                Assignment::Optimize { candidate, optimization }
            }
        }))
    }

    /// A profile as the policy has it told: with what bounds each kernel by rule, or the readings alone.
    fn told(&self, mut profile: Profile) -> Profile {
        if self.policy.bottleneck_facts {
            let facts = facts::lines(&profile);
            profile.notes.splice(0..0, facts);
        }
        profile
    }

    /// The Judge's verdict, if one could be read.
    async fn judge(
        &mut self,
        round: u32,
        candidate: &Candidate,
        evidence: Evidence,
    ) -> Result<Told<Verdict>, BrokeOff> {
        if let Some(known) = self.opened(|round| round.verdict.clone()) {
            return Ok(Told::Read(known));
        }
        let purpose = match evidence {
            Evidence::Failed(_) => Purpose::Diagnose,
            Evidence::Passed { .. } => Purpose::Advise,
        };
        let (task, machine, judge) = (self.task.clone(), self.crew.machine.clone(), self.crew.judge.clone());
        let (tried, approaches) = (self.tried(&candidate.id()), self.book.so_far().approaches().cloned());
        let told = self.ask_twice(round, Role::Judge, purpose, |call, earlier| {
            let (task, machine, candidate) = (task.clone(), machine.clone(), candidate.clone());
            let (evidence, tried, approaches) = (evidence.clone(), tried.clone(), approaches.clone());
            asked(&judge, Consider { call, task, machine, candidate, evidence, tried, approaches, earlier })
        });
        let told = told.await?;
        if let Told::Read(verdict) = &told {
            self.note(Event::Judged { candidate: candidate.id(), verdict: verdict.clone() })?;
        }
        Ok(told)
    }

    /// Has the Planner rank approaches, where the policy says so, before the first round that writes. Without a reply that can be
    /// read the Coder begins as it likes.
    async fn rank(&mut self, round: u32) -> Result<(), BrokeOff> {
        let known = self.opened(|open| open.approaches.is_some() || open.candidate.is_some());
        let shown = self.crew.prompts.shows_approaches();
        if !self.policy.approaches || !shown || known || self.book.so_far().finished().next().is_some() {
            return Ok(());
        }
        let (llm, words) = (self.crew.llm.clone(), self.crew.prompts.clone());
        let first = words.approaches(&self.task, &self.crew.machine);
        let told = self.ask_twice(round, Role::Planner, Purpose::Approaches, |call, earlier| {
            let prompt = earlier.map_or_else(|| first.clone(), |e| words.again(&e.prompt, &e.reply, &e.why));
            answer::ask(&*llm, call, prompt, prompts::read_approaches).map_err(BrokeOff::from)
        });
        match told.await {
            Ok(Told::Read(approaches)) => self.note(Event::Ranked { approaches }),
            Ok(Told::PassedOver | Told::Unreadable(_)) => Ok(()),
            Err(BrokeOff::RecordEnds(why)) => self.note(Event::PassedOver { role: Role::Planner, why }),
            Err(err) => Err(err),
        }
    }

    /// The Planner's own suggestions (Astra), if some could be read.
    async fn suggest(
        &mut self,
        round: u32,
        candidate: &Candidate,
        evaluation: &Evaluation,
        profile: Option<&Profile>,
    ) -> Result<Told<Suggestions>, BrokeOff> {
        if let Some(known) = self.opened(|round| round.suggestions.clone()) {
            return Ok(Told::Read(known));
        }
        let (llm, words) = (self.crew.llm.clone(), self.crew.prompts.clone());
        let first = words.suggest(&self.task, &self.crew.machine, candidate, evaluation, profile);
        let told = self.ask_twice(round, Role::Planner, Purpose::Suggest, |call, earlier| {
            let prompt = earlier.map_or_else(|| first.clone(), |e| words.again(&e.prompt, &e.reply, &e.why));
            answer::ask(&*llm, call, prompt, prompts::read_suggestions).map_err(BrokeOff::from)
        });
        let told = told.await?;
        if let Told::Read(suggestions) = &told {
            self.note(Event::Suggested { candidate: candidate.id(), suggestions: suggestions.clone() })?;
        }
        Ok(told)
    }

    /// The Coder's candidate; `None` where none could be read and the round is over.
    async fn write(&mut self, round: u32, assignment: Assignment) -> Result<Option<Candidate>, BrokeOff> {
        if let Some(known) = self.opened(|round| round.candidate.clone()) {
            return Ok(Some(self.book.candidate(&known)?));
        }
        let conversation = self.conversation()?;
        loop {
            let looking = self.looking()?;
            match self.write_or_look(round, &assignment, &conversation, looking).await? {
                Told::Read(Written::Kernel(candidate)) => {
                    self.keep_candidate(&candidate)?;
                    return Ok(Some(candidate));
                }
                Told::Read(Written::Lookup(lookup)) => self.look_up(lookup)?,
                Told::PassedOver => {
                    return self.unreadable(Role::Coder, "the recorded reply does not fit".to_owned());
                }
                Told::Unreadable(why) => return self.unreadable(Role::Coder, why),
            }
        }
    }

    /// One answer of the Coder's: the candidate, or what it looks up first.
    async fn write_or_look(
        &mut self,
        round: u32,
        assignment: &Assignment,
        conversation: &[Turn],
        looking: Option<Looking>,
    ) -> Result<Told<Written>, BrokeOff> {
        let (task, machine, coder) = (self.task.clone(), self.crew.machine.clone(), self.crew.coder.clone());
        let worked_example = self.policy.worked_example;
        let (part, learned) = (lookup::part(looking.as_ref()), self.learned()?);
        let told = self.ask_part_twice((round, &part), Role::Coder, assignment.purpose(), |call, earlier| {
            let (task, machine, assignment) = (task.clone(), machine.clone(), assignment.clone());
            let (conversation, looking, learned) = (conversation.to_vec(), looking.clone(), learned.clone());
            let write =
                Write { call, task, machine, assignment, worked_example, conversation, looking, learned, earlier };
            asked(&coder, write)
        });
        told.await
    }

    pub(super) async fn examine(&mut self, candidate: Candidate) -> Result<(), BrokeOff> {
        let (task, suite, plan) = (self.task.clone(), self.suite(), self.policy.timing);
        let id = candidate.id();
        let self_difference = self.book.so_far().baseline.as_ref().map_or(0.0, Baseline::self_difference);
        let open = task.context().is_some_and(|context| !candidate.open(&context.tuning).is_empty());
        let examine = Examine { task, candidate, suite, plan, self_difference };
        if open {
            let bound = self.tune(examine).await?;
            return match bound {
                Ok(bound) => Box::pin(self.examine(bound)).await,
                Err(why) => self.note(Event::NotTimed { candidate: id, why }),
            };
        }
        match undisturbed(|| asked(&self.crew.tester.examine, examine.clone())).await? {
            Ok(worked) => {
                let evaluation = self.note_spent(Work::Examine, worked)?;
                let alone = self.is_repeated_search();
                let joined = |evaluation| same_code::joined(evaluation, &id, self.book.so_far());
                let evaluation = if alone { evaluation } else { joined(evaluation) };
                self.note(Event::Evaluated { candidate: id, evaluation })
            }
            Err(why) => self.note(Event::NotTimed { candidate: id, why }),
        }
    }

    /// Finds the best bindings of a candidate that leaves some open; why nothing could be timed.
    async fn tune(&mut self, examine: Examine) -> Result<Result<Candidate, String>, BrokeOff> {
        let (candidate, tests) = (examine.candidate.id(), self.policy.tests());
        let ask = Tune { examine, tests };
        let searched = undisturbed(|| asked(&self.crew.tester.tune, ask.clone())).await?;
        let Searched { tuned, spent } = match searched {
            Ok(searched) => searched,
            Err(why) => return Ok(Err(why)),
        };
        for (work, worked) in spent {
            self.note_spent(work, worked)?;
        }
        let Tuned { candidate: best, tried } = tuned;
        self.book.keep(&best.canonical())?;
        self.note(Event::Tuned { candidate, bound: best.id(), tried })?;
        Ok(Ok(best))
    }

    /// What was said between us and the Coder, where the policy lets it remember.
    fn conversation(&self) -> Result<Vec<Turn>, BrokeOff> {
        if self.policy.memory != Memory::Conversation {
            return Ok(vec![]);
        }
        let so_far = self.book.so_far();
        let mut turns = vec![];
        for answer in so_far.finished().flat_map(|round| &round.answers).filter(|a| a.call.role == Role::Coder) {
            let prompt: Prompt = serde_json::from_str(&self.book.fetch(&answer.prompt)?)
                .map_err(|e| crate::log::LogError(format!("the prompt {}: {e}", answer.prompt)))?;
            turns.extend(prompt.turns.into_iter().next_back());
            turns.push(Turn { speaker: Speaker::Assistant, text: self.book.fetch(&answer.reply)? });
        }
        Ok(turns)
    }

    /// A model's proposal for the next step, if it can be read and the policy allows it.
    pub(super) async fn propose(&mut self) -> Result<Option<ControlFlow<End, Step>>, BrokeOff> {
        let (round, part) = self.to_plan();
        let mut choices = policy::allowed(self.book.so_far(), &self.policy);
        choices.retain(|(name, _)| name != STOP || part.is_empty());
        let names: Vec<String> = choices.iter().map(|(name, _)| name.clone()).collect();
        let (llm, words) = (self.crew.llm.clone(), self.crew.prompts.clone());
        let first = words.plan(&self.task, &self.history(), &names);
        let told = self.ask_part_twice((round, &part), Role::Planner, Purpose::Plan, |call, earlier| {
            let prompt = earlier.map_or_else(|| first.clone(), |e| words.again(&e.prompt, &e.reply, &e.why));
            let read = |reply: &str| prompts::read_plan(reply, &names);
            answer::ask(&*llm, call, prompt, read).map_err(BrokeOff::from)
        });
        let (proposal, choice) = match told.await? {
            Told::Read(plan) => {
                let choice = choices.into_iter().find(|(name, _)| *name == plan.step).map(|(_, choice)| choice);
                (format!("{}: {}", plan.step, plan.why), choice)
            }
            Told::PassedOver => return Ok(None),
            Told::Unreadable(why) => (why, None),
        };
        self.note(Event::Proposed { round, proposal, taken: choice.is_some() })?;
        Ok(choice)
    }

    /// The round that is planned, and which call of it this is: where a proposal to stop was overruled, the Planner's model is
    /// asked anew, and stopping is not among what is open.
    pub(super) fn to_plan(&self) -> (u32, String) {
        let so_far = self.book.so_far();
        let round = so_far.next_round();
        let part = match so_far.overruled.get(&round) {
            None => String::new(),
            Some(1) => "anyway".to_owned(),
            Some(times) => format!("anyway-{times}"),
        };
        (round, part)
    }

    /// What happened, a line a round, for the Planner's model.
    fn history(&self) -> Vec<PlanLine> {
        self.book.so_far().finished().map(in_a_line).collect()
    }

    pub(super) fn keep_candidate(&mut self, candidate: &Candidate) -> Result<(), BrokeOff> {
        if self.opened(|round| round.candidate.is_some()) {
            return Ok(());
        }
        self.book.keep(&candidate.canonical())?;
        self.note(Event::Wrote { candidate: candidate.id() })
    }

    pub(super) fn unreadable<T>(&mut self, role: Role, why: String) -> Result<Option<T>, BrokeOff> {
        self.note(Event::Unreadable { role, why })?;
        Ok(None)
    }

    /// Looks into the open round.
    pub(super) fn opened<T>(&self, look: impl FnOnce(&Round) -> T) -> T {
        let so_far = self.book.so_far();
        look(so_far.open().expect("a round begins before anything happens in it"))
    }

    pub(super) fn suite(&self) -> Suite {
        self.book.so_far().suite.clone().expect("the suite is frozen before the first round")
    }
}

/// A round in a line, for a model.
pub(super) fn in_a_line(round: &Round) -> PlanLine {
    PlanLine {
        round: round.number,
        step: round.step.name().to_owned(),
        candidate: round.candidate.as_ref().map_or("none", |id| id.short()).to_owned(),
        outcome: match &round.evaluation {
            Some(Evaluation::Passed(timed)) => format!("correct, {}", timed.speedup),
            Some(Evaluation::Counted(counts)) => format!("correct, {counts}"),
            Some(Evaluation::Compiled(code)) => code.to_string(),
            Some(Evaluation::Failed(failure)) => failure.to_string(),
            None => "no readable reply".to_owned(),
        },
    }
}
