//! One call of a model outside of a run.

use super::on_threads;
use crate::{
    config::Config,
    exit::{Exit, Trouble},
    key::Environment,
    plan,
    wiring::Answering,
};
use agents::llm::{AskError, Call, CallId, Purpose, Role};
use prompts::{Prompt, Unreadable};
use std::path::Path;

/// Who is asked, and what for.
pub(super) struct Once<'a> {
    /// The settings.
    pub(super) config: &'a Config,
    /// Where keys are.
    pub(super) environment: &'a Environment,
    /// Whether a mailbox is not waited for.
    pub(super) exit_when_waiting: bool,
    /// The model.
    pub(super) model: &'a str,
    /// The command that asks.
    pub(super) command: &'a str,
    /// What for.
    pub(super) purpose: Purpose,
}

impl Once<'_> {
    /// Asks, and reads the reply.
    pub(super) fn ask<T>(self, prompt: Prompt, read: impl FnOnce(&str) -> Result<T, Unreadable>) -> Result<T, Trouble> {
        let Self { config, environment, exit_when_waiting, model, command, purpose } = self;
        let answering =
            Answering { config, environment, exit_when_waiting, run: command.to_owned(), folder: Path::new(".") };
        let llm = answering.port(&plan::spec(model)?)?;
        let (task, part) = (command.to_owned(), String::new());
        let id = CallId { task, round: 0, role: Role::Planner, purpose, part, attempt: 1 };
        let wrong = |message: String| Trouble { exit: Exit::Model, message };
        let reply = on_threads(async { Ok(llm.ask(Call { id, prompt }).await) })?;
        let reply = reply.map_err(|why| match why {
            AskError::Waiting(_) => Trouble { exit: Exit::Waiting, message: why.to_string() },
            why => wrong(why.to_string()),
        })?;
        read(&reply.text).map_err(|why| wrong(format!("the model's reply cannot be read: {why}")))
    }
}
