//! How are actors and models asked? With a deadline, once more after an accident, once more after an unreadable reply.

use super::{BrokeOff, Loop};
use crate::answer::{Answer, Earlier};
use crate::event::Event;
use crate::llm::{AskError, CallId, Purpose, Role};
use crate::trajectory::Trajectory;
use kameo::{actor::ReplyRecipient, error::SendError};
use kernelbench::Fault;
use prompts::Unreadable;
use std::{fmt::Debug, time::Duration};

/// No ask lasts longer than this: each edge has a shorter deadline of its own (a batch of an endpoint's may take a day, and its rest another), so this one only ends what is broken.
const OUTERMOST: Duration = Duration::from_hours(100);
/// Before a machine's fault is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// After each try that others on the machine disturbed.
const QUIETER: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(10)];

/// What came of asking a model.
pub(super) enum Told<T> {
    /// This was read.
    Read(T),
    /// Nothing could be read, even when asked once more.
    Unreadable(String),
    /// The record's reply did not fit what happened here.
    PassedOver,
}

/// Asks an actor. An accident (its panic, a machine's fault) is tried once more before the run breaks off.
pub(super) async fn asked<M, T, E>(actor: &ReplyRecipient<M, T, E>, message: M) -> Result<T, BrokeOff>
where
    M: Clone + Send + Sync + 'static,
    T: Send + 'static,
    E: Into<BrokeOff> + Debug + Send + Sync + 'static,
{
    match ask_once(actor, message.clone()).await {
        Err(BrokeOff::Fault(fault)) if fault.may_pass() => {
            tracing::warn!(%fault, "the machine failed: trying once more");
            tokio::time::sleep(PAUSE).await;
            ask_once(actor, message).await
        }
        Err(BrokeOff::Gone(what)) => {
            tracing::error!(%what, "trying once more");
            ask_once(actor, message).await
        }
        other => other,
    }
}

/// Asks again, ever later, while others use the machine so that nothing can be timed; in the end why not.
pub(super) async fn undisturbed<T, F>(ask: impl Fn() -> F) -> Result<Result<T, String>, BrokeOff>
where
    F: Future<Output = Result<T, BrokeOff>>,
{
    let mut told = String::new();
    for pause in QUIETER {
        match ask().await {
            Err(BrokeOff::Fault(Fault::Disturbed(why))) => told = why,
            other => return other.map(Ok),
        }
        tracing::warn!(why = %told, "others use the machine: trying again in {} s", pause.as_secs());
        tokio::time::sleep(pause).await;
    }
    Ok(Err(told))
}

async fn ask_once<M, T, E>(actor: &ReplyRecipient<M, T, E>, message: M) -> Result<T, BrokeOff>
where
    M: Send + Sync + 'static,
    T: Send + 'static,
    E: Into<BrokeOff> + Debug + Send + Sync + 'static,
{
    let name = std::any::type_name::<M>().rsplit("::").next().unwrap_or_default();
    match tokio::time::timeout(OUTERMOST, actor.ask(message)).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(SendError::HandlerError(err))) => Err(err.into()),
        Ok(Err(_)) => Err(BrokeOff::Gone(format!("the actor that was asked to {name} stopped"))),
        Err(_) => Err(BrokeOff::Gone(format!("the actor that was asked to {name} never answered"))),
    }
}

impl Loop {
    /// Asks a role's model, once more when its reply cannot be read. Every answer is noted before it is used.
    pub(super) async fn ask_twice<T, F>(
        &mut self,
        round: u32,
        role: Role,
        purpose: Purpose,
        ask: impl Fn(CallId, Option<Earlier>) -> F + Send,
    ) -> Result<Told<T>, BrokeOff>
    where
        T: Send,
        F: Future<Output = Result<Answer<T>, BrokeOff>> + Send,
    {
        self.ask_part_twice((round, ""), role, purpose, ask).await
    }

    /// The same for one of several calls of a purpose in a round, by its name; in a trial, only once.
    pub(super) async fn ask_part_twice<T, F>(
        &mut self,
        (round, part): (u32, &str),
        role: Role,
        purpose: Purpose,
        ask: impl Fn(CallId, Option<Earlier>) -> F + Send,
    ) -> Result<Told<T>, BrokeOff>
    where
        T: Send,
        F: Future<Output = Result<Answer<T>, BrokeOff>> + Send,
    {
        let mut earlier: Option<Earlier> = None;
        let attempts = if self.on_trial() { 1 } else { 2 };
        for attempt in 1..=attempts {
            let call = CallId { task: self.task.name.clone(), round, role, purpose, part: part.to_owned(), attempt };
            let known = answered(self.book.so_far(), &call);
            if !known {
                self.within_limits()?;
                self.note(Event::Asked { call: call.clone() })?;
            }
            let answer = match ask(call.clone(), earlier.take()).await {
                Ok(answer) => answer,
                Err(BrokeOff::Model(AskError::NoFit(why))) => return self.pass_over(role, attempt, why),
                Err(err) => return Err(err),
            };
            if !known {
                self.note_answered(&call, &answer)?;
            }
            match answer.read {
                Ok(read) => return Ok(Told::Read(read)),
                Err(why) => {
                    if !is_misread(self.book.so_far(), &call) {
                        self.note(Event::Misread { call, why: why.to_string() })?;
                    }
                    earlier = Some(Earlier { prompt: answer.prompt, reply: answer.reply.text, why });
                }
            }
        }
        let why = earlier.map_or_else(String::new, |Earlier { why: Unreadable(why), .. }| why);
        Ok(Told::Unreadable(why))
    }

    /// A first reply that does not fit is passed over; where there is no second, the first stays unreadable.
    fn pass_over<T>(&mut self, role: Role, attempt: u32, why: String) -> Result<Told<T>, BrokeOff> {
        self.note(Event::PassedOver { role, why: why.clone() })?;
        Ok(if attempt == 1 { Told::PassedOver } else { Told::Unreadable(why) })
    }

    fn note_answered<T>(&mut self, call: &CallId, answer: &Answer<T>) -> Result<(), BrokeOff> {
        let prompt = serde_json::to_string(&answer.prompt).map_err(|e| crate::log::LogError(e.to_string()))?;
        let (prompt, reply) = (self.book.keep(&prompt)?, self.book.keep(&answer.reply.text)?);
        self.note(Event::Answered {
            call: call.clone(),
            prompt,
            reply,
            model: answer.reply.model.clone(),
            usage: answer.reply.usage,
            usd: answer.reply.usd,
            latency_ms: answer.reply.latency_ms,
            requests: answer.reply.requests,
        })
    }
}

fn answered(so_far: &Trajectory, call: &CallId) -> bool {
    so_far.answers().any(|answer| answer.call == *call)
}

/// Whether it was noted before that its answer cannot be read.
fn is_misread(so_far: &Trajectory, call: &CallId) -> bool {
    so_far.rounds.iter().any(|round| round.misread.iter().any(|(known, _)| known == call))
}
