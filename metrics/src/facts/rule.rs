//! Which rule holds for these readings, if one does?

use super::Bound;
use crate::Reading;

/// A share of a peak, in percent, from which on something counts as near it.
const NEAR: f64 = 60.0;
/// Occupancy, in percent, below which too few warps are in flight.
const FEW_WARPS: f64 = 50.0;
/// Launches of the GPU's full size, below which parts of it stay empty.
const FULL: f64 = 1.0;
/// Nanoseconds in which a kernel is about as long as its own start.
const SHORT: f64 = 5_000.0;

const MEMORY: [(&str, &str); 8] = [
    ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "memory"),
    ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "device memory"),
    ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "device memory"),
    ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "the L2 cache"),
    ("lts__throughput.avg.pct_of_peak_sustained_active", "the L2 cache"),
    ("l1tex__throughput.avg.pct_of_peak_sustained_elapsed", "the L1 cache"),
    ("l1tex__throughput.avg.pct_of_peak_sustained_active", "the L1 cache"),
    ("share of the roofline", "memory, by the roofline,"),
];
const COMPUTE: [(&str, &str); 8] = [
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "the multiprocessors"),
    ("sm__instruction_throughput.avg.pct_of_peak_sustained_elapsed", "the instruction pipelines"),
    ("smsp__issue_active.avg.pct_of_peak_sustained_active", "the schedulers"),
    ("sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", "the tensor pipeline"),
    ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "the tensor pipeline"),
    ("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", "the single-precision pipelines"),
    ("sm__inst_executed_pipe_fp32.avg.pct_of_peak_sustained_active", "the single-precision pipelines"),
    ("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active", "the single-precision pipelines"),
];
const LIMITS: [(&str, &str); 5] = [
    ("launch__occupancy_limit_registers", "registers"),
    ("launch__occupancy_limit_shared_mem", "shared memory"),
    ("launch__occupancy_limit_warps", "warps"),
    ("launch__occupancy_limit_blocks", "the number of blocks"),
    ("launch__occupancy_limit_barriers", "barriers"),
];
const OCCUPANCY: &str = "sm__warps_active.avg.pct_of_peak_sustained_active";
const WAVES: &str = "launch__waves_per_multiprocessor";
const DURATION: &str = "gpu__time_duration.sum";

/// The readings that have a value.
pub(super) struct Known<'a>(Vec<&'a Reading>);

type Fired = (Bound, String, Vec<Reading>);

impl<'a> Known<'a> {
    pub(super) fn of(readings: &'a [Reading]) -> Self {
        Self(readings.iter().filter(|reading| reading.value.is_some_and(f64::is_finite)).collect())
    }

    fn value(&self, name: &str) -> Option<(&'a Reading, f64)> {
        let found = self.0.iter().find(|reading| reading.name == name)?;
        Some((found, found.value?))
    }

    /// The largest of these that was read, with what it is of.
    fn largest(&self, of: &[(&str, &'static str)]) -> Option<(&'a Reading, f64, &'static str)> {
        let read =
            of.iter().filter_map(|(name, what)| self.value(name).map(|(reading, value)| (reading, value, *what)));
        read.reduce(|best, next| if next.1 > best.1 { next } else { best })
    }

    /// The reason that warps wait for most, among those that were read, and its share or its cycles.
    fn stall(&self) -> Option<&'a Reading> {
        let family = |end: &str| {
            let stalled = self.0.iter().filter(|reading| reading.name.ends_with(end) && is_stall(&reading.name));
            stalled.copied().max_by(|one, other| one.value.unwrap_or(0.0).total_cmp(&other.value.unwrap_or(0.0)))
        };
        family("_per_issue_active.ratio").or_else(|| family("_per_warp_active.pct"))
    }

    fn duration_ns(&self) -> Option<(&'a Reading, f64)> {
        let (reading, value) = self.value(DURATION)?;
        let factor = match reading.unit.as_str() {
            "us" | "usecond" => 1e3,
            "ms" | "msecond" => 1e6,
            "s" | "second" => 1e9,
            _ => 1.0,
        };
        Some((reading, value * factor))
    }
}

fn is_stall(name: &str) -> bool {
    name.contains("issue_stalled_") && !name.contains("stalled_selected") && !name.contains("stalled_not_selected")
}

/// The first rule that holds, with its numbers; in words what would have to be known where none can be tried.
pub(super) fn first(known: &Known<'_>) -> Result<Fired, String> {
    let (memory, compute) = (known.largest(&MEMORY), known.largest(&COMPUTE));
    if let Some(fired) = near_a_peak(memory, compute) {
        return Ok(fired);
    }
    if let Some(fired) = launch(known) {
        return Ok(fired);
    }
    let unread = match (memory, compute) {
        (Some(_), Some(_)) => return waiting(known),
        (None, None) => "neither the use of memory nor that of the pipelines was read",
        (None, Some(_)) => "no pipeline is near its peak, and the use of memory was not read",
        (Some(_), None) => "memory is not near its peak, and the use of the pipelines was not read",
    };
    Err(unread.to_owned())
}

fn near_a_peak(memory: Option<(&Reading, f64, &str)>, compute: Option<(&Reading, f64, &str)>) -> Option<Fired> {
    let sides = [(Bound::Memory, memory), (Bound::Compute, compute)];
    let read = sides.into_iter().filter_map(|(bound, side)| side.map(|side| (bound, side)));
    let (bound, (reading, value, what)) =
        read.clone().reduce(|best, next| if next.1.1 > best.1.1 { next } else { best })?;
    let other = read.filter(|(side, _)| *side != bound).map(|(_, other)| other).next();
    let also = match other {
        Some((_, value, what)) if value >= NEAR => format!(", ahead of {what}, which is near its peak, too"),
        _ => ", and nothing that was read is nearer to one".to_owned(),
    };
    let rule = format!("{what} at {NEAR} % of its peak or more{also}");
    let other = other.map(|(reading, ..)| reading.clone());
    (value >= NEAR).then(|| (bound, rule, std::iter::once(reading.clone()).chain(other).collect()))
}

fn launch(known: &Known<'_>) -> Option<Fired> {
    if let Some((waves, _)) = known.value(WAVES).filter(|(_, waves)| *waves < FULL) {
        let rule = "the launch has too few blocks to fill the multiprocessors once".to_owned();
        return Some((Bound::Launch, rule, vec![waves.clone()]));
    }
    let (duration, _) = known.duration_ns().filter(|(_, ns)| *ns < SHORT)?;
    let rule = format!("the kernel takes less than {} us, about as long as its own start", SHORT / 1e3);
    Some((Bound::Launch, rule, vec![duration.clone()]))
}

/// Neither side is near its peak: too few warps, or they wait.
fn waiting(known: &Known<'_>) -> Result<Fired, String> {
    let low = format!("memory and pipelines below {NEAR} % of their peaks");
    let Some((occupancy, value)) = known.value(OCCUPANCY) else {
        return Err(format!("{low}; whether warps are few or wait needs {OCCUPANCY}"));
    };
    let stall = known.stall().cloned();
    if value >= FEW_WARPS {
        let rule = format!("{low}, with {FEW_WARPS} % of all warps in flight or more");
        let most = if stall.is_some() { "; most of what was read of their waiting is the last number" } else { "" };
        return Ok((Bound::Latency, rule + most, std::iter::once(occupancy.clone()).chain(stall).collect()));
    }
    let limits =
        LIMITS.iter().filter_map(|(name, what)| known.value(name).map(|(reading, blocks)| (reading, blocks, *what)));
    let limit = limits.reduce(|least, next| if next.1 < least.1 { next } else { least });
    let by = limit.map(|(_, _, what)| format!("; {what} allow the fewest blocks")).unwrap_or_default();
    let rule = format!("{low}, with less than {FEW_WARPS} % of all warps in flight{by}");
    let numbers = std::iter::once(occupancy.clone()).chain(limit.map(|(reading, ..)| reading.clone())).chain(stall);
    Ok((Bound::Occupancy, rule, numbers.collect()))
}
