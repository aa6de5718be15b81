//! What is chosen without looking?

use super::{Chosen, Wish};
use crate::evidence::Evidence;

/// As many as wanted, drawn by lot from those that vary.
pub(super) fn random(evidence: &Evidence, tasks: &[usize], eligible: &[usize], wish: &Wish) -> (Vec<Chosen>, String) {
    let mut lots = Lots(wish.seed);
    let mut urn = eligible.to_vec();
    let count = wish.want.min(urn.len());
    for at in 0..count {
        let other = at + (lots.next() % (urn.len() - at) as u64) as usize;
        urn.swap(at, other);
    }
    urn.truncate(count);
    urn.sort_unstable();
    (said(evidence, tasks, &urn), format!("{count} of {} drawn with seed {}", eligible.len(), wish.seed))
}

/// All that vary.
pub(super) fn full(evidence: &Evidence, tasks: &[usize], eligible: &[usize]) -> (Vec<Chosen>, String) {
    (said(evidence, tasks, eligible), format!("all {} that vary", eligible.len()))
}

fn said(evidence: &Evidence, tasks: &[usize], columns: &[usize]) -> Vec<Chosen> {
    let chosen =
        |at: &usize| Chosen { column: *at, score: evidence.columns[*at].mean_abs_r(tasks), instead_of: vec![] };
    columns.iter().map(chosen).collect()
}

/// `SplitMix64` (Steele, Lea and Flood 2014): the same numbers from the same seed in every version of the program.
struct Lots(u64);

impl Lots {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
