//! How near is a time to what the machine could do at best?

use super::{Subject, ratio, reading};
use metrics::Reading;

/// The readings that need no profiler: a time, a bandwidth, and their shares of the machine's bounds.
pub(super) fn readings(subject: &Subject<'_>) -> Vec<Reading> {
    let (bytes, machine) = (subject.bytes as f64, subject.machine);
    let achieved = ratio(Some(bytes), subject.median_ns);
    let here = machine.bandwidth_at(subject.working_set).map(|rate| rate / 1e9);
    vec![
        reading("time", subject.median_ns, "ns", "median of one call"),
        reading("bytes", Some(bytes), "B", "moved by a call at least: inputs read once, outputs written once"),
        reading("achieved bandwidth", achieved, "GB/s", "these bytes over the time"),
        reading("measured bandwidth", here, "GB/s", "what one core moves at best in a working set of this size"),
        reading("bandwidth share", ratio(achieved, here), "", "achieved over measured; near 1 is bound by memory"),
        reading(
            "floor share",
            ratio(machine.floor_ns(subject.bytes), subject.median_ns),
            "",
            "least possible time over the time, as if all data lay in the nearest cache",
        ),
    ]
}
