//! The Coder: an assignment in, a candidate out.

use crate::answer::{self, Answer, Earlier};
use crate::llm::{AskError, CallId, Llm, Purpose};
use kameo::prelude::*;
use kernelbench::{Candidate, Evaluation, Failure, Operator, Primitives, Space, Task};
use metrics::{Machine, Profile};
use prompts::{
    Approaches, Fix, Learned, Looking, Optimization, Prompt, Prompts, Rewriting, Suggestions, Turn, Written,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What the Coder is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignment {
    /// Write the first candidate.
    Seed,
    /// Write a first candidate by one of some approaches.
    SeedPlanned {
        /// What the Planner ranked.
        approaches: Approaches,
        /// Which of them, counted from 0: those before it came to nothing.
        at: usize,
    },
    /// Write another first candidate, in another way than the fastest so far.
    SeedAnew {
        /// The fastest.
        fastest: Candidate,
        /// Its speedup.
        speedup: f64,
    },
    /// Fix a candidate.
    Fix {
        /// Which.
        candidate: Candidate,
        /// How it failed.
        failure: Failure,
        /// What the Judge says; `None` where no verdict fits.
        fix: Option<Fix>,
    },
    /// Make a candidate faster.
    Optimize {
        /// Which.
        candidate: Candidate,
        /// What the Judge says; `None` where no verdict fits.
        optimization: Option<Optimization>,
    },
    /// Go on from a candidate, with the evidence.
    Refine {
        /// Which.
        candidate: Candidate,
        /// What came of it.
        evaluation: Evaluation,
        /// Where its time goes.
        profile: Option<Profile>,
    },
    /// Go on from a candidate, without evidence.
    Retry {
        /// Which.
        candidate: Candidate,
        /// Whether it passed.
        passed: bool,
    },
    /// Apply the Planner's suggestions.
    Apply {
        /// To which.
        candidate: Candidate,
        /// Whether it passed.
        passed: bool,
        /// What the Planner says; `None` where no suggestion fits.
        suggestions: Option<Suggestions>,
    },
}

impl Assignment {
    /// Which kind of call this makes.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        match self {
            Self::Seed | Self::SeedPlanned { .. } | Self::SeedAnew { .. } => Purpose::Seed,
            Self::Fix { .. } => Purpose::Fix,
            Self::Optimize { .. } => Purpose::Optimize,
            Self::Refine { .. } => Purpose::Refine,
            Self::Retry { .. } => Purpose::Retry,
            Self::Apply { .. } => Purpose::Apply,
        }
    }
}

/// Write a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// Which call this is.
    pub call: CallId,
    /// For which task.
    pub task: Arc<Task>,
    /// On which machine it will run.
    pub machine: Machine,
    /// What to do.
    pub assignment: Assignment,
    /// Whether a first candidate is asked for with a worked example.
    pub worked_example: bool,
    /// What was said before, where the policy lets the Coder remember.
    pub conversation: Vec<Turn>,
    /// What may be looked up, and what was for this candidate; `None` where nothing can be.
    pub looking: Option<Looking>,
    /// What earlier rounds taught.
    pub learned: Learned,
    /// The first try, when this is the second.
    pub earlier: Option<Earlier>,
}

/// Rewrite one region of a kernel context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rewrite {
    /// Which call this is.
    pub call: CallId,
    /// For which task.
    pub task: Arc<Task>,
    /// On which machine it will run.
    pub machine: Machine,
    /// What to do.
    pub rewriting: Rewriting,
    /// The first try, when this is the second.
    pub earlier: Option<Earlier>,
}

/// What is written of an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Piece {
    /// Its sketch; where it failed, with the whole operator and how.
    Sketch {
        /// What failed.
        last: Option<(Operator, Failure)>,
    },
    /// The operator whole, without primitives; where it failed, with how.
    Whole {
        /// What failed.
        last: Option<(Operator, Failure)>,
    },
    /// The primitives of a sketch.
    Primitives {
        /// The operator, with the primitives before where they failed.
        operator: Operator,
        /// How it failed.
        failure: Option<Failure>,
    },
}

/// What was read of a reply that holds a piece of an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generated {
    /// A sketch.
    Sketch {
        /// Its text.
        text: String,
        /// Its parameters.
        tuning: Space,
    },
    /// Primitives.
    Primitives(Primitives),
}

/// Write a piece of an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generate {
    /// Which call this is.
    pub call: CallId,
    /// For which task.
    pub task: Arc<Task>,
    /// On which machine it will run.
    pub machine: Machine,
    /// Which piece.
    pub piece: Piece,
    /// The first try, when this is the second.
    pub earlier: Option<Earlier>,
}

/// Writes candidates.
#[derive(Actor, Clone)]
pub struct Coder {
    /// Its model.
    pub llm: Arc<dyn Llm>,
    /// Its words.
    pub prompts: Arc<Prompts>,
}

impl Coder {
    fn prompt(&self, write: &Write) -> Prompt {
        let (task, machine, words) = (&write.task, &write.machine, &self.prompts);
        match &write.assignment {
            Assignment::Seed if write.worked_example => words.seed_with_example(task, machine),
            Assignment::Seed => words.seed(task, machine),
            Assignment::SeedPlanned { approaches, at } => {
                words.seed_planned(task, machine, write.worked_example, (approaches, *at))
            }
            Assignment::SeedAnew { fastest, speedup } => words.seed_anew(task, machine, fastest, *speedup),
            Assignment::Fix { candidate, failure, fix } => words.fix(task, machine, candidate, failure, fix.as_ref()),
            Assignment::Optimize { candidate, optimization } => {
                words.optimize(task, machine, candidate, optimization.as_ref())
            }
            Assignment::Refine { candidate, evaluation, profile } => {
                words.refine(task, machine, candidate, evaluation, profile.as_ref())
            }
            Assignment::Retry { candidate, passed } => words.retry(task, machine, candidate, *passed),
            Assignment::Apply { candidate, passed, suggestions } => {
                words.apply(task, machine, candidate, *passed, suggestions.as_ref())
            }
        }
    }

    async fn write(self, write: Write) -> Result<Answer<Written>, AskError> {
        let looking = write.looking.as_ref();
        let prompt = match (&write.earlier, looking) {
            (Some(first), _) => self.prompts.again(&first.prompt, &first.reply, &first.why),
            (None, looking) => {
                let prompt = self.prompts.with_learned(self.prompt(&write), &write.learned).after(write.conversation);
                match looking {
                    Some(looking) => self.prompts.with_lookups(prompt, &write.machine, looking),
                    None => prompt,
                }
            }
        };
        let language = write.task.language();
        answer::ask(&*self.llm, write.call, prompt, |reply| prompts::read_written(reply, language, looking)).await
    }
}

impl Coder {
    async fn rewrite(self, ask: Rewrite) -> Result<Answer<String>, AskError> {
        let Rewrite { call, task, machine, rewriting, earlier } = ask;
        let prompt = match &earlier {
            Some(first) => self.prompts.again(&first.prompt, &first.reply, &first.why),
            None => self.prompts.transform(&task, &machine, &rewriting),
        };
        let read = |reply: &str| prompts::read_region(reply, &rewriting.region, &rewriting.context, &rewriting.tuning);
        answer::ask(&*self.llm, call, prompt, read).await
    }
}

impl Coder {
    async fn generate(self, ask: Generate) -> Result<Answer<Generated>, AskError> {
        let Generate { call, task, machine, piece, earlier } = ask;
        let prompt = match (&earlier, &piece) {
            (Some(first), _) => self.prompts.again(&first.prompt, &first.reply, &first.why),
            (None, Piece::Sketch { last }) => {
                let last = last.as_ref().map(|(operator, failure)| (operator, failure));
                self.prompts.sketch(&task, &machine, last)
            }
            (None, Piece::Whole { last }) => {
                let last = last.as_ref().map(|(operator, failure)| (operator, failure));
                self.prompts.whole(&task, &machine, last)
            }
            (None, Piece::Primitives { operator, failure }) => {
                self.prompts.primitives(&task, &machine, operator, failure.as_ref())
            }
        };
        let read = |reply: &str| match piece {
            Piece::Sketch { .. } => {
                let read = prompts::read_sketch(reply, &task)?;
                Ok(Generated::Sketch { text: read.text, tuning: read.tuning })
            }
            Piece::Whole { .. } => {
                let read = prompts::read_whole(reply, &task)?;
                Ok(Generated::Sketch { text: read.text, tuning: read.tuning })
            }
            Piece::Primitives { .. } => prompts::read_primitives(reply, &task).map(Generated::Primitives),
        };
        answer::ask(&*self.llm, call, prompt, read).await
    }
}

impl Message<Generate> for Coder {
    type Reply = DelegatedReply<Result<Answer<Generated>, AskError>>;

    async fn handle(&mut self, ask: Generate, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        ctx.spawn(self.clone().generate(ask))
    }
}

impl Message<Rewrite> for Coder {
    /// The region's new text.
    type Reply = DelegatedReply<Result<Answer<String>, AskError>>;

    async fn handle(&mut self, ask: Rewrite, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        ctx.spawn(self.clone().rewrite(ask))
    }
}

impl Message<Write> for Coder {
    type Reply = DelegatedReply<Result<Answer<Written>, AskError>>;

    async fn handle(&mut self, write: Write, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        // Off the mailbox: many tasks may wait on the model at once.
        ctx.spawn(self.clone().write(write))
    }
}
