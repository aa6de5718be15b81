//! Evaluations: what came of a candidate.

use crate::{
    hash::Hash,
    result::{
        code_object::CodeObject,
        counts::Counts,
        failure::Failure,
        label::{Kind, Label},
    },
};
use metrics::{Interval, Speedup, Statistic, Timing};
use serde::{Deserialize, Serialize};

/// What came of a candidate. A time exists only where the answer was right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evaluation {
    /// It failed.
    Failed(Failure),
    /// It was right on every case, and this fast.
    Passed(Timed),
    /// It was right on every case, on a processor that is emulated: nothing is known of its speed.
    Counted(Counts),
    /// It compiles for a GPU that is not here: nothing ran, and nothing is known of its answers or its speed.
    Compiled(CodeObject),
}

impl Evaluation {
    /// The times of a candidate that passed.
    #[must_use]
    pub fn passed(&self) -> Option<&Timed> {
        match self {
            Self::Passed(timed) => Some(timed),
            Self::Failed(_) | Self::Counted(_) | Self::Compiled(_) => None,
        }
    }

    /// Whether it was right on every case.
    #[must_use]
    pub fn is_right(&self) -> bool {
        matches!(self, Self::Passed(_) | Self::Counted(_))
    }

    /// Whether nothing here speaks against it: it is right, or compiles where no more can be known.
    #[must_use]
    pub fn holds(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

/// Times of a verified candidate beside its reference's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Each timed case.
    pub cases: Vec<CaseTiming>,
    /// Over all timed cases: the geometric mean of their ratios.
    pub speedup: Speedup,
    /// Which statistic the ratios are of.
    pub statistic: Statistic,
    /// What a reader is to know of the build, the check and the timing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
    /// By what part every interval is wider than resampling makes it: how far the reference reached from itself, what the
    /// backend's processes differ by at least, or what few of them hide; none in records made before it was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub widened_by: Option<f64>,
    /// The hash of what was built and timed: two sources that differ in a comment have one. None where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Hash>,
    /// The name of the baseline that it was timed beside; `None` where that was the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
}

impl Timed {
    /// What its speedups are over: "the reference", or the name of a baseline.
    #[must_use]
    pub fn over(&self) -> &str {
        self.against.as_deref().unwrap_or("the reference")
    }

    /// Whether it is right as the task draws its inputs, and was wrong on others, as a label says; not where it had no memory
    /// for them.
    #[must_use]
    pub fn only_as_drawn(&self) -> bool {
        self.labels.iter().any(|label| label.kind == Kind::BeyondDrawn && !label.is_of_memory())
    }

    /// This with the samples of an earlier timing of the same code on the same cases before its own: where the machine has
    /// changed since, the intervals hold that. `None` where the two are not alike.
    #[must_use]
    pub fn joined(&self, earlier: &Self) -> Option<Self> {
        let widened_by = Some(self.widened_by?.max(earlier.widened_by?));
        if self.against != earlier.against
            || self.statistic != earlier.statistic
            || self.cases.len() != earlier.cases.len()
        {
            return None;
        }
        let mut joined = Self { widened_by, ..self.clone() };
        for (case, before) in joined.cases.iter_mut().zip(&earlier.cases) {
            if case.case != before.case {
                return None;
            }
            case.reference = before.reference.followed_by(&case.reference);
            case.candidate = before.candidate.followed_by(&case.candidate);
            case.uncounted = case.uncounted.max(before.uncounted);
        }
        joined.speedup = joined.speedup_of(&joined.cases.iter().collect::<Vec<_>>())?;
        let each = joined.cases.iter().map(|case| joined.speedup_of(&[case])).collect::<Option<Vec<_>>>()?;
        joined.cases.iter_mut().zip(each).for_each(|(case, speedup)| case.speedup = speedup);
        Some(joined)
    }

    fn speedup_of(&self, cases: &[&CaseTiming]) -> Option<Speedup> {
        let lowered = cases.iter().map(|case| case.uncounted).sum::<f64>() / cases.len().max(1) as f64;
        let speedup = Speedup::over(&pairs(cases), self.statistic)?;
        Some(speedup.lowered_by(lowered).widened_by(self.widened_by.unwrap_or(0.0)))
    }

    /// What the samples come to, beside what is said of them: the first difference in words.
    ///
    /// # Errors
    ///
    /// Which number does not follow from the samples, and what does.
    pub fn recompute(&self) -> Result<(), String> {
        self.recompute_ratios()?;
        for case in &self.cases {
            let lowered = self.widened_by.map(|_| case.uncounted);
            self.follows(&case.case, &[case], &case.speedup, lowered)?;
        }
        let lowered = self.cases.iter().map(|case| case.uncounted).sum::<f64>() / self.cases.len().max(1) as f64;
        let lowered = self.widened_by.map(|_| lowered);
        self.follows("all cases", &self.cases.iter().collect::<Vec<_>>(), &self.speedup, lowered)
    }

    /// The same of the ratios alone, which takes microseconds where intervals take milliseconds.
    ///
    /// # Errors
    ///
    /// Which ratio does not follow from the samples, and what does.
    pub fn recompute_ratios(&self) -> Result<(), String> {
        let all: Vec<_> = self.cases.iter().collect();
        let each = self.cases.iter().map(|case| (case.case.as_str(), std::slice::from_ref(case), case.speedup.ratio));
        for (name, cases, said) in each {
            self.ratio_follows(name, &cases.iter().collect::<Vec<_>>(), said)?;
        }
        self.ratio_follows("all cases", &all, self.speedup.ratio)
    }

    fn ratio_follows(&self, name: &str, cases: &[&CaseTiming], said: f64) -> Result<(), String> {
        match Speedup::ratio_over(&pairs(cases), self.statistic) {
            Some(ratio) if is_near(ratio, said) => Ok(()),
            Some(ratio) => {
                Err(format!("{name}: the ratio {said} does not follow from its samples, which come to {ratio}"))
            }
            None => Err(format!("{name}: the ratio {said} has no samples")),
        }
    }

    /// An old record does not say what lowered and widened its intervals: they hold at least what the samples come to.
    fn follows(&self, name: &str, cases: &[&CaseTiming], said: &Speedup, lowered: Option<f64>) -> Result<(), String> {
        let of_samples = Speedup::over(&pairs(cases), self.statistic).ok_or_else(|| format!("{name}: no samples"))?;
        let Interval { low, high } = match (lowered, self.widened_by) {
            (Some(lowered), Some(widened)) => of_samples.lowered_by(lowered).widened_by(widened).interval,
            _ => of_samples.interval,
        };
        let is_said = match lowered {
            Some(_) => is_near(low, said.interval.low) && is_near(high, said.interval.high),
            None => said.interval.low <= low * (1.0 + NEAR) && said.interval.high >= high * (1.0 - NEAR),
        };
        if is_said {
            return Ok(());
        }
        let Interval { low: said_low, high: said_high } = said.interval;
        Err(format!(
            "{name}: the interval [{said_low}, {said_high}] does not follow from its samples, which come to [{low}, {high}]"
        ))
    }
}

/// How far two computations of one number may lie apart, as a part of it: the last digits of a float.
const NEAR: f64 = 1e-9;

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= NEAR * other.abs()
}

fn pairs<'a>(cases: &[&'a CaseTiming]) -> Vec<(&'a Timing, &'a Timing)> {
    cases.iter().map(|case| (&case.reference, &case.candidate)).collect()
}

/// One case, timed: sample `i` of both was taken on the same inputs, one after the other, in random order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseTiming {
    /// The case's name.
    pub case: String,
    /// The reference's times.
    pub reference: Timing,
    /// The candidate's times.
    pub candidate: Timing,
    /// The ratio of the two.
    pub speedup: Speedup,
    /// The least time in which the best bandwidth measured here moves the inputs and outputs once, in nanoseconds.
    pub floor_ns: Option<f64>,
    /// What the candidate's clock may have hidden, as a part of its time: it lowered the low end of the interval.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uncounted: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(part: &f64) -> bool {
    part.abs() < f64::MIN_POSITIVE
}

impl CaseTiming {
    /// The candidate's share of the roofline: the floor over its time, near 1 where memory is all that bounds it. `None`
    /// where no floor is known.
    #[must_use]
    pub fn roofline_share(&self, statistic: Statistic) -> Option<f64> {
        let time = self.candidate.typical_ns(statistic);
        self.floor_ns.filter(|_| time > 0.0).map(|floor| floor / time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(widened_by: Option<f64>) -> Timed {
        let reference = Timing::of((0..50).map(|i| 400.0 + f64::from(i % 7)));
        let candidate = Timing::of((0..50).map(|i| 100.0 + f64::from(i % 5)));
        let speedup = Speedup::over(&[(&reference, &candidate)], Statistic::Median).unwrap();
        let speedup = speedup.lowered_by(0.02).widened_by(widened_by.unwrap_or(0.01));
        let case = CaseTiming { case: "a".into(), reference, candidate, speedup, floor_ns: None, uncounted: 0.02 };
        Timed {
            cases: vec![case],
            speedup,
            statistic: Statistic::Median,
            labels: vec![],
            widened_by,
            object: None,
            against: None,
        }
    }

    #[test]
    fn what_had_no_memory_for_other_inputs_was_not_wrong_on_them() {
        let labelled = |text: &str| Timed { labels: vec![Label::new(Kind::BeyondDrawn, text)], ..timed(None) };
        assert!(labelled("beyond what the task draws: 3 of 9 elements of out are wrong").only_as_drawn());
        assert!(!labelled("beyond what the task draws: torch.OutOfMemoryError: CUDA out of memory.").only_as_drawn());
        assert!(!timed(None).only_as_drawn());
    }

    #[test]
    fn what_was_measured_follows_from_its_samples_in_old_records_too() {
        assert_eq!(timed(Some(0.01)).recompute(), Ok(()));
        assert_eq!(timed(None).recompute(), Ok(()));
        let text = serde_json::to_string(&timed(Some(0.01))).unwrap();
        assert_eq!(serde_json::from_str::<Timed>(&text).unwrap().recompute(), Ok(()));
    }

    #[test]
    fn samples_of_the_same_code_join_and_what_changed_in_between_is_part_of_the_doubt() {
        let (one, mut other) = (timed(Some(0.0)), timed(Some(0.0)));
        other.cases[0].candidate = Timing::of((0..50).map(|i| 150.0 + f64::from(i % 5)));
        let joined = other.joined(&one).unwrap();
        assert_eq!(joined.recompute(), Ok(()));
        assert_eq!(joined.cases[0].candidate.samples_ns().len(), 100);
        let Interval { low, high } = joined.speedup.interval;
        assert!(low < 2.8 && high > 3.8, "{}", joined.speedup);
        assert_eq!(other.joined(&timed(None)), None);
    }

    #[test]
    fn a_ratio_that_was_changed_and_an_interval_that_was_narrowed_are_named() {
        let mut edited = timed(Some(0.01));
        edited.speedup.ratio *= 10.0;
        assert!(edited.recompute_ratios().unwrap_err().contains("all cases: the ratio"));
        for widened_by in [Some(0.01), None] {
            let mut edited = timed(widened_by);
            edited.cases[0].speedup.interval.low = edited.cases[0].speedup.ratio;
            assert!(edited.recompute().unwrap_err().contains("a: the interval"), "{edited:?}");
        }
    }
}
