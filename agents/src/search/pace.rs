//! How fast a node is: its speedup over the reference, as operations a second where the task says how many it takes.

use kernelbench::{Baseline, Suite, Task};
use metrics::{MachineKind, Statistic};

/// What a speedup of 1 stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Operations a second of the reference, as it was prepared; none where the task does not say how many it takes.
    pub reference: Option<f64>,
    /// Measured peak of the machine, in operations a second.
    pub peak: Option<f64>,
    /// Whether rates are told in 10^12 a second, as of GPUs.
    pub tera: bool,
}

impl Pace {
    /// The pace of a task's reference, over its timed cases.
    #[must_use]
    pub fn of(task: &Task, suite: &Suite, baseline: &Baseline, machine: &metrics::Machine) -> Self {
        let operations = |case: &String| {
            if let Some(problem) = task.problem() {
                return problem.signature.flops.filter(|count| *count > 0).map(|count| count as f64);
            }
            let size = task.context()?.operations.as_ref()?;
            let case = suite.cases.iter().find(|known| known.name == *case)?;
            size.elements(&case.scalars).ok().map(|count| count as f64)
        };
        let times = baseline.timings.iter().filter(|(case, _)| suite.timed.contains(case));
        let both: Option<Vec<(f64, f64)>> =
            times.map(|(case, timing)| Some((operations(case)?, timing.typical_ns(Statistic::Median)))).collect();
        let sums = both
            .filter(|all| !all.is_empty())
            .map(|all| all.iter().fold((0.0, 0.0), |(count, ns), (operations, took)| (count + operations, ns + took)));
        let reference = sums.filter(|(_, ns)| *ns > 0.0).map(|(count, ns)| count / ns * 1e9);
        Self { reference, peak: machine.peak_flops, tera: machine.kind == MachineKind::Gpu }
    }

    /// Operations a second at a speedup.
    #[must_use]
    pub fn rate(&self, ratio: f64) -> Option<f64> {
        self.reference.map(|reference| reference * ratio)
    }

    /// The share of the machine's peak at a speedup.
    #[must_use]
    pub fn share(&self, ratio: f64) -> Option<f64> {
        Some(self.rate(ratio)? / self.peak?)
    }

    /// A speedup in words: `112.3 GFLOPS`, or `3.21x of the reference`.
    #[must_use]
    pub fn words(&self, ratio: f64) -> String {
        match self.rate(ratio) {
            Some(rate) if self.tera => format!("{:.2} TFLOPS", rate / 1e12),
            Some(rate) => format!("{:.2} GFLOPS", rate / 1e9),
            None => format!("{ratio:.3}x of the reference"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_references_times_the_speedup_in_the_unit_of_the_machine() {
        // 2 * 1024^3 operations in a second.
        let pace = Pace { reference: Some(2.147_483_648e9), peak: Some(230e9), tera: false };
        assert_eq!(pace.words(50.0), "107.37 GFLOPS");
        assert!((pace.share(50.0).unwrap() - 0.466_844).abs() < 1e-6);
        assert_eq!(Pace { tera: true, ..pace }.words(1e3), "2.15 TFLOPS");
        let none = Pace { reference: None, ..pace };
        assert_eq!((none.words(2.0).as_str(), none.share(2.0)), ("2.000x of the reference", None));
    }
}
