//! What is said to a model?

use serde::{Deserialize, Serialize};

/// A fixed system text and what is said in turns. Stateless roles have exactly one turn (CudaForge, Appendix D.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// The role's standing instructions: the same bytes in every round.
    pub system: String,
    /// What was said, in order; the last turn is ours.
    pub turns: Vec<Turn>,
}

/// One turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Who speaks.
    pub speaker: Speaker,
    /// What is said.
    pub text: String,
}

/// Who speaks, in the words of the chat-completions format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speaker {
    /// We do.
    User,
    /// The model does.
    Assistant,
}

impl Prompt {
    /// A prompt of one turn.
    #[must_use]
    pub fn new(system: impl Into<String>, user: impl Into<String>) -> Self {
        Self { system: system.into(), turns: vec![Turn { speaker: Speaker::User, text: user.into() }] }
    }

    /// The same, with what was said before put in front of our last turn.
    #[must_use]
    pub fn after(mut self, earlier: impl IntoIterator<Item = Turn>) -> Self {
        self.turns.splice(0..0, earlier);
        self
    }
}
