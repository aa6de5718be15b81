//! Speedups with their intervals: how much faster, and how sure is that?

use crate::{
    bootstrap,
    timing::{Statistic, Timing},
};
use rand::{Rng, rngs::StdRng};
use serde::{Deserialize, Serialize};

/// From `low` to `high`: where 95 % of the resampled ratios lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The 2.5th percentile.
    pub low: f64,
    /// The 97.5th percentile.
    pub high: f64,
}

/// What an interval allows one to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// The whole interval lies above 1.
    Faster,
    /// The whole interval lies below 1.
    Slower,
    /// The interval holds 1.
    NoDifference,
}

/// Reference time over candidate time, with its interval: above 1 is faster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speedup {
    /// The ratio of the two statistics; over several cases, the geometric mean of the ratios (Astra §3.1).
    pub ratio: f64,
    /// The bootstrap interval of the ratio.
    pub interval: Interval,
}

impl Speedup {
    /// The speedup of one or several cases, each a reference timing and the candidate's, taken in pairs.
    ///
    /// Sample `i` of one and sample `i` of the other were taken next to each other, so they are resampled together:
    /// what slowed the machine for a while slowed both, and cancels. Where several pairs of processes gave the samples,
    /// the pairs of processes are resampled first, and samples within them: what is settled when a process starts, such
    /// as where its memory lies, is part of the doubt. Where they were taken in several sittings, those are resampled before
    /// all else, the same for all cases, and one fewer than there were, which makes up for how little a few draws differ (Rao
    /// and Wu 1988, JASA 83); and the interval is stretched as Student's distribution is for so few. `None` where a case has
    /// no samples.
    #[must_use]
    pub fn over(cases: &[(&Timing, &Timing)], statistic: Statistic) -> Option<Self> {
        let cases: Vec<Sittings> = cases.iter().map(|(r, c)| paired(r, c)).collect();
        if cases.is_empty() || cases.iter().any(Vec::is_empty) {
            return None;
        }
        let overall = Self::ratio_of(&cases, statistic);
        let sittings = cases.iter().map(Vec::len).min().unwrap_or(1);
        let resample = |rng: &mut StdRng| {
            let drawn: Vec<usize> = match sittings {
                1 => vec![0],
                all => (1..all).map(|_| rng.random_range(0..all)).collect(),
            };
            Some(geometric_mean(cases.iter().map(|case| {
                let pairs: Vec<_> = drawn.iter().flat_map(|at| resampled(&case[*at], rng)).collect();
                ratio(&pairs, statistic)
            })))
        };
        let interval = bootstrap::interval(resample);
        Some(Self { ratio: overall, interval }.stretched(student(sittings)))
    }

    /// The same with the ends of its interval so many times as far from its ratio, as factors.
    fn stretched(self, times: f64) -> Self {
        let end = |end: f64| if times > 1.0 { self.ratio * (end / self.ratio).powf(times) } else { end };
        Self { interval: Interval { low: end(self.interval.low), high: end(self.interval.high) }, ..self }
    }

    /// Its ratio alone, without the resampling that an interval takes; `None` where a case has no samples.
    #[must_use]
    pub fn ratio_over(cases: &[(&Timing, &Timing)], statistic: Statistic) -> Option<f64> {
        let cases: Vec<Sittings> = cases.iter().map(|(r, c)| paired(r, c)).collect();
        let measured = !cases.is_empty() && !cases.iter().any(Vec::is_empty);
        measured.then(|| Self::ratio_of(&cases, statistic))
    }

    fn ratio_of(cases: &[Sittings], statistic: Statistic) -> f64 {
        geometric_mean(cases.iter().map(|sittings| ratio(&sittings.concat().concat(), statistic)))
    }

    /// Over another, where both are over the same thing and were not taken in pairs: both ends of both intervals at their worst.
    #[must_use]
    pub fn beside(&self, other: &Self) -> Self {
        let (low, high) = (self.interval.low / other.interval.high, self.interval.high / other.interval.low);
        Self { ratio: self.ratio / other.ratio, interval: Interval { low, high } }
    }

    /// The same with its interval widened at both ends by a systematic error, as a part of the ratio.
    #[must_use]
    pub fn widened_by(self, part: f64) -> Self {
        let (Interval { low, high }, part) = (self.interval, part.max(0.0));
        Self { interval: Interval { low: low / (1.0 + part), high: high * (1.0 + part) }, ..self }
    }

    /// The same with the low end of its interval moved: the candidate may have taken longer than was counted, by this part
    /// of its time.
    #[must_use]
    pub fn lowered_by(self, part: f64) -> Self {
        let Interval { low, high } = self.interval;
        Self { interval: Interval { low: low / (1.0 + part.max(0.0)), high }, ..self }
    }

    /// By what part the interval is to be wider where the reference's own over itself, in another process, reaches by this part
    /// from 1: that is an error which one pair of processes says nothing of, and which is taken for independent of what this
    /// interval knows, so that the two add up as the sides of a right angle do, in logarithms.
    #[must_use]
    pub fn of_itself(&self, reaches: f64) -> f64 {
        let (own, itself) = ((self.interval.high / self.interval.low).ln() / 2.0, reaches.max(0.0).ln_1p());
        (own.hypot(itself) - own).exp_m1()
    }

    /// By what part the interval of these cases is to be wider for how few pairs of processes there were: resampling takes a few
    /// for as many as there might be. It reaches as far as Student's for the ratios of the pairs then, of two as of three. Of
    /// several sittings, whose number the interval knows, of one pair, which says nothing of others, and of more than a few, of
    /// which one may be disturbed while a median is not, 0.
    #[must_use]
    pub fn of_few_processes(&self, cases: &[(&Timing, &Timing)], statistic: Statistic) -> f64 {
        let cases: Vec<Sittings> = cases.iter().map(|(r, c)| paired(r, c)).collect();
        let pairs = cases.iter().map(|sittings| sittings.first().map_or(0, Vec::len)).min().unwrap_or(0);
        if !(2..=A_FEW).contains(&pairs) || cases.iter().any(|sittings| sittings.len() > 1) {
            return 0.0;
        }
        let log = |pair: usize| geometric_mean(cases.iter().map(|case| ratio(&case[0][pair], statistic))).ln();
        let logs: Vec<f64> = (0..pairs).map(log).collect();
        let (count, mean) = (pairs as f64, logs.iter().sum::<f64>() / pairs as f64);
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let reaches = NORMAL * student(pairs) * (variance / count).sqrt();
        let resampled = (self.interval.high / self.interval.low).ln() / 2.0;
        (reaches - resampled).max(0.0).exp_m1()
    }

    /// What may be claimed.
    #[must_use]
    pub fn claim(&self) -> Claim {
        if self.interval.low > 1.0 {
            Claim::Faster
        } else if self.interval.high < 1.0 {
            Claim::Slower
        } else {
            Claim::NoDifference
        }
    }
}

impl std::fmt::Display for Speedup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = crate::quantity::digits(self.ratio);
        write!(f, "{:.digits$}x [{:.digits$}, {:.digits$}]", self.ratio, self.interval.low, self.interval.high)
    }
}

/// How many pairs of processes are a few.
const A_FEW: usize = 5;

/// Within how many standard deviations 95 % of a normal distribution lie.
const NORMAL: f64 = 1.96;

/// By how much wider Student's 95 % are for so many draws than the normal distribution's. Two draws are taken for three, for
/// their own factor of six would say nothing any more.
fn student(draws: usize) -> f64 {
    const OF_THREE: [f64; 8] = [2.20, 1.62, 1.42, 1.31, 1.25, 1.21, 1.18, 1.15];
    if draws > 1 { OF_THREE.get(draws.max(3) - 3).copied().unwrap_or(1.1) } else { 1.0 }
}

/// Pairs of samples, by the pair of processes that gave them.
type Processes = Vec<Vec<(f64, f64)>>;
/// The same by sitting.
type Sittings = Vec<Processes>;

fn paired(reference: &Timing, candidate: &Timing) -> Sittings {
    let pairs = |(r, c): (&[f64], &[f64])| r.iter().copied().zip(c.iter().copied()).collect();
    let sitting = |(r, c): (Vec<&[f64]>, Vec<&[f64]>)| {
        let processes = r.into_iter().zip(c).map(pairs);
        processes.filter(|pairs: &Vec<_>| !pairs.is_empty()).collect()
    };
    let sittings = reference.sittings().zip(candidate.sittings()).map(sitting);
    sittings.filter(|processes: &Processes| !processes.is_empty()).collect()
}

fn ratio(pairs: &[(f64, f64)], statistic: Statistic) -> f64 {
    let (reference, candidate): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    statistic.of(&reference) / statistic.of(&candidate)
}

fn resampled(processes: &Processes, rng: &mut StdRng) -> Vec<(f64, f64)> {
    let mut drawn = vec![];
    for _ in processes {
        let pairs = &processes[rng.random_range(0..processes.len())];
        drawn.extend(pairs.iter().map(|_| pairs[rng.random_range(0..pairs.len())]));
    }
    drawn
}

/// The mean of ratios, or of times: the root of their product. NaN where there is none.
pub fn geometric_mean(ratios: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = ratios.len() as f64;
    (ratios.map(f64::ln).sum::<f64>() / count).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn noisy(around: f64, seed: u64) -> Timing {
        let mut rng = StdRng::seed_from_u64(seed);
        Timing::of((0..100).map(|_| around * rng.random_range(0.9..1.1)))
    }

    #[test]
    fn twice_as_fast_in_one_case_and_half_as_fast_in_another_is_no_gain() {
        let (one, two) = (Timing::of([1.0; 8]), Timing::of([2.0; 8]));
        let speedup = Speedup::over(&[(&two, &one), (&one, &two)], Statistic::Mean).unwrap();
        assert!((speedup.ratio - 1.0).abs() < 1e-12, "{speedup}");
    }

    #[test]
    fn the_same_thing_timed_twice_is_no_difference() {
        let speedup = Speedup::over(&[(&noisy(10.0, 1), &noisy(10.0, 2))], Statistic::Median).unwrap();
        assert_eq!(speedup.claim(), Claim::NoDifference, "{speedup}");
    }

    #[test]
    fn few_pairs_of_processes_that_differ_widen_an_interval_and_those_that_agree_or_are_many_sittings_do_not() {
        let process = |around: f64, seed| noisy(around, seed).processes().next().unwrap().to_vec();
        let reference = Timing::of_processes((0..4).map(|seed| process(10.0, seed)));
        let part = |candidate: &Timing| {
            let cases = [(&reference, candidate)];
            Speedup::over(&cases, Statistic::Median).unwrap().of_few_processes(&cases, Statistic::Median)
        };
        let around = |luck: [f64; 4]| luck.into_iter().zip(10..).map(|(around, seed)| process(around, seed));
        let (alike, apart) = ([10.0; 4], [10.0, 12.0, 9.0, 11.0]);
        assert!(part(&Timing::of_processes(around(alike))) < 0.01);
        // Standard deviation of the logarithms 0.124, so Student's for three degrees of freedom reach 0.197.
        let widened = part(&Timing::of_processes(around(apart)));
        assert!((0.05..0.15).contains(&widened), "{widened}");
        let sittings = |luck| Timing::of_sittings(around(luck).map(|process| vec![process]));
        let cases = [(&sittings(alike), &sittings(apart))];
        let speedup = Speedup::over(&cases, Statistic::Median).unwrap();
        assert!(speedup.of_few_processes(&cases, Statistic::Median) < f64::EPSILON);
        let many = Timing::of_processes((0..10).map(|seed| process(if seed == 4 { 15.0 } else { 10.0 }, 20 + seed)));
        let beside = Timing::of_processes((0..10).map(|seed| process(10.0, seed)));
        let cases = [(&beside, &many)];
        let speedup = Speedup::over(&cases, Statistic::Median).unwrap();
        assert!(speedup.of_few_processes(&cases, Statistic::Median) < f64::EPSILON, "one of ten was disturbed");
        let one = [(&noisy(10.0, 1), &noisy(12.0, 2))];
        assert!(
            Speedup::over(&one, Statistic::Median).unwrap().of_few_processes(&one, Statistic::Median) < f64::EPSILON
        );
    }

    #[test]
    fn what_differs_from_process_to_process_is_part_of_the_doubt() {
        // The same kernel, but each process is a few percent off for as long as it lives.
        let luck = [1.05, 0.97, 1.02, 0.96, 1.03, 0.99, 1.04, 0.95];
        let processes = |off: &[f64]| Timing::of_processes(off.iter().map(|off| vec![10.0 * off; 12]));
        let (here, there) = (processes(&luck), processes(&[1.0; 8]));
        let speedup = Speedup::over(&[(&here, &there)], Statistic::Mean).unwrap();
        assert_eq!(speedup.claim(), Claim::NoDifference, "{speedup}");
        assert!(speedup.interval.high - speedup.interval.low > 0.03, "{speedup}");
        // Taken for samples of one process, the first three alone would be a clear gain.
        let (one, other) = (Timing::of([10.3; 36]), Timing::of([10.0; 36]));
        assert_eq!(Speedup::over(&[(&one, &other)], Statistic::Mean).unwrap().claim(), Claim::Faster);
    }

    /// A certificate on a machine whose clock for the two sides drifts from sitting to sitting, by five percent, while the
    /// candidate is exactly as fast as its reference.
    fn on_a_drifting_clock(rng: &mut StdRng, sittings: usize) -> [Timing; 2] {
        let mut taken = [vec![], vec![]];
        for _ in 0..sittings {
            let drift = 1.0 + rng.random_range(-0.0866..0.0866);
            let processes = 12 / sittings;
            let mut one = |around: f64| -> Vec<Vec<f64>> {
                (0..processes).map(|_| (0..3).map(|_| around * rng.random_range(0.98..1.02)).collect()).collect()
            };
            taken[0].push(one(10.0));
            taken[1].push(one(10.0 * drift));
        }
        taken.map(Timing::of_sittings)
    }

    #[test]
    fn a_clock_that_drifts_between_sittings_is_part_of_the_doubt_and_no_gain() {
        let rng = &mut StdRng::seed_from_u64(7);
        let mut wrong = |sittings: usize| {
            let claims = (0..20).map(|_| on_a_drifting_clock(rng, sittings));
            let claim = |[r, c]: [Timing; 2]| Speedup::over(&[(&r, &c)], Statistic::Median).unwrap().claim();
            claims.map(claim).filter(|claim| *claim != Claim::NoDifference).count()
        };
        let (spread, at_once) = (wrong(4), wrong(1));
        assert!(spread <= 3 && at_once >= 14, "of 20 claims {spread} are wrong, and {at_once} of one sitting each");
    }

    #[test]
    fn cases_share_the_sittings_that_they_were_timed_in() {
        let drift = [1.1, 0.9, 1.05, 0.95];
        let case = |of: &[f64]| Timing::of_sittings(of.iter().map(|of| vec![vec![10.0 * of; 8]; 3]));
        let (here, there) = (case(&drift), case(&[1.0; 4]));
        let pair = (&here, &there);
        let width = |cases: &[(&Timing, &Timing)]| {
            let Interval { low, high } = Speedup::over(cases, Statistic::Mean).unwrap().interval;
            high - low
        };
        assert!(width(&[pair; 4]) > 0.95 * width(&[pair]), "four cases are no four times as many sittings");
    }

    #[test]
    fn a_clear_gain_and_a_clear_loss_are_told_apart() {
        let (slow, fast) = (noisy(20.0, 1), noisy(10.0, 2));
        let gain = Speedup::over(&[(&slow, &fast)], Statistic::Median).unwrap();
        let loss = Speedup::over(&[(&fast, &slow)], Statistic::Median).unwrap();
        assert_eq!((gain.claim(), loss.claim()), (Claim::Faster, Claim::Slower));
        assert!(gain.interval.low < 2.0 && 2.0 < gain.interval.high, "{gain}");
    }

    #[test]
    fn the_same_samples_give_the_same_interval() {
        let (a, b) = (noisy(3.0, 3), noisy(2.0, 4));
        assert_eq!(Speedup::over(&[(&a, &b)], Statistic::Mean), Speedup::over(&[(&a, &b)], Statistic::Mean));
    }

    #[test]
    fn a_systematic_error_widens_both_ends_and_time_that_was_not_counted_moves_the_low_one() {
        let speedup = Speedup { ratio: 2.0, interval: Interval { low: 1.8, high: 2.2 } };
        let Interval { low, high } = speedup.widened_by(0.1).interval;
        assert!((low - 1.8 / 1.1).abs() < 1e-12 && (high - 2.42).abs() < 1e-12);
        let Interval { low, high } = speedup.lowered_by(0.1).interval;
        assert!((low - 1.8 / 1.1).abs() < 1e-12 && (high - 2.2).abs() < 1e-12);
        assert_eq!(speedup.widened_by(-1.0), speedup);
    }

    #[test]
    fn an_interval_is_wider_by_how_far_the_references_own_over_itself_reaches() {
        let speedup = Speedup { ratio: 1.2, interval: Interval { low: 1.2 / 1.1, high: 1.2 * 1.1 } };
        assert!(speedup.of_itself(0.0).abs() < 1e-12);
        // What is small beside it adds next to nothing.
        assert!(speedup.of_itself(0.01) < 6e-4);
        // ln 1.5 = 0.405, ln 1.1 = 0.095: together 0.416, of which the interval has 0.095.
        let part = speedup.of_itself(0.5);
        assert!((part - 0.3789).abs() < 1e-3, "{part}");
        assert!(speedup.widened_by(part).interval.low < 1.0);
        assert!(speedup.of_itself(-1.0).abs() < 1e-12);
    }

    #[test]
    fn nothing_measured_is_no_speedup() {
        assert_eq!(Speedup::over(&[], Statistic::Mean), None);
        assert_eq!(Speedup::over(&[(&Timing::default(), &Timing::of([1.0]))], Statistic::Mean), None);
    }
}
