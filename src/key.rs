//! Where is the key while the program runs? Here and with the model's port, and in no environment.
#![expect(
    unsafe_code,
    reason = "an environment can only be changed while there is one thread, which the compiler cannot see"
)]

use crate::config::{ConfigError, Model, RoleModel, Secret};
use agents::llm::Role;
use std::path::Path;

const KEY: &str = "OPENAI_API_KEY";
const BASE_URL: &str = "OPENAI_BASE_URL";

/// What the environment said about the endpoint.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The key.
    pub key: Option<Secret>,
    /// The endpoint's base URL.
    pub base_url: Option<String>,
}

impl Environment {
    /// Reads them, and takes the key out of this process's environment and out of the memory that the system shows of it,
    /// so that no child can read it. To be called before there is a second thread.
    #[must_use]
    pub fn take() -> Self {
        let key = std::env::var(KEY).ok().and_then(|key| Secret::new(&key));
        blot_out();
        // SAFETY: the caller has not started a thread yet.
        unsafe { std::env::remove_var(KEY) };
        Self { key, base_url: std::env::var(BASE_URL).ok().filter(|url| !url.trim().is_empty()) }
    }

    /// Gives a program that goes on in this one's place what was taken.
    pub fn give_back(&self, command: &mut std::process::Command) {
        if let Some(key) = &self.key {
            command.env(KEY, key.reveal());
        }
    }

    /// The endpoint to ask: the environment's, else that of the settings, else none.
    #[must_use]
    pub fn base_url_for(&self, model: &Model) -> String {
        self.base_url.clone().unwrap_or_else(|| model.base_url.clone())
    }

    /// The key to use: the environment's, else the one in the settings, else the one in the file that they name.
    ///
    /// # Errors
    ///
    /// If that file cannot be read or is empty.
    pub fn key_for(&self, model: &Model) -> Result<Option<Secret>, ConfigError> {
        if let Some(key) = self.key.clone().or_else(|| model.api_key.clone()) {
            return Ok(Some(key));
        }
        model.api_key_file.as_deref().map(|file| key_in(file, "model.api_key_file")).transpose()
    }

    /// The key that a role has of its own.
    ///
    /// # Errors
    ///
    /// As for [`Self::key_for`].
    pub fn key_of(role: Role, own: &RoleModel) -> Result<Option<Secret>, ConfigError> {
        if own.api_key.is_some() {
            return Ok(own.api_key.clone());
        }
        let setting = format!("model.roles.{}.api_key_file", role.name());
        own.api_key_file.as_deref().map(|file| key_in(file, &setting)).transpose()
    }

    /// What of the settings a run's folder holds: addresses as they may be written down.
    #[must_use]
    pub fn recorded(&self, model: &Model) -> Model {
        let mut recorded = model.clone();
        recorded.base_url = without_credentials(&self.base_url_for(model));
        for url in recorded.roles.values_mut().filter_map(|role| role.base_url.as_mut()) {
            *url = without_credentials(url);
        }
        recorded
    }
}

fn key_in(file: &Path, setting: &str) -> Result<Secret, ConfigError> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| ConfigError(format!("{}: cannot read the key ({setting}): {e}", file.display())))?;
    Secret::new(&text)
        .ok_or_else(|| ConfigError(format!("{}: expected a key ({setting}), found nothing", file.display())))
}

/// An address as it may be written down: without a user, a password and what is asked of it.
#[must_use]
pub fn without_credentials(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (host, path) = rest.split_once('/').map_or((rest, String::new()), |(host, path)| (host, format!("/{path}")));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Overwrites the key's bytes where the system put them at the start: `/proc/PID/environ` shows that memory.
#[cfg(unix)]
fn blot_out() {
    // SAFETY: `getenv` gives null or a NUL-terminated string that stays where it is while nobody changes the
    // environment, which the only thread does not do before the loop is over.
    unsafe {
        let mut at = libc::getenv(c"OPENAI_API_KEY".as_ptr());
        while !at.is_null() && *at != 0 {
            *at = b'*'.cast_signed();
            at = at.add(1);
        }
    }
}

#[cfg(not(unix))]
fn blot_out() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_down_without_what_is_secret_in_it() {
        assert_eq!(without_credentials("https://me:secret@host:8080/v1?key=abc"), "https://host:8080/v1");
        assert_eq!(without_credentials("http://127.0.0.1:8080/v1"), "http://127.0.0.1:8080/v1");
    }
}
