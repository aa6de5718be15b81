//! What is kept open, and what gives way?
//!
//! A problem that is open, and a candidate between two steps, are processes with memory on the device. A run of many tasks
//! opens more of them than fit: those that were used longest ago give way, and are opened anew when they are asked for.

use std::hash::Hash;

/// Things by key, the one used last behind all others; at most so many.
#[derive(Debug)]
pub(super) struct Shelf<K, V> {
    most: usize,
    kept: Vec<(K, V)>,
}

impl<K: Eq + Hash, V> Shelf<K, V> {
    /// An empty shelf for so many.
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), kept: vec![] }
    }

    /// What lies there under this key.
    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        let at = self.kept.iter().position(|(known, _)| known == key)?;
        let found = self.kept.remove(at);
        self.kept.push(found);
        self.kept.last().map(|(_, value)| value)
    }

    /// Takes out what lies there under this key.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.kept.iter().position(|(known, _)| known == key)?;
        Some(self.kept.remove(at).1)
    }

    /// Puts something there, and gives what has to give way: for the caller to drop once nobody waits for the shelf.
    #[must_use = "what gives way is dropped where it takes no time from others"]
    pub(super) fn insert(&mut self, key: K, value: V) -> Vec<V> {
        let mut out: Vec<V> = self.remove(&key).into_iter().collect();
        self.kept.push((key, value));
        while self.kept.len() > self.most {
            out.extend(self.take_oldest());
        }
        out
    }

    /// Takes out what was used longest ago.
    fn take_oldest(&mut self) -> Option<V> {
        self.take_oldest_that(|_, _| true)
    }

    /// Takes out what was used longest ago of those that may go.
    pub(super) fn take_oldest_that(&mut self, may_go: impl Fn(&K, &V) -> bool) -> Option<V> {
        let at = self.kept.iter().position(|(key, value)| may_go(key, value))?;
        Some(self.kept.remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_gives_way() {
        let mut shelf = Shelf::new(2);
        assert!(shelf.insert("a", 1).is_empty() && shelf.insert("b", 2).is_empty());
        assert_eq!(shelf.get(&"a"), Some(&1));
        assert_eq!(shelf.insert("c", 3), [2]);
        assert_eq!(shelf.get(&"b"), None);
        assert_eq!((shelf.remove(&"a"), shelf.take_oldest()), (Some(1), Some(3)));
        assert_eq!(shelf.insert("c", 4), [0; 0]);
        assert_eq!(shelf.insert("c", 5), [4]);
        assert!(shelf.insert("d", 6).is_empty());
        assert_eq!((shelf.take_oldest_that(|key, _| *key != "c"), shelf.take_oldest()), (Some(6), Some(5)));
    }
}
