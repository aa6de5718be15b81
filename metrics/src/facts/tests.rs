//! Does each rule fire at its border, on its numbers, and does it keep quiet where it cannot know?

use super::*;
use crate::Rung;

const DRAM: &str = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";
const SM: &str = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
const WARPS: &str = "sm__warps_active.avg.pct_of_peak_sustained_active";
const WAVES: &str = "launch__waves_per_multiprocessor";
const LONG: &str = "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct";
const SELECTED: &str = "smsp__warp_issue_stalled_selected_per_warp_active.pct";

fn said(readings: &[(&str, f64)]) -> Bottleneck {
    let read = |(name, value): &(&str, f64)| Reading::new(name, Some(*value), "", "");
    fact(None, &readings.iter().map(read).collect::<Vec<_>>())
}

fn bound(readings: &[(&str, f64)]) -> Option<Bound> {
    said(readings).bound
}

#[test]
fn each_rule_holds_from_its_border_on() {
    let low = [(DRAM, 59.99), (SM, 30.0)];
    let with = |more: &[(&str, f64)]| bound(&[&low[..], more].concat());
    assert_eq!(bound(&[(DRAM, 60.0), (SM, 59.0)]), Some(Bound::Memory));
    assert_eq!(bound(&[(DRAM, 70.0), (SM, 71.0)]), Some(Bound::Compute));
    assert_eq!(with(&[(WARPS, 50.0)]), Some(Bound::Latency));
    assert_eq!(with(&[(WARPS, 49.99)]), Some(Bound::Occupancy));
    assert_eq!(with(&[(WARPS, 80.0), (WAVES, 1.0)]), Some(Bound::Latency));
    assert_eq!(with(&[(WARPS, 80.0), (WAVES, 0.99)]), Some(Bound::Launch));
    assert_eq!(with(&[(WARPS, 80.0), ("gpu__time_duration.sum", 4_999.0)]), Some(Bound::Launch));
    assert_eq!(with(&[(WARPS, 80.0), ("gpu__time_duration.sum", 5_000.0)]), Some(Bound::Latency));
    assert_eq!(bound(&[(DRAM, 61.0), (WAVES, 0.5)]), Some(Bound::Memory));
}

#[test]
fn the_rule_comes_with_its_numbers() {
    let latency = said(&[(DRAM, 20.0), (SM, 30.0), (WARPS, 80.0), (LONG, 40.0), (SELECTED, 50.0)]);
    let names: Vec<&str> = latency.numbers.iter().map(|reading| reading.name.as_str()).collect();
    assert_eq!(names, [WARPS, LONG]);
    let few = said(&[
        (DRAM, 20.0),
        (SM, 30.0),
        (WARPS, 12.0),
        ("launch__occupancy_limit_shared_mem", 1.0),
        ("launch__occupancy_limit_registers", 4.0),
    ]);
    assert_eq!(few.bound, Some(Bound::Occupancy));
    assert!(few.to_string().contains("shared memory allow the fewest blocks (sm__warps_active"), "{few}");
    assert!(few.to_string().ends_with("launch__occupancy_limit_shared_mem = 1)"), "{few}");
}

#[test]
fn where_both_sides_are_near_their_peaks_both_are_told() {
    let both = said(&[(DRAM, 84.0), (SM, 85.0)]).to_string();
    assert!(both.starts_with("compute-bound") && both.contains("device memory, which is near its peak, too"), "{both}");
}

#[test]
fn what_cannot_be_said_is_not_said() {
    for (readings, why) in [
        (&[][..], "neither"),
        (&[(DRAM, f64::NAN)][..], "neither"),
        (&[(DRAM, 30.0)][..], "use of the pipelines was not read"),
        (&[(SM, 30.0)][..], "use of memory was not read"),
        (&[(DRAM, 30.0), (SM, 30.0)][..], "needs sm__warps_active"),
    ] {
        let fact = said(readings);
        assert!(fact.bound.is_none() && fact.to_string().contains(why), "{readings:?}: {fact}");
    }
}

#[test]
fn a_call_without_counters_is_judged_by_its_roofline_alone() {
    let readings = |share: f64| vec![Reading::new("share of the roofline", Some(share), "%", "")];
    let kernel = Kernel { name: "k".into(), launches: None, share: None, readings: vec![] };
    let profile = |share: f64| {
        let (readings, kernels) = (readings(share), vec![kernel.clone()]);
        Profile { rung: Rung::TorchProfiler, case: "c".into(), readings, kernels, notes: vec![] }
    };
    let near = facts(&profile(85.0));
    assert_eq!((near.len(), near[1].bound), (2, Some(Bound::Memory)));
    assert!(facts(&profile(20.0)).iter().all(|fact| fact.bound.is_none()));
}
