//! A person beside the model: asked before each call of a transformation, and finishing its replies in an editor (PEAK §3.4).
//!
//! What the person wrote is a reply like any other: it is recorded as one, read as one, and checked as one.

use super::{Answer, AskError, Call, Llm, Purpose, Reply};
use std::sync::Arc;

/// What a person wants of a call that is about to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Make it.
    Yes,
    /// Make it, and let me finish the reply.
    Edit,
    /// Say this beside the transformation, from its first call on.
    Rephrase(String),
    /// Leave the transformation out.
    Skip,
}

/// Somebody at a terminal.
pub trait Person: Send + Sync + 'static {
    /// What is to be done about this call.
    ///
    /// # Errors
    ///
    /// In words: nobody answers any more.
    fn wish(&self, call: &Call) -> Result<Wish, String>;

    /// A text as the person leaves it.
    ///
    /// # Errors
    ///
    /// In words: the editor could not be started, or ended badly.
    fn edited(&self, call: &Call, text: &str) -> Result<String, String>;
}

/// A model with a person beside it.
pub struct ByHand {
    inner: Arc<dyn Llm>,
    person: Arc<dyn Person>,
    pauses: bool,
    edits: bool,
}

impl ByHand {
    /// Asks the person before each call where it `pauses`, and gives them each reply to finish where it `edits`.
    #[must_use]
    pub fn new(inner: Arc<dyn Llm>, person: Arc<dyn Person>, pauses: bool, edits: bool) -> Self {
        Self { inner, person, pauses, edits }
    }

    async fn wish(&self, call: &Call) -> Result<Wish, AskError> {
        if !self.pauses {
            return Ok(if self.edits { Wish::Edit } else { Wish::Yes });
        }
        let (person, call) = (self.person.clone(), call.clone());
        at_leisure(move || person.wish(&call)).await
    }

    /// The reply with its code as the person leaves it.
    async fn finished(&self, call: Call, reply: Reply) -> Result<Reply, AskError> {
        // What cannot be read as code is there for the person to make code of.
        let before = prompts::code_text(&reply.text).unwrap_or_else(|_| reply.text.clone());
        let (person, text) = (self.person.clone(), before.clone());
        let after = at_leisure(move || person.edited(&call, &text)).await?;
        if after == before {
            return Ok(reply);
        }
        let text = format!("```cpp\n{}\n```\n", after.trim_end());
        Ok(Reply { text, model: format!("{}, finished by hand", reply.model), ..reply })
    }
}

/// A person takes as long as they like, on a thread of their own.
async fn at_leisure<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, AskError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(format!("the terminal cannot be used: {e}"))).map_err(AskError::Refused)
}

impl Llm for ByHand {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        if call.id.purpose != Purpose::Transform {
            return self.inner.ask(call);
        }
        Box::pin(async move {
            match self.wish(&call).await? {
                Wish::Yes => self.inner.ask(call).await,
                Wish::Edit => {
                    let reply = self.inner.ask(call.clone()).await?;
                    self.finished(call, reply).await
                }
                Wish::Rephrase(say) => Err(AskError::Rephrased(say)),
                Wish::Skip => Err(AskError::Skipped),
            }
        })
    }
}
