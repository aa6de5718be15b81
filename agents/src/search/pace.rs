//! How fast a node is: its speedup over the reference, as operations a second where the task says how many it takes.

use kernelbench::{ArgumentKind, Baseline, Dtype, Suite, Task, Transfer};
use metrics::{Gpu, Machine, MachineKind, Statistic};

/// What a speedup of 1 stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Operations a second of the reference, as it was prepared; none where the task does not say how many it takes.
    pub reference: Option<f64>,
    /// Peak of the machine for a task's types, in operations a second.
    pub peak: Option<f64>,
    /// Whether rates are told in 10^12 a second, as of GPUs.
    pub tera: bool,
}

impl Pace {
    /// The pace of a task's reference, over its timed cases.
    #[must_use]
    pub fn of(task: &Task, suite: &Suite, baseline: &Baseline, machine: &Machine) -> Self {
        let operations = |case: &String| {
            if let Some(problem) = task.problem() {
                // Known once its reference has been opened, which a record's task was not.
                let stated = problem.signature.stated.or(baseline.signature.stated);
                return stated.map(|count| count as f64);
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
        // What a problem's file states is a convention, and may be more than its fastest kernel computes.
        let peak = peak(task, machine).filter(|_| task.problem().is_none());
        Self { reference, peak, tera: machine.kind == MachineKind::Gpu }
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

/// What multiplies a task's inputs reaches at most, in operations a second: where a GPU is given nothing but arrays of 16 bits,
/// or of 8, its tensor cores for those, by its vendor's papers.
fn peak(task: &Task, machine: &Machine) -> Option<f64> {
    let reads =
        |kind: &ArgumentKind| matches!(kind, ArgumentKind::Array { transfer, .. } if *transfer != Transfer::Out);
    let arguments = task.context().map_or(&[][..], |context| &context.arguments);
    let inputs: Vec<Dtype> = arguments.iter().filter(|a| reads(&a.kind)).map(|a| a.dtype).collect();
    let all = |known: &[Dtype]| !inputs.is_empty() && inputs.iter().all(|dtype| known.contains(dtype));
    match Gpu::named(&machine.name).filter(|_| machine.kind == MachineKind::Gpu) {
        Some(paper) if all(&[Dtype::F16, Dtype::Bf16]) => Some(paper.fp16_tensor_tflops.as_ref()?.0 * 1e12),
        Some(paper) if all(&[Dtype::E4m3]) => Some(paper.fp8_tensor_tflops.as_ref()?.0 * 1e12),
        _ => machine.peak_flops,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_product_of_halves_is_a_share_of_what_tensor_cores_reach_and_another_of_the_machines_peak() {
        let h100 = Gpu::named("H100").unwrap().machine();
        let loaded = |task: &str| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cuda").join(task);
            kernelbench::load::task(&folder).unwrap()
        };
        let on = |task: &Task, name: &str| {
            let machine = Machine { name: name.to_owned(), ..h100.clone() };
            peak(task, &machine).map(|peak| (peak / 1e11).round())
        };
        let of = |task: &str, name: &str| on(&loaded(task), name);
        assert_eq!(of("matmul_fp16", "NVIDIA H100 80GB HBM3"), Some(9894.0));
        assert_eq!(of("matmul_fp32", "NVIDIA H100 80GB HBM3"), Some(669.0));
        assert_eq!(of("matmul_fp16", "a GPU that no paper names"), Some(669.0));
        let mut eight = loaded("matmul_fp16");
        let kernelbench::Source::Context(context) = &mut eight.source else { panic!("a context") };
        context.arguments.iter_mut().filter(|a| a.dtype == Dtype::F16).for_each(|a| a.dtype = Dtype::E4m3);
        assert_eq!(on(&eight, "NVIDIA H100 80GB HBM3"), Some(19789.0));
    }

    #[test]
    fn a_problems_rate_is_told_by_what_its_file_states_and_is_no_share_of_a_peak() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/hawkeye/4_Causal_Attention.py");
        let task = kernelbench::load::task(&file).unwrap();
        let machine = Machine { name: "NVIDIA H100 80GB HBM3".to_owned(), ..Gpu::named("H100").unwrap().machine() };
        let pace = |stated| {
            let timings = vec![("default".to_owned(), metrics::Timing::of([1e6]))];
            let signature = kernelbench::Signature { flops: Some(2_000_000_000), stated, ..Default::default() };
            let baseline = Baseline { signature, ..Baseline::new(timings, String::new()) };
            Pace::of(&task, &Suite::of_task(&task), &baseline, &machine)
        };
        assert_eq!(pace(None).words(1.5), "1.500x of the reference");
        let stated = pace(Some(1_000_000_000));
        assert_eq!((stated.words(1.0).as_str(), stated.share(1.0)), ("1.00 TFLOPS", None));
    }

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
