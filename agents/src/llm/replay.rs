//! What did the model say, back then? A recorded run answers in its place.

use super::{AFTER_LOOKUPS, Answer, AskError, Call, CallId, Llm, Reply, Role, Usage};
use prompts::Prompt;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// One answered call of a recorded run.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedAnswer {
    /// Which call.
    pub id: CallId,
    /// The prompt as JSON.
    pub prompt: String,
    /// The reply's text.
    pub reply: String,
    /// Who answered.
    pub model: String,
    /// Tokens, where counted.
    pub usage: Option<Usage>,
    /// Dollars, where the price was known.
    pub usd: Option<f64>,
}

/// A recorded run in a model's place.
///
/// A reply is found by task, role, round, part and attempt. A Coder's reply is a whole candidate and fits whatever the Coder is asked
/// for; any other role's reply fits only the purpose that it was given for. Where a Coder looked something up before it wrote and
/// may not here, what it says cannot be read, and asked once more it answers with what it wrote behind that.
pub struct Replay {
    source: String,
    answers: Vec<RecordedAnswer>,
    strict: bool,
    ends: Vec<CallId>,
    differences: AtomicUsize,
}

impl Replay {
    /// Answers from these. `source` says where they come from; `strict` makes a prompt that differs from the recorded one an error.
    #[must_use]
    pub fn new(source: impl Into<String>, answers: Vec<RecordedAnswer>, strict: bool) -> Self {
        Self { source: source.into(), answers, strict, ends: vec![], differences: AtomicUsize::new(0) }
    }

    /// The same, where these calls were asked and what answered held no further reply: here they end it again.
    #[must_use]
    pub fn ending_at(mut self, calls: Vec<CallId>) -> Self {
        self.ends = calls;
        self
    }

    /// How many of the prompts so far were not the recorded ones.
    #[must_use]
    pub fn differences(&self) -> usize {
        self.differences.load(Ordering::Relaxed)
    }

    fn find(&self, id: &CallId) -> Result<&RecordedAnswer, AskError> {
        let place = |id: &CallId| (id.task.clone(), id.role, id.round, id.part.clone(), id.attempt);
        let asked = place(id);
        let mut same = self.answers.iter().filter(|a| place(&a.id) == asked);
        let Some(first) = same.next() else {
            return self.behind_lookups(id).ok_or_else(|| self.nothing_for(id));
        };
        if first.id.purpose == id.purpose {
            return Ok(first);
        }
        match same.find(|a| a.id.purpose == id.purpose) {
            Some(exact) => Ok(exact),
            None if id.role == Role::Coder => Ok(first),
            None => Err(AskError::NoFit(format!(
                "round {}: the {} is asked to {}, but in {} it was asked to {}",
                id.round,
                id.role.name(),
                id.purpose.name(),
                self.source,
                first.id.purpose.name(),
            ))),
        }
    }

    /// What the Coder wrote after it had looked something up.
    fn behind_lookups(&self, id: &CallId) -> Option<&RecordedAnswer> {
        let behind = |of: &CallId| {
            (&of.task, of.role, of.round) == (&id.task, Role::Coder, id.round) && of.part.starts_with(AFTER_LOOKUPS)
        };
        let wanted = id.role == Role::Coder && id.part.is_empty() && id.attempt > 1;
        self.answers.iter().rev().find(|answer| behind(&answer.id)).filter(|_| wanted)
    }

    fn nothing_for(&self, id: &CallId) -> AskError {
        if self.ends.contains(id) {
            return AskError::RecordEnds(format!("{} ends where {id} was asked", self.source));
        }
        if !self.answers.iter().any(|a| a.id.task == id.task) {
            let held: BTreeSet<_> = self.answers.iter().map(|a| a.id.task.as_str()).collect();
            let held = if held.is_empty() { "no replies at all".into() } else { Vec::from_iter(held).join(", ") };
            return AskError::RecordEnds(format!(
                "{} has no replies for the task {}; it holds {held}",
                self.source, id.task
            ));
        }
        let of_coder = |a: &&RecordedAnswer| a.id.task == id.task && a.id.role == Role::Coder;
        let last = self.answers.iter().filter(of_coder).map(|a| a.id.round).max();
        match last {
            Some(last) if last >= id.round => AskError::NoFit(format!(
                "{} has no reply of the {} for round {}, attempt {}",
                self.source,
                id.role.name(),
                id.round,
                id.attempt,
            )),
            Some(last) => AskError::RecordEnds(format!("{} has no reply of the Coder after round {last}", self.source)),
            None => AskError::RecordEnds(format!("{} has no reply of the Coder at all", self.source)),
        }
    }

    fn compare(&self, call: &Call, recorded: &RecordedAnswer) -> Result<(), AskError> {
        let here = call.prompt_json();
        if here == recorded.prompt {
            return Ok(());
        }
        self.differences.fetch_add(1, Ordering::Relaxed);
        let difference = first_difference(&spoken(&recorded.prompt), &spoken(&here));
        if self.strict {
            return Err(AskError::Differs(format!(
                "the prompt of {} differs from the one in {} {difference}",
                call.id, self.source
            )));
        }
        tracing::debug!(call = %call.id, %difference, "the prompt differs from the recorded one");
        Ok(())
    }

    fn answer(&self, call: &Call) -> Result<Reply, AskError> {
        let since = Instant::now();
        let recorded = self.find(&call.id)?;
        self.compare(call, recorded)?;
        Ok(Reply {
            text: recorded.reply.clone(),
            model: recorded.model.clone(),
            usage: recorded.usage,
            usd: recorded.usd,
            latency_ms: since.elapsed().as_millis() as u64,
            requests: 0,
        })
    }
}

fn spoken(prompt: &str) -> String {
    let Ok(prompt) = serde_json::from_str::<Prompt>(prompt) else {
        return prompt.to_owned();
    };
    let turns = prompt.turns.into_iter().map(|turn| turn.text);
    std::iter::once(prompt.system).chain(turns).collect::<Vec<_>>().join("\n")
}

fn first_difference(recorded: &str, here: &str) -> String {
    let (mut old, mut new) = (recorded.lines(), here.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (old.next(), new.next()) {
            (None, None) => return "in who speaks or in white space only".into(),
            (a, b) if a == b => {}
            (a, b) => return format!("at line {number}: recorded {}, here {}", quoted(a), quoted(b)),
        }
    }
}

fn quoted(line: Option<&str>) -> String {
    line.map_or_else(|| "nothing more".into(), |line| format!("`{}`", line.chars().take(120).collect::<String>()))
}

impl Llm for Replay {
    fn describe(&self) -> String {
        let models: BTreeSet<_> = self.answers.iter().map(|a| a.model.as_str()).collect();
        format!("replay of {} (answered by {})", self.source, Vec::from_iter(models).join(", "))
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        Box::pin(std::future::ready(self.answer(&call)))
    }
}
