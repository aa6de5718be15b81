//! Are the pages of a file still what was written?
//!
//! Polars ends the program on some damaged pages, for it believes the lengths that it finds there. So a table carries the
//! SHA-256 of its pages in its footer, and they are looked at before they are read. Parquet from elsewhere has no seal, and
//! is read without.

use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Under which name the seal stands in the footer.
pub(super) const KEY: &str = "warpsmith.pages.sha256";

/// The seal of a Parquet file: of all that lies between its first four bytes and its footer. `None` where the footer is
/// longer than the file.
pub(super) fn seal(bytes: &[u8]) -> Option<String> {
    let length = bytes.get(bytes.len().checked_sub(8)?..bytes.len() - 4)?;
    let footer = u32::from_le_bytes(length.try_into().ok()?) as usize;
    let end = bytes.len().checked_sub(8 + footer)?;
    let digest = Sha256::digest(bytes.get(4..end)?);
    let mut hex = String::new();
    for byte in digest {
        let _ = write!(hex, "{byte:02x}");
    }
    Some(hex)
}
