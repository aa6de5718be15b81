//! How good were many tasks together, and how sure is that?
//!
//! Papers sum up in ways that cannot be compared with one another, so every measure here carries its formula.

use crate::bootstrap;
use crate::speedup::{Interval, geometric_mean};
use crate::timing::quantile;
use rand::Rng;
use serde::{Deserialize, Serialize};

/// What a failure counts in Hawkeye's geometric mean.
const HAWKEYE_FAILURE: f64 = 0.01;
/// With fewer tasks than these there is no interval: even if all fall to one side, chance alone does as much once in
/// sixteen times or oftener.
pub const FEWEST: usize = 6;

/// What came of one task: how many times as fast as the baseline its best correct candidate is; `None` where nothing was
/// correct.
pub type Outcome = Option<f64>;

/// A way to sum up many outcomes in one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// The share of correct ones.
    Correct,
    /// `fast_p` (KernelBench; CudaForge §3.1): the share that is correct and more than this many times as fast.
    Fast(f64),
    /// The mean with failures as 0 (CudaForge §3.1).
    Mean,
    /// The median with failures as 0 (CudaForge §3.1).
    Median,
    /// The 75th percentile with failures as 0 (CudaForge §3.1).
    UpperQuartile,
    /// The geometric mean over the correct ones (Astra §3.1; KernelBench's script).
    GeometricOverCorrect,
    /// The geometric mean with failures as 0.01 (Hawkeye G.2).
    GeometricOverAll,
}

impl Measure {
    /// All of them, as tables list them.
    pub const ALL: [Self; 12] = [
        Self::Correct,
        Self::Fast(0.0),
        Self::Fast(0.5),
        Self::Fast(0.8),
        Self::Fast(1.0),
        Self::Fast(1.5),
        Self::Fast(2.0),
        Self::Mean,
        Self::Median,
        Self::UpperQuartile,
        Self::GeometricOverCorrect,
        Self::GeometricOverAll,
    ];

    /// Its name: letters, digits, `_` and `.`.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Correct => "correct".into(),
            Self::Fast(p) => format!("fast_{p}"),
            Self::Mean => "mean".into(),
            Self::Median => "median".into(),
            Self::UpperQuartile => "p75".into(),
            Self::GeometricOverCorrect => "geomean_correct".into(),
            Self::GeometricOverAll => "geomean_all".into(),
        }
    }

    /// Its formula over n tasks, where s is a task's speedup.
    #[must_use]
    pub fn formula(self) -> String {
        match self {
            Self::Correct => "tasks with a correct candidate / n".into(),
            Self::Fast(p) => format!("tasks that are correct with s > {p} / n"),
            Self::Mean => "sum of s / n, a failure counts 0".into(),
            Self::Median => "median of s over n, a failure counts 0, between the middle two where n is even".into(),
            Self::UpperQuartile => {
                "75th percentile of s over n, a failure counts 0, linear between its neighbours".into()
            }
            Self::GeometricOverCorrect => "geometric mean of s over the correct tasks alone".into(),
            Self::GeometricOverAll => format!("geometric mean of s over n, a failure counts {HAWKEYE_FAILURE}"),
        }
    }

    /// Whether it is a share of the tasks, and no speedup.
    #[must_use]
    pub fn is_share(self) -> bool {
        matches!(self, Self::Correct | Self::Fast(_))
    }

    /// Its value; `None` where there is none: no task, or none correct.
    #[must_use]
    pub fn of(self, outcomes: &[Outcome]) -> Option<f64> {
        let n = outcomes.len();
        let share =
            |fits: &dyn Fn(f64) -> bool| outcomes.iter().flatten().filter(|s| fits(**s)).count() as f64 / n as f64;
        let zeroed = || outcomes.iter().map(|outcome| outcome.unwrap_or(0.0));
        let of_all = |p| quantile(&mut zeroed().collect::<Vec<_>>(), p);
        if n == 0 {
            return None;
        }
        Some(match self {
            Self::Correct => share(&|_| true),
            Self::Fast(p) => share(&|s| s > p),
            Self::Mean => zeroed().sum::<f64>() / n as f64,
            Self::Median => of_all(0.5),
            Self::UpperQuartile => of_all(0.75),
            Self::GeometricOverAll => geometric_mean(outcomes.iter().map(|outcome| outcome.unwrap_or(HAWKEYE_FAILURE))),
            Self::GeometricOverCorrect => {
                let correct: Vec<f64> = outcomes.iter().flatten().copied().collect();
                if correct.is_empty() {
                    return None;
                }
                geometric_mean(correct.into_iter())
            }
        })
    }

    /// Its value with a bootstrap interval over tasks: where 95 % of the values lie when as many tasks are drawn from
    /// these, with putting back. That another run would make other candidates of the same tasks is not in it.
    #[must_use]
    pub fn estimate(self, outcomes: &[Outcome]) -> Option<Estimate> {
        bootstrap(outcomes, |drawn| self.of(drawn))
    }

    /// By how much the second run of the same tasks is above the first, pair by pair: the difference of a share, else of
    /// the measure. `None` where one of them has no value.
    #[must_use]
    pub fn difference(self, pairs: &[(Outcome, Outcome)]) -> Option<Estimate> {
        bootstrap(pairs, |drawn: &[(Outcome, Outcome)]| {
            let (first, second): (Vec<Outcome>, Vec<Outcome>) = drawn.iter().copied().unzip();
            Some(self.of(&second)? - self.of(&first)?)
        })
    }
}

/// A value and the bootstrap interval around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Its interval of 95 %; none with fewer than [`FEWEST`] tasks.
    pub interval: Option<Interval>,
}

/// What a paired difference allows one to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The whole interval lies above.
    Higher,
    /// The whole interval lies below.
    Lower,
    /// The interval holds it.
    NoDifference,
    /// Fewer than [`FEWEST`] pairs.
    TooFew,
}

impl Estimate {
    /// What may be said, where no difference is this: 0 for a difference, 1 for a ratio.
    #[must_use]
    pub fn change_from(&self, none: f64) -> Change {
        match self.interval {
            None => Change::TooFew,
            Some(Interval { low, .. }) if low > none => Change::Higher,
            Some(Interval { high, .. }) if high < none => Change::Lower,
            Some(_) => Change::NoDifference,
        }
    }
}

/// How many times as fast the second run's candidates are as the first's: the geometric mean over the tasks that both got
/// right, with its interval over tasks. `None` where there is no such task.
#[must_use]
pub fn paired_ratio(pairs: &[(Outcome, Outcome)]) -> Option<Estimate> {
    let both: Vec<f64> = pairs.iter().filter_map(|(first, second)| Some(second.as_ref()? / first.as_ref()?)).collect();
    bootstrap(&both, |drawn: &[f64]| (!drawn.is_empty()).then(|| geometric_mean(drawn.iter().copied())))
}

/// A value of many things with its percentile interval; drawings without a value are left out.
fn bootstrap<T: Copy>(things: &[T], value: impl Fn(&[T]) -> Option<f64>) -> Option<Estimate> {
    let whole = value(things)?;
    if things.len() < FEWEST {
        return Some(Estimate { value: whole, interval: None });
    }
    let mut drawn = things.to_vec();
    let interval = bootstrap::interval(|rng| {
        for place in &mut drawn {
            *place = things[rng.random_range(0..things.len())];
        }
        value(&drawn)
    });
    Some(Estimate { value: whole, interval: Some(interval) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(measure: Measure, outcomes: &[Outcome]) -> f64 {
        measure.of(outcomes).unwrap()
    }

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-9
    }

    #[test]
    fn a_speedup_of_exactly_p_is_not_above_p_and_a_failure_stays_in_the_count() {
        let outcomes = [Some(1.0), Some(1.5), Some(2.5), None];
        assert!(near(of(Measure::Fast(1.0), &outcomes), 0.5));
        assert!(near(of(Measure::Fast(1.5), &outcomes), 0.25));
        assert!(near(of(Measure::Fast(0.0), &outcomes), 0.75));
        assert!(near(of(Measure::Correct, &outcomes), 0.75));
    }

    #[test]
    fn cudaforge_s_own_levels_add_up_to_its_own_average() {
        // Table 2: means of 1.448, 2.104 and 1.283 over 100, 100 and 50 tasks are 1.677 over all, failures included.
        let level = |mean: f64, n: usize| std::iter::repeat_n(Some(mean), n);
        let all: Vec<Outcome> = level(1.448, 100).chain(level(2.104, 100)).chain(level(1.283, 50)).collect();
        assert!((of(Measure::Mean, &all) - 1.677).abs() < 5e-4);
        assert!(near(of(Measure::Mean, &[Some(3.0), None, None]), 1.0));
    }

    #[test]
    fn astra_s_average_is_a_geometric_mean() {
        let round = |value: f64| (value * 100.0).round() / 100.0;
        assert!(near(round(of(Measure::GeometricOverCorrect, &[Some(1.26), Some(1.25), Some(1.46)])), 1.32));
        assert!(near(round(of(Measure::GeometricOverCorrect, &[Some(0.73), Some(1.18), Some(1.48)])), 1.08));
    }

    #[test]
    fn percentiles_count_failures_as_zero_and_lie_between_neighbours() {
        let outcomes = [None, Some(1.0), Some(2.0), Some(4.0)];
        assert!(near(of(Measure::Median, &outcomes), 1.5));
        assert!(near(of(Measure::UpperQuartile, &outcomes), 2.5));
    }

    #[test]
    fn hawkeye_s_average_takes_a_failure_for_a_hundredth() {
        let value = of(Measure::GeometricOverAll, &[Some(0.49), None, None, Some(0.50)]);
        assert!((value - 0.07).abs() < 5e-4, "{value}");
    }

    #[test]
    fn nothing_has_no_score() {
        assert_eq!(Measure::Mean.of(&[]), None);
        assert_eq!(Measure::GeometricOverCorrect.estimate(&[None, None]), None);
        assert_eq!(Measure::Correct.of(&[None]), Some(0.0));
    }

    #[test]
    fn an_interval_holds_its_value_and_narrows_with_more_tasks() {
        let outcomes = |n: usize| (0..n).map(|i| (i % 3 > 0).then_some(1.0 + (i % 7) as f64 / 7.0)).collect::<Vec<_>>();
        let width = |n| {
            let estimate = Measure::Mean.estimate(&outcomes(n)).unwrap();
            let Interval { low, high } = estimate.interval.unwrap();
            assert!(low < estimate.value && estimate.value < high);
            high - low
        };
        assert!(width(200) < width(20) / 2.0);
    }

    #[test]
    fn pairs_tell_what_groups_cannot() {
        // Tasks differ a lot, the second run is a little better on each: only side by side does that show.
        let pairs: Vec<(Outcome, Outcome)> = (1..=30).map(f64::from).map(|s| (Some(s), Some(s + 0.1))).collect();
        let difference = Measure::Mean.difference(&pairs).unwrap();
        assert_eq!(difference.change_from(0.0), Change::Higher);
        let apart = |side: fn(&(Outcome, Outcome)) -> Outcome| {
            Measure::Mean.estimate(&pairs.iter().map(side).collect::<Vec<_>>()).unwrap().interval.unwrap()
        };
        assert!(apart(|pair| pair.0).high > apart(|pair| pair.1).low, "apart, the two intervals overlap");
        let same: Vec<_> = pairs.iter().map(|(first, _)| (*first, *first)).collect();
        assert_eq!(Measure::Mean.difference(&same).unwrap().change_from(0.0), Change::NoDifference);
        assert!(
            (paired_ratio(&pairs).unwrap().value - 1.0).abs() < 0.1 && paired_ratio(&[(Some(1.0), None)]).is_none()
        );
        assert_eq!(Measure::Mean.difference(&pairs[..5]).unwrap().change_from(0.0), Change::TooFew);
    }
}
