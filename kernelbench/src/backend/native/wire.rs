//! What do a child and its parent say to each other?
//!
//! Small packets on a socket pair, one a message. What the child says is never believed: the answer is in the shared
//! memory, the time is the parent's.

use crate::task::layout::Passed;
use serde::{Deserialize, Serialize};

/// The longest message, in bytes.
pub(crate) const LONGEST: usize = 64 << 10;

/// What a child has to know before it is confined.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The parent's process id: where it differs, the parent is gone.
    pub(crate) parent: u32,
    /// The length of the shared segment, in bytes.
    pub(crate) segment_bytes: usize,
    /// The length of a slot, in bytes.
    pub(crate) slot_bytes: usize,
    /// Slots in the segment.
    pub(crate) slots: usize,
    /// What to pass, argument by argument.
    pub(crate) passed: Vec<Passed>,
    /// Memory that may be had beyond what is there at the start, in bytes.
    pub(crate) memory_bytes: u64,
    /// Processor time that may be used, in seconds.
    pub(crate) cpu_seconds: u64,
    /// The core to run on.
    pub(crate) core: Option<usize>,
    /// Whether there is something to load; else the child only says how it was confined.
    pub(crate) load: bool,
}

/// How one layer of the confinement came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// What it is.
    pub name: String,
    /// Whether it holds.
    pub in_force: bool,
    /// What it does, or why it does not hold.
    pub why: String,
}

/// The child's first word: it is confined, and its kernel is loaded.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// How each layer came out.
    pub(crate) layers: Vec<Layer>,
    /// Its address space when it started, in bytes.
    pub(crate) address_space: u64,
}

/// A request: call the kernel once on each of these slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) nonce: u64,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Request {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.nonce.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.first.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.count.to_ne_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (nonce, rest) = bytes.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let [nonce, first] = [u64::from_ne_bytes(*nonce), u64::from(u32::from_ne_bytes(*first))];
        let count = u32::from_ne_bytes(rest.try_into().ok()?);
        Some(Self { nonce, first: first as u32, count })
    }
}

/// What a child says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// JSON of [`Ready`].
    Ready(Vec<u8>),
    /// The kernel could not be loaded, and why.
    NotLoaded(String),
    /// The child itself could not start, and why.
    Broken(String),
    /// A request is done.
    Done { nonce: u64, inside_ns: u64 },
    /// A signal came; `detail` is the system call's number for `SIGSYS`, else the address that was touched.
    Signal { signal: i32, detail: u64 },
}

impl Report {
    /// Bytes of the messages of fixed length.
    pub(crate) const BYTES: usize = 17;

    pub(crate) fn done(nonce: u64, inside_ns: u64) -> [u8; Self::BYTES] {
        Self::fixed(2, nonce, inside_ns)
    }

    /// Safe to call in a signal handler.
    pub(crate) fn signal(signal: i32, detail: u64) -> [u8; Self::BYTES] {
        Self::fixed(3, u64::from(signal.unsigned_abs()), detail)
    }

    pub(crate) fn ready(json: &[u8]) -> Vec<u8> {
        Self::text(0, json)
    }

    pub(crate) fn not_loaded(why: &str) -> Vec<u8> {
        Self::text(1, why.as_bytes())
    }

    pub(crate) fn broken(why: &str) -> Vec<u8> {
        Self::text(4, why.as_bytes())
    }

    fn text(kind: u8, text: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&text[..text.len().min(LONGEST - 1)]);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            0 => Some(Self::Ready(rest.to_vec())),
            1 => Some(Self::NotLoaded(String::from_utf8_lossy(rest).into_owned())),
            2 | 3 => {
                let (one, two) = rest.split_first_chunk()?;
                let (one, two) = (u64::from_ne_bytes(*one), u64::from_ne_bytes(two.try_into().ok()?));
                Some(if *kind == 2 {
                    Self::Done { nonce: one, inside_ns: two }
                } else {
                    Self::Signal { signal: i32::try_from(one).ok()?, detail: two }
                })
            }
            4 => Some(Self::Broken(String::from_utf8_lossy(rest).into_owned())),
            _ => None,
        }
    }

    fn fixed(kind: u8, one: u64, two: u64) -> [u8; Self::BYTES] {
        let mut bytes = [kind; Self::BYTES];
        bytes[1..9].copy_from_slice(&one.to_ne_bytes());
        bytes[9..].copy_from_slice(&two.to_ne_bytes());
        bytes
    }
}
