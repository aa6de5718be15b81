//! How is a key kept from everything that is written down?

use serde::Deserialize;

/// A key. It can be read from a file and handed to an endpoint; it cannot be printed or serialized.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The key in this text; `None` if there is nothing but white space.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        Some(text.trim()).filter(|text| !text.is_empty()).map(|text| Self(text.to_owned()))
    }

    /// The key itself, for whoever sends it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }
}
