//! What did a role get from its model?

use crate::llm::{AskError, Call, CallId, Llm, Reply};
use prompts::{Prompt, Unreadable};
use serde::{Deserialize, Serialize};

/// A reply, the prompt that it answers, and what could be read out of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer<T> {
    /// What was said to the model.
    pub prompt: Prompt,
    /// What it said.
    pub reply: Reply,
    /// What that means.
    pub read: Result<T, Unreadable>,
}

/// The first try, when a role is asked once more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Earlier {
    /// What was said to the model.
    pub prompt: Prompt,
    /// What it said.
    pub reply: String,
    /// Why that could not be read.
    pub why: Unreadable,
}

/// Asks a model, and reads its reply.
pub(crate) async fn ask<T>(
    llm: &dyn Llm,
    id: CallId,
    prompt: Prompt,
    read: impl FnOnce(&str) -> Result<T, Unreadable>,
) -> Result<Answer<T>, AskError> {
    let reply = llm.ask(Call { id, prompt: prompt.clone() }).await?;
    let read = read(&reply.text);
    Ok(Answer { prompt, reply, read })
}
