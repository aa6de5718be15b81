//! The last configuration of a search that was ranked: the next of its text goes on in its process.
//!
//! It serves no other step, for its process has had others before it: one that begins ends it.

use super::sessions::lock;
use crate::hash::Hash;
use std::sync::Mutex;

/// A configuration that was ranked.
#[derive(Debug)]
pub(crate) struct Ranked<L> {
    /// What it is a configuration of.
    pub(crate) text: Hash,
    pub(crate) loaded: L,
    /// How many its process was given, it among them.
    pub(crate) so_far: u32,
}

/// The last one, where nothing else was done since.
#[derive(Debug)]
pub(crate) struct LastRanked<L>(Mutex<Option<Ranked<L>>>);

impl<L> Default for LastRanked<L> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<L> LastRanked<L> {
    /// Keeps this one in the place of the last.
    pub(crate) fn keep(&self, ranked: Ranked<L>) {
        let old = lock(&self.0).replace(ranked);
        drop(old);
    }

    /// Takes it, if it is one of this text whose process was given fewer than so many; any other is forgotten.
    pub(crate) fn take(&self, text: &Hash, most: u32) -> Option<Ranked<L>> {
        let last = lock(&self.0).take();
        last.filter(|ranked| ranked.text == *text && ranked.so_far < most)
    }

    /// Forgets it: its process ends.
    pub(crate) fn forget(&self) {
        let last = lock(&self.0).take();
        drop(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_next_of_a_text_goes_on_with_it_once_and_any_other_ends_it() {
        let (one, other) = (Hash::of(b"one"), Hash::of(b"other"));
        let (last, process) = (LastRanked::default(), Arc::new(()));
        let keep = |so_far| last.keep(Ranked { text: one.clone(), loaded: Arc::clone(&process), so_far });
        assert!(last.take(&one, 3).is_none());
        keep(2);
        assert_eq!(last.take(&one, 3).map(|ranked| ranked.so_far), Some(2));
        assert!(last.take(&one, 3).is_none(), "it is taken once");
        keep(1);
        keep(2);
        assert_eq!(Arc::strong_count(&process), 2, "the last one alone is kept");
        assert!(last.take(&other, 3).is_none() && Arc::strong_count(&process) == 1, "one of another text ends");
        keep(3);
        assert!(
            last.take(&one, 3).is_none() && Arc::strong_count(&process) == 1,
            "one that had as many as may be ends"
        );
        keep(1);
        last.forget();
        assert_eq!(Arc::strong_count(&process), 1);
    }
}
