//! The Judge: evidence in, exactly one fix or exactly one optimization out.

use crate::answer::{self, Answer, Earlier};
use crate::llm::{AskError, CallId, Llm};
use kameo::prelude::*;
use kernelbench::{Candidate, Failure, Task, Timed};
use metrics::{Machine, Profile};
use prompts::{Approaches, Attempted, Hints, Offered, Prompts, Unreadable, Verdict};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What is known of the candidate before the Judge: always of that very candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// It failed: the Judge gives one fix.
    Failed(Failure),
    /// It passed: the Judge gives one optimization.
    Passed {
        /// Its times.
        timed: Timed,
        /// Where they go.
        profile: Option<Profile>,
        /// Features of the architecture that it may ask for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        offered: Vec<Offered>,
    },
}

/// Consider a candidate, and say what to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Consider {
    /// Which call this is.
    pub call: CallId,
    /// For which task.
    pub task: Arc<Task>,
    /// The machine it ran on.
    pub machine: Machine,
    /// The candidate.
    pub candidate: Candidate,
    /// What is known of it.
    pub evidence: Evidence,
    /// Changes of this candidate that were tried before, where the policy lets the Judge remember.
    #[serde(default)]
    pub tried: Vec<Attempted>,
    /// The approaches that were ranked before the first candidate, where they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approaches: Option<Approaches>,
    /// The first try, when this is the second.
    pub earlier: Option<Earlier>,
}

/// Gives verdicts.
#[derive(Actor, Clone)]
pub struct Judge {
    /// Its model.
    pub llm: Arc<dyn Llm>,
    /// Its words.
    pub prompts: Arc<Prompts>,
}

impl Judge {
    async fn consider(self, consider: Consider) -> Result<Answer<Verdict>, AskError> {
        let Consider { call, task, machine, candidate, evidence, tried, approaches, earlier } = consider;
        let prompt = match (&earlier, &evidence) {
            (Some(first), _) => self.prompts.again(&first.prompt, &first.reply, &first.why),
            (None, Evidence::Failed(failure)) => self.prompts.diagnose(&task, &machine, &candidate, failure),
            (None, Evidence::Passed { timed, profile, offered }) => {
                let hints = Hints { tried: &tried, offered, approaches: approaches.as_ref() };
                self.prompts.advise(&task, &machine, &candidate, timed, profile.as_ref(), hints)
            }
        };
        answer::ask(&*self.llm, call, prompt, |reply| read(reply, &evidence)).await
    }
}

/// A fix for what failed, an optimization for what passed; of the features that it names those that it was offered.
fn read(reply: &str, evidence: &Evidence) -> Result<Verdict, Unreadable> {
    let Evidence::Passed { offered, .. } = evidence else { return prompts::read_fix(reply).map(Verdict::Fix) };
    let mut optimization = prompts::read_optimization(reply)?;
    optimization.features = prompts::bundle(&optimization.features, offered);
    Ok(Verdict::Optimization(optimization))
}

impl Message<Consider> for Judge {
    type Reply = DelegatedReply<Result<Answer<Verdict>, AskError>>;

    async fn handle(&mut self, consider: Consider, ctx: &mut Context<Self, Self::Reply>) -> Self::Reply {
        ctx.spawn(self.clone().consider(consider))
    }
}
