//! Timings: how long something took, each time.

use serde::{Deserialize, Serialize};

/// Which number stands for many samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// The arithmetic mean (Astra §4: 20 warm-ups, 100 repetitions, mean).
    Mean,
    /// The median (Hawkeye G.2: 500 warm-ups, 100 repetitions, median).
    #[default]
    Median,
}

/// Times of one thing, in nanoseconds, in the order in which they were taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    samples_ns: Vec<f64>,
    /// How many of the samples each process gave, in order; empty where one process gave them all.
    #[serde(default, alias = "launches", skip_serializing_if = "Vec::is_empty")]
    processes: Vec<usize>,
    /// How many of the processes each sitting had, in order; empty where there was one sitting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sittings: Vec<usize>,
}

impl Timing {
    /// A timing of these samples, in nanoseconds. Samples that are not positive and finite are no times and are left out.
    #[must_use]
    pub fn of(samples_ns: impl IntoIterator<Item = f64>) -> Self {
        Self::of_processes([samples_ns.into_iter().collect()])
    }

    /// A timing of samples from several processes, one after the other: where its memory lies is settled when a process
    /// starts, so what one process says of another's speed is one draw, however many samples it gives.
    #[must_use]
    pub fn of_processes(processes: impl IntoIterator<Item = Vec<f64>>) -> Self {
        Self::of_sittings([processes.into_iter().collect()])
    }

    /// A timing of several sittings, each of samples by process: stretches of time with other work between them. What changes
    /// from minute to minute is the same within one, so what one says is one draw, however many processes it has.
    #[must_use]
    pub fn of_sittings(sittings: impl IntoIterator<Item = Vec<Vec<f64>>>) -> Self {
        let is_time = |ns: &f64| ns.is_finite() && *ns > 0.0;
        let times = |samples: Vec<f64>| samples.into_iter().filter(is_time).collect::<Vec<_>>();
        let sittings = sittings.into_iter().map(|processes| {
            let processes = processes.into_iter().map(times);
            processes.filter(|samples| !samples.is_empty()).collect::<Vec<_>>()
        });
        let sittings: Vec<Vec<Vec<f64>>> = sittings.filter(|processes| !processes.is_empty()).collect();
        let among = if sittings.len() > 1 { sittings.iter().map(Vec::len).collect() } else { vec![] };
        let processes = sittings.concat();
        let sizes = if processes.len() > 1 { processes.iter().map(Vec::len).collect() } else { vec![] };
        Self { samples_ns: processes.concat(), processes: sizes, sittings: among }
    }

    /// These samples and behind them those of another timing, of other processes at another time.
    #[must_use]
    pub fn followed_by(&self, later: &Self) -> Self {
        let owned = |processes: Vec<&[f64]>| processes.into_iter().map(<[f64]>::to_vec).collect();
        Self::of_sittings(self.sittings().chain(later.sittings()).map(owned))
    }

    /// Every sample, in nanoseconds, in the order taken.
    #[must_use]
    pub fn samples_ns(&self) -> &[f64] {
        &self.samples_ns
    }

    /// The samples by the process that gave them.
    pub fn processes(&self) -> impl Iterator<Item = &[f64]> {
        let mut rest = &self.samples_ns[..];
        let sizes = if self.processes.is_empty() { vec![rest.len()] } else { self.processes.clone() };
        sizes.into_iter().map(move |size| {
            // A record from elsewhere may promise more samples than it holds.
            let (samples, behind) = rest.split_at(size.min(rest.len()));
            rest = behind;
            samples
        })
    }

    /// The samples by sitting, and in each by the process that gave them.
    pub fn sittings(&self) -> impl Iterator<Item = Vec<&[f64]>> {
        let mut rest = self.processes();
        let sizes = if self.sittings.is_empty() { vec![usize::MAX] } else { self.sittings.clone() };
        sizes.into_iter().map(move |size| rest.by_ref().take(size).collect())
    }

    /// The statistic asked for, in nanoseconds; NaN where there are no samples.
    #[must_use]
    pub fn typical_ns(&self, statistic: Statistic) -> f64 {
        statistic.of(&self.samples_ns)
    }

    /// The sample below which the share `p` (0 to 1) of all samples lies, in nanoseconds; NaN where there are none.
    #[must_use]
    pub fn quantile_ns(&self, p: f64) -> f64 {
        let mut sorted = self.samples_ns.clone();
        quantile(&mut sorted, p)
    }
}

impl Statistic {
    /// This statistic of some numbers; NaN where there are none.
    #[must_use]
    pub fn of(self, numbers: &[f64]) -> f64 {
        match self {
            Self::Mean => numbers.iter().sum::<f64>() / numbers.len() as f64,
            Self::Median => quantile(&mut numbers.to_vec(), 0.5),
        }
    }
}

/// The linearly interpolated quantile; sorts in place.
pub(crate) fn quantile(numbers: &mut [f64], p: f64) -> f64 {
    if numbers.is_empty() {
        return f64::NAN;
    }
    numbers.sort_by(f64::total_cmp);
    let at = p.clamp(0.0, 1.0) * (numbers.len() - 1) as f64;
    let (low, high) = (numbers[at.floor() as usize], numbers[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let timing = Timing::of([4.0, 1.0, 3.0, 2.0]);
        assert!((timing.typical_ns(Statistic::Median) - 2.5).abs() < 1e-12);
        assert!((timing.typical_ns(Statistic::Mean) - 2.5).abs() < 1e-12);
    }

    #[test]
    fn samples_that_are_no_times_are_left_out() {
        assert_eq!(Timing::of([f64::NAN, -1.0, 0.0, 5.0]).samples_ns(), [5.0]);
        assert!(Timing::default().typical_ns(Statistic::Mean).is_nan());
    }

    #[test]
    fn samples_come_back_by_the_process_that_gave_them() {
        let timing = Timing::of_processes([vec![1.0, 2.0], vec![], vec![3.0]]);
        assert_eq!(timing.processes().collect::<Vec<_>>(), [&[1.0, 2.0][..], &[3.0]]);
        assert_eq!(Timing::of([1.0, 2.0]).processes().collect::<Vec<_>>(), [&[1.0, 2.0][..]]);
    }

    #[test]
    fn samples_come_back_by_the_sitting_that_they_were_taken_in() {
        let (one, other) = (Timing::of_processes([vec![1.0], vec![2.0]]), Timing::of([3.0]));
        let joined = one.followed_by(&other);
        assert_eq!(joined.sittings().collect::<Vec<_>>(), [vec![&[1.0][..], &[2.0]], vec![&[3.0]]]);
        assert_eq!(one.sittings().collect::<Vec<_>>(), [vec![&[1.0][..], &[2.0]]]);
        let text = serde_json::to_string(&joined).unwrap();
        assert_eq!(serde_json::from_str::<Timing>(&text).unwrap(), joined);
        assert!(!serde_json::to_string(&one).unwrap().contains("sittings"));
    }

    #[test]
    fn a_timing_of_an_old_record_is_read() {
        let old: Timing = serde_json::from_str(r#"{"samples_ns": [1.0, 2.0, 3.0], "launches": [2, 1]}"#).unwrap();
        assert_eq!(old, Timing::of_processes([vec![1.0, 2.0], vec![3.0]]));
    }

    #[test]
    fn one_slow_sample_moves_the_mean_and_not_the_median() {
        let timing = Timing::of([1.0, 1.0, 1.0, 1.0, 96.0]);
        assert!((timing.typical_ns(Statistic::Median) - 1.0).abs() < 1e-12);
        assert!((timing.typical_ns(Statistic::Mean) - 20.0).abs() < 1e-12);
    }
}
