//! How is a secret kept?

use crate::llm::AskError;
use reqwest::header::HeaderValue;

/// An endpoint's key. It prints as `***` and cannot be serialized.
#[derive(Clone)]
pub struct Key(String);

impl Key {
    /// Takes a key; white space around it is dropped.
    ///
    /// # Errors
    ///
    /// If it is empty, or no HTTP header can carry it.
    pub fn new(secret: &str) -> Result<Self, AskError> {
        let key = Self(secret.trim().to_owned());
        if key.0.is_empty() {
            return Err(AskError::Refused("the endpoint's key is empty: give one, or none at all".into()));
        }
        key.bearer()?;
        Ok(key)
    }

    /// The value of the `Authorization` header, marked as a secret.
    pub(super) fn bearer(&self) -> Result<HeaderValue, AskError> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.0)).map_err(|_| {
            AskError::Refused(
                "the endpoint's key holds characters that no HTTP header can carry: was it copied whole?".into(),
            )
        })?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// The text without this key.
    pub(super) fn scrub(&self, text: &str) -> String {
        text.replace(&self.0, "***")
    }

    /// The text without this key, unless the key is so short that it may be an ordinary word (`none`, `EMPTY`) of a model's reply.
    pub(super) fn scrub_reply(&self, text: String) -> String {
        if self.0.len() < 16 || !text.contains(&self.0) { text } else { self.scrub(&text) }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The text without anything that looks like a key: `sk-` and what follows it.
pub(super) fn scrub_lookalikes(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("sk-") {
        let starts_word =
            !rest[..at].chars().next_back().or(clean.chars().next_back()).is_some_and(char::is_alphanumeric);
        clean.push_str(&rest[..at]);
        let end =
            rest[at..].find(|c: char| !(c.is_alphanumeric() || "-_*.".contains(c))).map_or(rest.len(), |n| at + n);
        clean.push_str(if starts_word { "***" } else { &rest[at..end] });
        rest = &rest[end..];
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_prints_as_stars_whichever_way_it_is_printed() {
        let key = Key::new(" hunter2hunter2hunter2\n").unwrap();
        assert_eq!((format!("{key}"), format!("{key:#?}")), ("***".into(), "***".into()));
        assert!(!format!("{:?}", key.bearer()).contains("hunter2"));
    }

    #[test]
    fn what_looks_like_a_key_is_scrubbed_and_ordinary_words_are_not() {
        let said = "bad key: sk-proj-12***89, use \"sk-x\"; the task-force asks sk-";
        assert_eq!(scrub_lookalikes(said), "bad key: ***, use \"***\"; the task-force asks ***");
    }

    #[test]
    fn a_key_with_a_line_break_in_it_is_refused_and_not_shown() {
        let error = Key::new("hunter2\nhunter3").unwrap_err().to_string();
        assert!(error.contains("copied whole") && !error.contains("hunter"), "{error}");
    }
}
