//! How near a candidate's time is to what the machine could do at best.

use crate::{backend::torch::problem::OpenProblem, engine::notes::LastTiming};
use metrics::Reading;

/// The readings that need no profiler.
pub(super) fn readings(session: &OpenProblem, timing: Option<&LastTiming>) -> Vec<Reading> {
    let time = timing.map(|(case, statistic)| case.candidate.typical_ns(*statistic));
    let floor = timing.and_then(|(case, _)| case.floor_ns);
    let bytes = (session.input_bytes + session.output_bytes + session.parameter_bytes) as f64;
    let rate = time.filter(|time| *time > 0.0).map(|time| bytes / time);
    let share = timing.and_then(|(case, statistic)| case.roofline_share(*statistic)).map(|share| share * 100.0);
    vec![
        Reading::new("time", time, "ns", "of one call, by the clock outside its process"),
        Reading::new("bytes", Some(bytes), "byte", "inputs and parameters read once, outputs written once"),
        Reading::new("achieved bandwidth", rate, "GB/s", "these bytes over the time"),
        Reading::new("floor", floor, "ns", "the time in which the best bandwidth measured here moves these bytes"),
        Reading::new("share of the roofline", share, "%", "the floor over the time; near 100 is bound by memory"),
    ]
}
