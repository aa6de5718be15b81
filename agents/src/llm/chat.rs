//! How is a call said in the chat-completions format, and what does a completion say?

use super::{Call, Role, Usage};
use prompts::Speaker;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a role asks with. What is `None` is not sent, and the endpoint's own default holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// The model's name, as the endpoint knows it.
    pub model: String,
    /// 0 to 2.
    pub temperature: Option<f64>,
    /// The limit on a reply's tokens, reasoning included.
    pub max_completion_tokens: Option<u32>,
    /// `minimal`, `low`, `medium`, `high`, or what else the endpoint knows.
    pub reasoning_effort: Option<String>,
}

impl Sampling {
    /// This model, with the endpoint's defaults.
    #[must_use]
    pub fn model(name: impl Into<String>) -> Self {
        Self { model: name.into(), temperature: None, max_completion_tokens: None, reasoning_effort: None }
    }
}

/// What each role asks with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Samplings {
    everyone: Sampling,
    roles: BTreeMap<Role, Sampling>,
}

impl Samplings {
    /// The same for every role.
    #[must_use]
    pub fn all(everyone: Sampling) -> Self {
        Self { everyone, roles: BTreeMap::new() }
    }

    /// With another one for this role.
    #[must_use]
    pub fn with(mut self, role: Role, sampling: Sampling) -> Self {
        self.roles.insert(role, sampling);
        self
    }

    /// What this role asks with.
    #[must_use]
    pub fn of(&self, role: Role) -> &Sampling {
        self.roles.get(&role).unwrap_or(&self.everyone)
    }

    /// The models' names, each once, those of all roles in order.
    #[must_use]
    pub fn models(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for role in Role::ALL {
            let name = self.of(role).model.as_str();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// The body of a request for a chat completion.
#[must_use]
pub fn body(call: &Call, sampling: &Sampling) -> Value {
    let mut messages = vec![json!({"role": "system", "content": call.prompt.system})];
    for turn in &call.prompt.turns {
        let speaker = match turn.speaker {
            Speaker::User => "user",
            Speaker::Assistant => "assistant",
        };
        messages.push(json!({"role": speaker, "content": turn.text}));
    }
    let mut body = json!({"model": sampling.model, "messages": messages});
    if let Some(limit) = sampling.max_completion_tokens {
        body["max_completion_tokens"] = limit.into();
    }
    if let Some(temperature) = sampling.temperature {
        body["temperature"] = temperature.into();
    }
    if let Some(effort) = &sampling.reasoning_effort {
        body["reasoning_effort"] = effort.as_str().into();
    }
    body
}

/// What a chat completion says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The first choice's text; empty where there is none. A refusal is a text too.
    pub text: String,
    /// Who answered.
    pub model: Option<String>,
    /// Tokens, where counted.
    pub usage: Option<Usage>,
    /// Why the text ends where it ends, in the endpoint's word.
    pub finish_reason: Option<String>,
}

impl Completion {
    /// Reads a `chat.completion` object. Only the choices are required; everything unknown is passed over.
    ///
    /// # Errors
    ///
    /// What is missing.
    pub fn read(body: &Value) -> Result<Self, String> {
        let choice = body
            .get("choices")
            .and_then(|choices| choices.get(0))
            .ok_or("a chat completion was expected, with at least one choice")?;
        let message = choice.get("message").ok_or("the first choice has no message")?;
        let word = |value: &Value| value.as_str().map(str::to_owned);
        Ok(Self {
            text: text(message),
            model: body.get("model").and_then(word),
            usage: body.get("usage").and_then(usage),
            finish_reason: choice.get("finish_reason").and_then(word),
        })
    }
}

fn text(message: &Value) -> String {
    let content = match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text").or(part.get("refusal"))?.as_str()).collect()
        }
        _ => String::new(),
    };
    if !content.is_empty() {
        return content;
    }
    message.get("refusal").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn usage(value: &Value) -> Option<Usage> {
    let count = |path: &str| value.pointer(path).and_then(Value::as_u64);
    Some(Usage {
        input_tokens: count("/prompt_tokens")?,
        cached_tokens: count("/prompt_tokens_details/cached_tokens").unwrap_or(0),
        output_tokens: count("/completion_tokens")?,
        reasoning_tokens: count("/completion_tokens_details/reasoning_tokens").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &Value) -> Completion {
        Completion::read(&json!({"choices": [{"message": message, "finish_reason": "a_new_word"}]})).unwrap()
    }

    #[test]
    fn null_content_is_an_empty_text_a_refusal_is_a_text_and_parts_are_joined() {
        assert_eq!(read(&json!({"content": null})).text, "");
        assert_eq!(read(&json!({"content": null, "refusal": "no"})).text, "no");
        assert_eq!(
            read(&json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})).text,
            "ab"
        );
    }

    #[test]
    fn missing_usage_and_an_unknown_finish_reason_are_no_error() {
        let completion = read(&json!({"content": "x"}));
        assert_eq!((completion.usage, completion.finish_reason.as_deref()), (None, Some("a_new_word")));
    }

    #[test]
    fn an_answer_without_choices_is_an_error() {
        assert!(Completion::read(&json!({"choices": []})).is_err());
        assert!(Completion::read(&json!("hello")).is_err());
    }
}
