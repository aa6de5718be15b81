//! Is the Judge offered what the measurements call for, and the Coder given what was named, of its own architecture and no more?

use super::*;
use crate::{Fix, Hints, Optimization, example};
use metrics::{Kernel, Reading, Rung};

fn product() -> Task {
    Task { summary: "A matrix product.".into(), ..example::task() }
}

fn profile(readings: &[(&str, f64)]) -> Profile {
    let readings = readings.iter().map(|(name, value)| Reading::new(name, Some(*value), "", "")).collect();
    let kernels = vec![Kernel { name: "k".into(), launches: Some(1), share: Some(1.0), readings }];
    Profile { rung: Rung::Ncu, case: "c".into(), readings: vec![], kernels, notes: vec![] }
}

fn unused_tensor_cores() -> Profile {
    profile(&[("sm__inst_executed_pipe_tensor_op_gmma.sum", 0.0), ("smsp__inst_executed_op_tma_ld.sum", 0.0)])
}

fn names(offered: &[Offered]) -> Vec<&str> {
    offered.iter().map(|one| one.name.as_str()).collect()
}

#[test]
fn what_runs_already_is_not_offered_for_the_kind_of_task_alone() {
    let (words, gmma) = (Prompts::embedded(), "sm__inst_executed_pipe_tensor_op_gmma.sum");
    let offered = |profile: Profile| {
        let offered = words.offer(&product(), &example::h200(), Some(&profile), &[]);
        names(&offered).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let running = offered(profile(&[(gmma, 4096.0)]));
    assert!(
        running[0] == "roles" && !running.contains(&"wgmma".to_owned()),
        "what feeds it is called for: {running:?}"
    );
    assert!(offered(profile(&[(gmma, 0.0)])).contains(&"wgmma".to_owned()));
    assert!(offered(profile(&[])).contains(&"wgmma".to_owned()), "where nothing was read the task alone says it");
}

#[test]
fn the_judge_is_offered_at_most_three_of_its_own_architecture() {
    let (words, profile) = (Prompts::embedded(), unused_tensor_cores());
    let offered = words.offer(&product(), &example::h200(), Some(&profile), &[]);
    assert_eq!(names(&offered)[0], "wgmma");
    assert!(offered.len() <= OFFERED && offered[0].why[0].contains("op_gmma.sum = 0"), "{offered:?}");
    assert!(words.offer(&product(), &example::machine(), Some(&profile), &[]).is_empty());
    let stay = words.offer(&product(), &example::h200(), Some(&profile), &["roles".into()]);
    assert_eq!(names(&stay)[..2], ["roles", "wgmma"]);
}

#[test]
fn what_a_judge_names_counts_where_it_was_offered_and_companions_where_they_belong_to_it() {
    let offered = Prompts::embedded().offer(&product(), &example::h200(), Some(&unused_tensor_cores()), &[]);
    let bundle = |named: &[&str]| bundle(&named.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), &offered);
    assert_eq!(bundle(&["wgmma"]), ["wgmma"]);
    assert_eq!(bundle(&["wgmma", "swizzle", "gelu", "tma", "tma"]), ["wgmma", "swizzle", "tma"]);
    assert!(bundle(&["gelu"]).is_empty() && bundle(&[]).is_empty() && bundle(&["rm -rf"]).is_empty());
}

fn optimize(features: &[&str]) -> String {
    let features = features.iter().map(|name| (*name).to_owned()).collect();
    let optimization = Optimization { features, ..example::one_optimization() };
    let words = Prompts::embedded();
    let prompt = words.optimize(&product(), &example::h200(), &example::candidate(), Some(&optimization));
    prompt.turns[0].text.clone()
}

#[test]
fn the_coder_is_given_the_guide_and_the_kernel_of_what_was_named_and_nothing_of_anything_else() {
    let text = optimize(&["wgmma"]);
    assert!(text.contains("## wgmma") && text.contains("#### Protocol") && text.contains("wgmma.mma_async"), "{text}");
    assert!(!text.contains("## persistent"), "{text}");
    assert_eq!(optimize(&["no such feature"]), optimize(&[]));
    let words = Prompts::embedded();
    let optimization = Optimization { features: vec!["wgmma".into()], ..example::one_optimization() };
    let elsewhere = words.optimize(&product(), &example::machine(), &example::candidate(), Some(&optimization));
    assert!(!elsewhere.turns[0].text.contains("# Features"), "a processor has no such features");
}

#[test]
fn whatever_is_named_the_examples_take_at_most_four_thousand_tokens() {
    let column = Prompts::embedded().features().column("hopper").unwrap().clone();
    let without = optimize(&[]).len();
    for cell in &column.cells {
        let mut named = vec![cell.name.as_str()];
        let alone = optimize(&named);
        assert!(alone.contains(cell.optimized().trim_end()), "{} and its guide do not fit", cell.name);
        named.extend(cell.coupled.iter().map(String::as_str));
        for text in [alone, optimize(&named)] {
            // The words around them are the template's.
            assert!(tokens(text.len() - without) <= MOST_TOKENS + 300, "{named:?}: {}", tokens(text.len() - without));
        }
    }
}

#[test]
fn a_failure_brings_the_same_example_again() {
    let fix = Fix { features: vec!["tma".into()], ..example::one_fix() };
    let words = Prompts::embedded();
    let ask = |fix| words.fix(&product(), &example::h200(), &example::candidate(), &example::mismatch(), Some(fix));
    assert!(ask(&fix).turns[0].text.contains("## tma"));
    assert!(!ask(&example::one_fix()).turns[0].text.contains("# Features"));
}

#[test]
fn the_judge_is_told_what_calls_for_a_feature_and_how_to_name_it() {
    let (words, timed, profile) = (Prompts::embedded(), example::timed(), unused_tensor_cores());
    let offered = words.offer(&product(), &example::h200(), Some(&profile), &[]);
    let ask = |offered: &[Offered]| {
        let (task, machine, candidate) = (product(), example::h200(), example::candidate());
        let hints = Hints { offered, ..Hints::default() };
        words.advise(&task, &machine, &candidate, &timed, Some(&profile), hints).turns[0].text.clone()
    };
    let text = ask(&offered);
    assert!(text.contains("- wgmma: Matrix products of a warpgroup") && text.contains("\"features\""), "{text}");
    assert!(text.contains("In one step with: swizzle, tma, roles."), "{text}");
    assert!(!ask(&[]).contains("eature"));
}
