//! Does a feature count as run exactly where its counters say so?

use super::*;
use crate::Rung;
use crate::{Kernel, Reading};

const GMMA: &str = "sm__inst_executed_pipe_tensor_op_gmma.sum";
const TMA: &str = "smsp__inst_executed_op_tma_ld.sum";
const CONFLICTS: &str = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum";

fn counter(name: &str, direction: Direction, floor: f64, least_gain: f64, target: bool) -> Sign {
    Sign::Counter(Counter { name: name.into(), direction, over: Over::Sum, floor, least_gain, target })
}

fn wgmma() -> Vec<Sign> {
    vec![
        counter(GMMA, Direction::Higher, 0.0, 2.0, true),
        counter(TMA, Direction::Higher, 0.0, 2.0, false),
        Sign::Instruction("HGMMA".into()),
    ]
}

fn read(gmma: f64, tma: f64) -> Counters {
    Counters::of_launch([(GMMA, gmma), (TMA, tma)])
}

#[test]
fn the_target_must_gain_and_what_stands_beside_it_must_be_there() {
    let fired = |before: [f64; 2], after: [f64; 2]| {
        prove(&wgmma(), &read(before[0], before[1]), &read(after[0], after[1])).fired
    };
    for (before, after, expected) in [
        ([0.0, 0.0], [2048.0, 64.0], Fired::Yes),
        ([0.0, 64.0], [2048.0, 64.0], Fired::Yes),
        ([1024.0, 64.0], [2048.0, 64.0], Fired::Yes),
        ([0.0, 0.0], [2048.0, 0.0], Fired::No),
        ([0.0, 64.0], [0.0, 128.0], Fired::No),
        ([2048.0, 64.0], [2048.0, 128.0], Fired::No),
        ([2048.0, 64.0], [0.0, 64.0], Fired::No),
    ] {
        assert_eq!(fired(before, after), expected, "{before:?} -> {after:?}");
    }
}

#[test]
fn the_gain_is_a_ratio_or_from_zero_and_less_may_be_more() {
    let gain = |direction, before, after| Gain::of(direction, 1.0, before, after);
    assert_eq!(gain(Direction::Higher, 0.5, 8.0), Some(Gain::FromZero));
    assert_eq!(gain(Direction::Higher, 2.0, 8.0), Some(Gain::Ratio(4.0)));
    assert_eq!(gain(Direction::Higher, 8.0, 0.0), Some(Gain::Ratio(0.0)));
    assert_eq!(gain(Direction::Lower, 8.0, 1.0), Some(Gain::FromZero));
    assert_eq!(gain(Direction::Lower, 8.0, 2.0), Some(Gain::Ratio(4.0)));
    assert_eq!(gain(Direction::Lower, 1.0, 0.0), None);
}

#[test]
fn instructions_alone_never_prove_that_a_feature_ran() {
    let code = |text: &str| Counters::default().with_code(text.into());
    let only = [Sign::Instruction("HGMMA".into())];
    assert_eq!(prove(&only, &code("FFMA R1"), &code("HGMMA.64x64x16 R1")).fired, Fired::Unknown);
    assert_eq!(prove(&wgmma(), &code("FFMA R1"), &code("HGMMA.64x64x16 R1")).fired, Fired::Unknown);
    assert_eq!(prove(&wgmma(), &read(0.0, 0.0), &read(9.0, 9.0).with_code("FFMA".into())).fired, Fired::Yes);
    let unlike = prove(&wgmma(), &read(0.0, 0.0).with_code("FFMA".into()), &read(9.0, 9.0).with_code("FFMA".into()));
    assert_eq!(unlike.fired, Fired::No);
}

#[test]
fn what_could_not_be_read_is_unknown_and_what_is_missing_beside_it_is_no() {
    let gmma_alone = |value| Counters::of_launch([(GMMA, value)]);
    assert_eq!(prove(&wgmma(), &gmma_alone(0.0), &gmma_alone(9.0)).fired, Fired::Unknown);
    assert_eq!(prove(&wgmma(), &gmma_alone(9.0), &gmma_alone(0.0)).fired, Fired::No);
    assert_eq!(prove(&wgmma(), &Counters::default(), &read(9.0, 9.0)).fired, Fired::Unknown);
}

#[test]
fn a_cells_two_kernels_must_differ_in_every_sign() {
    let (naive, plain) = (read(0.0, 0.0).with_code("FFMA".into()), read(0.0, 8.0).with_code("FFMA".into()));
    let optimized = read(9.0, 9.0).with_code("HGMMA".into());
    assert!(prove(&wgmma(), &naive, &optimized).whole());
    assert!(!prove(&wgmma(), &plain, &optimized).whole());
    assert!(!prove(&wgmma(), &read(0.0, 0.0), &read(9.0, 9.0)).whole(), "nobody looked at the code");
}

#[test]
fn one_launch_where_there_were_three_is_a_sign_and_one_as_before_is_none() {
    let gelu = [counter("dram__bytes.sum", Direction::Lower, 0.0, 2.0, true), Sign::Launches(1)];
    let call = |launches, bytes| Counters::of_launch([("dram__bytes.sum", bytes)]).launched(launches);
    assert!(prove(&gelu, &call(3, 600.0), &call(1, 100.0)).whole());
    assert_eq!(prove(&gelu, &call(3, 600.0), &call(2, 100.0)).fired, Fired::No);
    let again = prove(&gelu, &call(1, 600.0), &call(1, 100.0));
    assert!(again.fired == Fired::Yes && !again.whole());
}

#[test]
fn a_profiles_units_and_launches_are_reckoned_with() {
    let kernel = |launches, value, unit: &str| Kernel {
        name: "k".into(),
        launches: Some(launches),
        share: Some(0.5),
        readings: vec![
            Reading::new("dram__bytes.sum", Some(value), unit, ""),
            Reading::new(CONFLICTS, None, "", ""),
            Reading {
                stands_for: Some("dram__all.sum".into()),
                ..Reading::new("dram__bytes.sum", Some(value), unit, "")
            },
        ],
    };
    let profile = |rung| Profile {
        rung,
        case: "c".into(),
        readings: vec![Reading::new("launches", Some(3.0), "", "")],
        kernels: vec![kernel(2, 1.5, "Mbyte"), kernel(1, 500.0, "Kbyte")],
        notes: vec![],
    };
    let counters = Counters::of(&profile(Rung::Ncu));
    assert_eq!(counters.value("dram__bytes.sum", Over::Sum), Some(3.5e6));
    assert_eq!(counters.value("dram__bytes.sum", Over::Largest), Some(1.5e6));
    assert_eq!((counters.value(CONFLICTS, Over::Sum), counters.launches), (None, Some(3)));
    assert_eq!(Counters::of(&profile(Rung::TimingOnly)), Counters::default());
}
