//! Was a GPU left alone, and at its full clocks, while something was timed on it?

use crate::machine::gpu::{Gpu, Look};

/// What disturbed a timed block, in words; empty where nothing did.
pub(crate) type Disturbances = Vec<String>;

/// By how much the multiprocessors' clock may have fallen afterwards, as a share. A GPU that was idle before runs faster.
const CLOCK: f64 = 0.05;
/// How much of a block may have been slowed down before it counts, in nanoseconds.
const SLOWED_NS: u64 = 1_000_000;

/// Runs a timed block, and once more where it was disturbed; what disturbed the first, and the second where it was too.
/// Without a GPU to ask, the block just runs.
///
/// # Errors
/// Those of the block.
pub(crate) fn watched<T, E>(
    gpu: Option<&Gpu>,
    mut block: impl FnMut() -> Result<T, E>,
) -> Result<(T, Disturbances), E> {
    let Some(gpu) = gpu else { return Ok((block()?, vec![])) };
    let mut once = || -> Result<(T, Disturbances), E> {
        let before = gpu.look();
        let done = block()?;
        Ok((done, disturbances(&before, &gpu.look())))
    };
    let (done, first) = once()?;
    if first.is_empty() {
        return Ok((done, first));
    }
    let (done, second) = once()?;
    Ok((done, told(&first, &second)))
}

fn told(first: &[String], second: &[String]) -> Disturbances {
    let first = format!("timed once more, for the first time was disturbed: {}", first.join("; "));
    let second = (!second.is_empty()).then(|| format!("the second time was disturbed too: {}", second.join("; ")));
    [Some(first), second].into_iter().flatten().collect()
}

fn disturbances(before: &Look, after: &Look) -> Disturbances {
    let mut found = vec![];
    let slowed = after.slowed_ns.saturating_sub(before.slowed_ns);
    if !after.slowed_by.is_empty() {
        found.push(format!("its clocks were held down by {}", after.slowed_by.join(" and ")));
    } else if slowed > SLOWED_NS {
        found.push(format!("its clocks were held down for {} ms, for power or heat", slowed / 1_000_000));
    }
    if let (Some(one), Some(two)) = (before.sm_mhz, after.sm_mhz)
        && f64::from(two) < (1.0 - CLOCK) * f64::from(one)
    {
        found.push(format!("its multiprocessors ran at {one} MHz before and at {two} MHz after"));
    }
    let strangers = before.strangers.len().max(after.strangers.len());
    if strangers > 0 {
        found.push(format!("{strangers} other processes computed on it"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(sm_mhz: u32) -> Look {
        Look { sm_mhz: Some(sm_mhz), processes: vec![7], ..Look::default() }
    }

    #[test]
    fn a_gpu_left_alone_at_steady_clocks_is_not_disturbed() {
        assert!(disturbances(&look(1980), &look(1950)).is_empty());
        assert!(disturbances(&look(345), &look(1980)).is_empty());
        assert!(disturbances(&Look::default(), &Look::default()).is_empty());
    }

    #[test]
    fn clocks_that_fell_their_reasons_and_strangers_are_told() {
        let slowed = Look { slowed_by: vec!["its power limit"], ..look(1980) };
        assert!(disturbances(&look(1980), &slowed)[0].contains("held down by its power limit"));
        let since = Look { slowed_ns: 5_000_000, ..look(1980) };
        assert!(disturbances(&look(1980), &since)[0].contains("for 5 ms"));
        assert!(disturbances(&look(1980), &look(1200))[0].contains("1200 MHz after"));
        let visited = Look { strangers: vec![7], ..look(1980) };
        assert!(disturbances(&visited, &look(1980))[0].starts_with("1 other"));
    }

    #[test]
    fn without_a_gpu_to_ask_a_block_runs_once() {
        let mut runs = 0;
        let mut block = || -> Result<i32, ()> {
            runs += 1;
            Ok(runs)
        };
        assert_eq!(watched(None, &mut block), Ok((1, vec![])));
    }
}
