//! What is it called? By what is in it.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The SHA-256 of some content, in lower-case hexadecimal: what `sha256sum` prints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, std::hash::Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hash(String);

impl Hash {
    /// The hash of these bytes.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        let mut hashing = Hashing::default();
        hashing.take(content);
        hashing.hash()
    }

    fn hex(digest: &[u8]) -> Self {
        use std::fmt::Write;
        let mut hex = String::with_capacity(64);
        for byte in digest {
            let _ = write!(hex, "{byte:02x}");
        }
        Self(hex)
    }

    /// All 64 digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first eight digits, for people.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

/// A hash of content that comes in pieces.
#[derive(Clone, Debug, Default)]
pub struct Hashing(Sha256);

impl Hashing {
    /// Takes in the next piece.
    pub fn take(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The hash of all that was taken in so far.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::hex(&self.0.clone().finalize())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_what_sha256sum_prints() {
        assert_eq!(Hash::of(b"").as_str(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
