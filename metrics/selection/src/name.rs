//! What does a metric's name alone say of it?
//!
//! Two kinds of metrics say nothing to a Judge, however well they go with the runtime. Those that are the runtime under
//! another name: a duration, or the cycles of a unit that works from a kernel's start to its end. And those that say
//! something of the machine or the profiler: clocks, peaks, attributes of the device, passes of the profiler.

/// Why a metric is no evidence, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// It is the runtime.
    Runtime,
    /// It is about the machine, or about the profiler.
    Machine,
}

/// Units that work only when a kernel asks them to: how many of their cycles were active is no runtime.
const ON_DEMAND: [&str; 2] = ["dram", "fbpa"];
/// What is counted from start to end.
const ALWAYS: [&str; 5] = ["time_duration", "time_active", "cycles_elapsed", "cycles_active", "elapsed_cycles"];
/// Groups of metrics about the machine or the profiler.
const ELSEWHERE: [&str; 9] =
    ["device", "profiler", "numa", "nvlink", "nvlrx", "nvltx", "pcie", "c2clink", "derived_tempMetric"];
/// What a launch says that is no property of its kernel.
const OF_LAUNCH: [&str; 8] =
    ["stream_id", "context_id", "device_id", "function_pcs", "sm_count", "tpc_", "kernel_name", "uses_"];

/// Why the metric of this name is no evidence; `None` where it may be.
#[must_use]
pub fn nothing(name: &str) -> Option<Nothing> {
    let (sampled, name) = name.rsplit_once("TriageCompute.").map_or((false, name), |(_, name)| (true, name));
    let (unit, rest) = name.split_once("__").unwrap_or((name, ""));
    let (stem, rollup) = rest.split_once('.').unwrap_or((rest, ""));
    let stem = stem.trim_end_matches("_realtime");
    let machine = ELSEWHERE.iter().any(|group| unit.starts_with(group))
        || (unit == "launch" && OF_LAUNCH.iter().any(|fact| stem.starts_with(fact)))
        || rollup.contains("peak_sustained") && !rollup.contains("pct_of_peak")
        || (stem == "cycles_elapsed" && rollup.contains("per_second"))
        || (stem.starts_with("pcsamp_") && !stem.starts_with("pcsamp_warps"))
        || name.ends_with("memory_type")
        || name.starts_with("memory_access_");
    let runtime = ALWAYS.contains(&stem) && !ON_DEMAND.contains(&unit) || stem == "cycles_elapsed";
    let whole = ["", "avg", "max", "min", "sum"].contains(&rollup);
    // What is sampled over a kernel's life has no name of its own that Nsight Compute could be asked for.
    match (machine, runtime && whole) {
        (true, _) => Some(Nothing::Machine),
        (false, true) => Some(Nothing::Runtime),
        (false, false) => sampled.then_some(Nothing::Machine),
    }
}

/// How plain a name's rollup is: of two metrics that say the same, the plainer one is kept.
#[must_use]
pub fn plainness(name: &str) -> usize {
    let foreign = usize::from(name.contains("TriageCompute")) * 4;
    let odd = [".max", ".min"].iter().any(|rollup| name.contains(rollup));
    foreign + usize::from(odd) * 2 + usize::from(name.starts_with("derived__") || name.starts_with("sass__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_is_known_under_its_other_names_and_shares_of_it_are_not_it() {
        for name in [
            "gpu__time_duration.sum",
            "gpc__cycles_elapsed.max",
            "sm__cycles_active.avg",
            "TPC.TriageCompute.sm__cycles_active.avg",
            "dram__cycles_elapsed.avg",
        ] {
            assert_eq!(nothing(name), Some(Nothing::Runtime), "{name}");
        }
        for name in [
            "dram__cycles_active.avg",
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
            "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
            "launch__registers_per_thread",
            "smsp__inst_executed.sum",
        ] {
            assert_eq!(nothing(name), None, "{name}");
        }
    }

    #[test]
    fn clocks_peaks_and_attributes_say_nothing_of_a_kernel() {
        for name in [
            "gpc__cycles_elapsed.avg.per_second",
            "dram__bytes.sum.peak_sustained",
            "device__attribute_clock_rate",
            "profiler__replayer_passes",
            "launch__stream_id",
        ] {
            assert_eq!(nothing(name), Some(Nothing::Machine), "{name}");
        }
    }
}
