//! What does a profiler read of a candidate where it reads everything, not only what a Judge is shown?

use crate::profile::ncu::Launched;

/// All that was read of one call on one case: what sets of metrics are chosen from.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The case that was run.
    pub case: String,
    /// The profiler and its version.
    pub tool: String,
    /// The launches of the call, in order; at least one.
    pub launches: Vec<Launched>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

impl Survey {
    /// The launch that stands for the call: the longest of the kernel that most of the time goes to, with that kernel's share
    /// of the time, from 0 to 1.
    #[must_use]
    pub fn dominant(&self) -> Option<(&Launched, f64)> {
        let all: f64 = self.launches.iter().map(Launched::duration_ns).sum();
        let of = |name: &str| -> f64 {
            self.launches.iter().filter(|launch| launch.kernel == name).map(Launched::duration_ns).sum()
        };
        let by_share = |one: &&Launched, other: &&Launched| {
            let key = |launch: &Launched| (of(&launch.kernel), launch.duration_ns());
            let ((all_of_one, one), (all_of_other, other)) = (key(one), key(other));
            all_of_one.total_cmp(&all_of_other).then(one.total_cmp(&other))
        };
        let longest = self.launches.iter().max_by(by_share)?;
        Some((longest, if all > 0.0 { of(&longest.kernel) / all } else { 1.0 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ncu;

    #[test]
    fn the_kernel_that_most_of_the_time_goes_to_stands_for_the_call() {
        let launches = ncu::read(include_str!("../../tests/ncu/h200-softplus-softmax.csv")).unwrap();
        let survey = Survey { case: "c".into(), tool: "ncu".into(), launches, notes: vec![] };
        let (longest, share) = survey.dominant().unwrap();
        assert!(survey.launches.iter().all(|launch| launch.duration_ns() <= longest.duration_ns()));
        assert!(share > 0.5 && share < 1.0, "{share}");
    }
}
