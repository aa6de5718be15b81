//! Watching a GPU: was it left alone, and at its full clocks, while something was timed on it?

use crate::machine::gpu::{Gpu, Look};

/// By how much the multiprocessors' clock may have fallen afterwards, as a share. A GPU that was idle before runs faster.
const CLOCK: f64 = 0.05;
/// How much of a timing may have been slowed down before it counts, in nanoseconds.
const SLOWED_NS: u64 = 1_000_000;

/// What disturbed a GPU, in words; empty where nothing did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disturbances {
    /// Other programs: without them a timing may come out otherwise.
    pub(crate) others: Vec<String>,
    /// Its own clocks, which go down for both sides and go down again.
    pub(crate) clocks: Vec<String>,
}

impl Disturbances {
    /// Takes in those of another stretch of time, each once.
    pub(crate) fn extend(&mut self, more: Self) {
        for (all, more) in [(&mut self.others, more.others), (&mut self.clocks, more.clocks)] {
            for one in more {
                if !all.contains(&one) {
                    all.push(one);
                }
            }
        }
    }

    /// All of them.
    pub(crate) fn all(self) -> Vec<String> {
        [self.others, self.clocks].concat()
    }
}

/// A timing that is being watched.
pub(crate) struct Watch<'a> {
    before: Option<(&'a Gpu, Look)>,
}

impl<'a> Watch<'a> {
    /// Begins to watch, where there is a GPU to ask.
    pub(crate) fn begin(gpu: Option<&'a Gpu>) -> Self {
        Self { before: gpu.map(|gpu| (gpu, gpu.look())) }
    }

    /// What disturbed it since.
    pub(crate) fn end(self) -> Disturbances {
        self.before.map_or_else(Disturbances::default, |(gpu, before)| disturbances(&before, &gpu.look()))
    }
}

fn disturbances(before: &Look, after: &Look) -> Disturbances {
    let mut clocks = vec![];
    let slowed = after.slowed_ns.saturating_sub(before.slowed_ns);
    if !after.slowed_by.is_empty() {
        clocks.push(format!("its clocks were held down by {}", after.slowed_by.join(" and ")));
    } else if slowed > SLOWED_NS {
        clocks.push(format!("its clocks were held down for {} ms, for power or heat", slowed / 1_000_000));
    }
    if let (Some(one), Some(two)) = (before.sm_mhz, after.sm_mhz)
        && f64::from(two) < (1.0 - CLOCK) * f64::from(one)
    {
        clocks.push(format!("its multiprocessors ran at {one} MHz before and at {two} MHz after"));
    }
    let strangers = before.strangers.len().max(after.strangers.len());
    let others = (strangers > 0).then(|| format!("{strangers} other processes computed on it"));
    Disturbances { others: others.into_iter().collect(), clocks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(sm_mhz: u32) -> Look {
        Look { sm_mhz: Some(sm_mhz), processes: vec![7], ..Look::default() }
    }

    #[test]
    fn a_gpu_left_alone_at_steady_clocks_is_not_disturbed() {
        assert_eq!(disturbances(&look(1980), &look(1950)), Disturbances::default());
        assert_eq!(disturbances(&look(345), &look(1980)), Disturbances::default());
        assert_eq!(disturbances(&Look::default(), &Look::default()), Disturbances::default());
        assert_eq!(Watch::begin(None).end(), Disturbances::default());
    }

    #[test]
    fn clocks_that_fell_their_reasons_and_other_programs_are_said() {
        let slowed = Look { slowed_by: vec!["its power limit"], ..look(1980) };
        assert!(disturbances(&look(1980), &slowed).clocks[0].contains("held down by its power limit"));
        let since = Look { slowed_ns: 5_000_000, ..look(1980) };
        assert!(disturbances(&look(1980), &since).clocks[0].contains("for 5 ms"));
        assert!(disturbances(&look(1980), &look(1200)).clocks[0].contains("1200 MHz after"));
        let visited = Look { strangers: vec![7], ..look(1980) };
        assert!(disturbances(&visited, &look(1980)).others[0].starts_with("1 other"));
    }
}
