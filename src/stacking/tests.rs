//! Are a run's tokens, its collapse and what kernels have in common counted as the paper counts them?

use super::*;

fn turn(number: u32, tokens: u64, speed: Option<f64>, best: Option<f64>) -> Turn {
    Turn { number, tokens, speed, best }
}

#[test]
fn a_tenth_of_the_expert_is_a_collapse_and_tokens_are_told_for_each_unit_of_the_best() {
    let turns =
        vec![turn(1, 100, None, None), turn(2, 300, Some(50.0), Some(50.0)), turn(3, 900, Some(40.0), Some(50.0))];
    let run = Stacking { unit: "TFLOPS", turns, credits: vec![], tokens: 900, after_the_peak: 600 };
    assert_eq!((run.best(), run.tokens_per_unit()), (Some(50.0), Some(18.0)));
    assert!(run.collapsed(500.0) && !run.collapsed(499.0));
    let nothing = Stacking { turns: vec![], ..run };
    assert!(nothing.collapsed(1.0) && nothing.tokens_per_unit().is_none());
}

#[test]
fn rows_of_final_kernels_are_counted_in_pairs_the_same_both_ways() {
    let features = kernelbench::feature::Features::embedded();
    let rows =
        |arch: &str, cell: &str| features.rows_in(features.column(arch).unwrap().cell(cell).unwrap().optimized());
    assert_eq!((rows("hopper", "wgmma"), rows("ampere", "copy")), (vec![1, 3, 5], vec![4, 5, 8]));
    assert_eq!(rows("hopper", "shuffle"), [8]);
    let counts = together(&[rows("hopper", "wgmma"), rows("ampere", "copy"), rows("hopper", "shuffle")]);
    assert_eq!([counts[&(5, 5)], counts[&(8, 8)], counts[&(5, 8)], counts[&(1, 3)]], [2, 2, 1, 1]);
    assert!(counts.iter().all(|((one, other), count)| counts[&(*other, *one)] == *count));
    assert!(!counts.contains_key(&(1, 8)), "no kernel has both");
}
