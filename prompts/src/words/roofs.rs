//! The roofline of a kernel: how near it is to the peak of device memory, and to the compute peak of the precision it uses.

use metrics::{Gpu, Kernel, Machine, Profile, Reading};

/// Use of device memory, in percent of its peak.
const MEMORY: [&str; 2] =
    ["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "dram__throughput.avg.pct_of_peak_sustained_elapsed"];
/// Operations on tensor cores, two a multiply-add, by the precision of the operands as [`Gpu::peaks`] names it.
const TENSOR: [(&str, &str); 4] = [
    ("sm__ops_path_tensor_src_tf32_dst_fp32.sum", "TF32"),
    ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", "FP16 or BF16"),
    ("sm__ops_path_tensor_src_fp16.sum", "FP16 or BF16"),
    ("sm__ops_path_tensor_src_fp8.sum", "FP8"),
];
/// Use of the single-precision pipeline, in percent of its peak.
const FP32: [&str; 2] = [
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active",
];
const DURATION: [&str; 2] = ["gpu__time_duration.sum", "duration"];

/// Both roofs of one kernel, each with its share; none where counters say neither.
pub(super) fn of_kernel(kernel: &Kernel, machine: &Machine) -> Option<String> {
    let memory = percent(&kernel.readings, &MEMORY).map(|share| format!("device memory at {share:.0} % of its peak"));
    let compute = tensor(kernel, machine).or_else(|| {
        percent(&kernel.readings, &FP32).map(|share| format!("single-precision cores at {share:.0} % of their peak"))
    });
    let roofs: Vec<String> = memory.into_iter().chain(compute).collect();
    (!roofs.is_empty()).then(|| roofs.join("; "))
}

/// The tensor cores' rate in the precision that most operations are in, against that precision's dense peak.
fn tensor(kernel: &Kernel, machine: &Machine) -> Option<String> {
    let ns = value(&kernel.readings, &DURATION).map(nanoseconds)?;
    let done = TENSOR.iter().filter_map(|(name, of)| Some((value(&kernel.readings, &[name])?.value?, *of)));
    let (operations, of) = done.filter(|(operations, _)| *operations > 0.0).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let rate = operations / ns * 1e9;
    let peaks = Gpu::named(&machine.name).map(Gpu::peaks).unwrap_or_default();
    let share = peaks.iter().find(|(name, _)| *name == of).map(|(_, peak)| 100.0 * rate / peak);
    let share = share.map(|share| format!(", {share:.0} % of their peak")).unwrap_or_default();
    Some(format!("{of} tensor cores at {:.1} TFLOP/s{share}", rate / 1e12))
}

/// How much of the call its kernels take together; `None` where either was not measured.
pub(super) fn of_call(profile: &Profile) -> Option<String> {
    let of = |name: &str| value(&profile.readings, &[name]).map(nanoseconds).filter(|ns| *ns > 0.0);
    let (kernels, call) = (of("time of all kernels")?, of("time")?);
    let (kernels_us, call_us, share) = (kernels / 1e3, call / 1e3, 100.0 * kernels / call);
    Some(format!(
        "All kernels of a call take {kernels_us:.2} us of its {call_us:.2} us ({share:.0} %); launch gaps and host work take \
         the rest."
    ))
}

/// The least times that the arithmetic of the reference's products takes at this machine's peaks, by precision.
pub(super) fn of_flops(flops: u64, machine: &Machine) -> Vec<String> {
    let peaks = Gpu::named(&machine.name).map(Gpu::peaks).unwrap_or_default();
    let at = |(name, peak): (&str, f64)| format!("{:.2} us at the {name} peak", flops as f64 / peak * 1e6);
    if flops == 0 { vec![] } else { peaks.into_iter().map(at).collect() }
}

fn value<'a>(readings: &'a [Reading], names: &[&str]) -> Option<&'a Reading> {
    names.iter().find_map(|name| readings.iter().find(|reading| reading.name == *name && reading.value.is_some()))
}

fn percent(readings: &[Reading], names: &[&str]) -> Option<f64> {
    value(readings, names).and_then(|reading| reading.value)
}

fn nanoseconds(reading: &Reading) -> f64 {
    let factor = match reading.unit.as_str() {
        "us" | "usecond" => 1e3,
        "ms" | "msecond" => 1e6,
        "s" | "second" => 1e9,
        _ => 1.0,
    };
    reading.value.unwrap_or(0.0) * factor
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(readings: &[(&str, f64, &str)]) -> Kernel {
        let readings = readings.iter().map(|(name, value, unit)| Reading::new(name, Some(*value), unit, "")).collect();
        Kernel { name: "k".into(), launches: Some(1), share: Some(1.0), readings }
    }

    #[test]
    fn the_compute_roof_is_that_of_the_precision_used() {
        let h200 = Gpu::named("H200").unwrap().machine();
        let on_tensor_cores = kernel(&[
            ("gpu__time_duration.sum", 100.0, "us"),
            (MEMORY[0], 21.4, "%"),
            (FP32[0], 3.0, "%"),
            (TENSOR[0].0, 2.4e10, ""),
            (TENSOR[1].0, 0.0, ""),
        ]);
        let said = of_kernel(&on_tensor_cores, &h200).unwrap();
        assert!(said.starts_with("device memory at 21 % of its peak; TF32 tensor cores at 240.0 TFLOP/s, 4"), "{said}");
        let plain = kernel(&[("duration", 5.0, "ns"), (FP32[0], 63.2, "%")]);
        assert_eq!(of_kernel(&plain, &h200).as_deref(), Some("single-precision cores at 63 % of their peak"));
        assert_eq!(of_kernel(&kernel(&[]), &h200), None);
    }

    #[test]
    fn a_call_whose_kernels_take_less_than_it_says_so() {
        let mut profile = crate::example::profile();
        assert_eq!(of_call(&profile), None);
        let reading = |name: &str, value: f64| Reading::new(name, Some(value), "ns", "");
        profile.readings.extend([reading("time", 40_000.0), reading("time of all kernels", 10_000.0)]);
        assert!(of_call(&profile).unwrap().contains("10.00 us of its 40.00 us (25 %)"));
    }
}
