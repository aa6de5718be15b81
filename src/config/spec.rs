//! What answers in a model's place, as a user names it: `openai:NAME`, `replay:RUN`, `mailbox:DIR`, ..

use std::{path::PathBuf, str::FromStr};

/// What is to answer, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// A model behind an OpenAI-compatible endpoint.
    OpenAi(String),
    /// The same, by its Batch API.
    OpenAiBatch(String),
    /// A recorded run.
    Replay(PathBuf),
    /// A folder of letters.
    Mailbox(PathBuf),
    /// A script.
    Scripted(PathBuf),
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected openai:NAME, openai-batch:NAME, replay:RUN, mailbox:DIR or scripted:FILE";
        let (kind, rest) = text.split_once(':').ok_or(format!("{text:?} does not say what answers: {expected}"))?;
        if rest.is_empty() {
            return Err(format!("{text:?} names nothing behind the colon: {expected}"));
        }
        match kind {
            "openai" => Ok(Self::OpenAi(rest.to_owned())),
            "openai-batch" => Ok(Self::OpenAiBatch(rest.to_owned())),
            "replay" => Ok(Self::Replay(rest.into())),
            "mailbox" => Ok(Self::Mailbox(rest.into())),
            "scripted" => Ok(Self::Scripted(rest.into())),
            _ => Err(format!("{kind:?} is nothing that answers: {expected}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_s_name_may_hold_colons() {
        assert_eq!("openai:org/model:free".parse(), Ok(Spec::OpenAi("org/model:free".into())));
    }

    #[test]
    fn what_does_not_name_a_model_is_told_what_does() {
        for text in ["gpt", "openai:", "ollama:x", ""] {
            let error = text.parse::<Spec>().unwrap_err();
            assert!(
                error.contains("openai:NAME, openai-batch:NAME, replay:RUN, mailbox:DIR or scripted:FILE"),
                "{error}"
            );
        }
    }
}
