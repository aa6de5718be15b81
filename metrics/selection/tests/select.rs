//! Is what was planted found, and does a second implementation find the same?

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

mod planted;
mod reference;

use warpsmith_selection::{
    Evidence, Rule, Table, Wish, choose,
    evidence::{Out, PRESENT},
    score::{Contender, leave_one_out},
    set::set,
};

fn evidence(tasks: usize, noise: usize, seed: u64) -> Evidence {
    Evidence::of(&Table::new(&planted::profiles(tasks, noise, seed)).unwrap(), PRESENT).unwrap()
}

fn names(evidence: &Evidence, wish: &Wish) -> Vec<String> {
    let choice = choose(evidence, &evidence.all(), wish);
    choice.chosen.iter().map(|chosen| evidence.columns[chosen.column].name.clone()).collect()
}

fn out(evidence: &Evidence, name: &str) -> Option<Out> {
    evidence.columns[evidence.find(name).unwrap()].out
}

#[test]
fn what_is_no_evidence_falls_out_for_its_own_reason() {
    let evidence = evidence(4, 5, 1);
    for (name, why) in [
        ("e__constant.avg", Some(Out::Constant)),
        ("f__missing.avg", Some(Out::Missing)),
        ("gpu__time_duration.sum", Some(Out::Runtime)),
        ("h__the_time_itself.avg", Some(Out::LikeRuntime)),
        ("device__attribute_clock_rate", Some(Out::Machine)),
        ("a__up.sum", None),
        ("i__mixed_units.sum", None),
    ] {
        assert_eq!(out(&evidence, name), why, "{name}");
    }
}

#[test]
fn a_metric_in_bytes_here_and_in_kilobytes_there_is_one_column() {
    let evidence = evidence(4, 0, 1);
    let mixed = &evidence.columns[evidence.find("i__mixed_units.sum").unwrap()];
    assert_eq!(mixed.unit, "byte");
    assert!(mixed.r(&[0, 1, 2, 3]).all(|r| r > 0.98));
}

#[test]
fn both_rules_take_the_planted_once_and_neither_what_flips_nor_what_speaks_in_one_task_alone() {
    let evidence = evidence(4, 40, 2);
    for rule in [Rule::Public, Rule::Stable] {
        let found = names(&evidence, &Wish { rule, want: 4, ..Wish::default() });
        let planted = ["a__down.avg", "a__up.sum", "b__alias_of_up.max", "i__mixed_units.sum"];
        let strong = found.iter().filter(|name| planted.contains(&name.as_str())).count();
        assert_eq!(strong, 1, "these are collinear, and one stands for them: {found:?}");
        assert!(found.contains(&"a__weaker.avg".to_owned()), "{found:?}");
        for never in ["c__flips.avg", "d__one_task.avg"] {
            assert!(!names(&evidence, &Wish { rule, ..Wish::default() }).contains(&never.to_owned()), "{never}");
        }
    }
}

#[test]
fn the_plainer_name_stands_for_its_alias() {
    let evidence = evidence(4, 0, 3);
    let choice = choose(&evidence, &evidence.all(), &Wish { rule: Rule::Top, collinear: 0.999_999, ..Wish::default() });
    let up = evidence.find("a__up.sum").unwrap();
    let chosen = choice.chosen.iter().find(|chosen| chosen.column == up).unwrap();
    assert_eq!(chosen.instead_of, [evidence.find("b__alias_of_up.max").unwrap()]);
}

#[test]
fn the_printed_rule_gives_at_most_a_list_and_no_rule_pads() {
    let evidence = evidence(5, 60, 4);
    let wish = Wish { rule: Rule::Intersection, ..Wish::default() };
    assert!((1..=20).contains(&names(&evidence, &wish).len()));
    let few = self::evidence(4, 0, 4);
    assert!(Rule::ALL.iter().all(|rule| names(&few, &Wish { rule: *rule, ..Wish::default() }).len() < 24));
}

#[test]
fn a_second_implementation_chooses_the_same_with_the_same_scores() {
    for seed in 0..8 {
        let profiles = planted::profiles(3 + seed as usize % 3, 20 + 5 * seed as usize, seed);
        let evidence = Evidence::of(&Table::new(&profiles).unwrap(), PRESENT).unwrap();
        for rule in [Rule::Public, Rule::Stable] {
            let wish = Wish { rule, want: 9, collinear: 0.9, ..Wish::default() };
            let choice = choose(&evidence, &evidence.all(), &wish);
            let ours: Vec<(String, f64)> =
                choice.chosen.iter().map(|one| (evidence.columns[one.column].name.clone(), one.score)).collect();
            let theirs = reference::choose(&profiles, &wish);
            let same = |one: &[(String, f64)]| one.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            assert_eq!(same(&ours), same(&theirs), "{} seed {seed}", rule.name());
            assert!(ours.iter().zip(&theirs).all(|(one, other)| (one.1 - other.1).abs() < 1e-9));
        }
    }
}

#[test]
fn the_same_profiles_in_any_order_make_the_same_file() {
    let mut profiles = planted::profiles(4, 50, 5);
    let text = |profiles: &[_]| {
        let evidence = Evidence::of(&Table::new(profiles).unwrap(), PRESENT).unwrap();
        let wish = Wish::default();
        let choice = choose(&evidence, &evidence.all(), &wish);
        set("s", &evidence, &choice, &wish, PRESENT, vec![]).text()
    };
    let first = text(&profiles);
    profiles.reverse();
    assert!(first == text(&profiles));
    assert_eq!(metrics::MetricSet::parse(&first).unwrap().text(), first);
}

#[test]
fn drawn_sets_depend_on_the_seed_alone() {
    let evidence = evidence(3, 60, 6);
    let draw = |seed| names(&evidence, &Wish { rule: Rule::Random, seed, ..Wish::default() });
    assert_eq!((draw(1), draw(1).len()), (draw(1), 24));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn a_left_out_task_is_ranked_by_what_was_planted_and_not_by_noise_or_by_the_time_itself() {
    let evidence = evidence(4, 40, 7);
    let mean = |names: &[&str]| {
        let contender = Contender::Fixed(names.iter().map(ToString::to_string).collect());
        let scores = leave_one_out(&evidence, &contender);
        scores.iter().map(|score| score.spearman).sum::<f64>() / scores.len() as f64
    };
    assert!(mean(&["a__up.sum", "a__down.avg"]) > 0.98);
    assert!(mean(&["n__0001.avg", "n__0002.avg", "n__0003.avg"]).abs() < 0.6);
    assert!(mean(&["gpu__time_duration.sum", "h__the_time_itself.avg"]).abs() < 1e-12, "the runtime does not count");
    let chosen = leave_one_out(&evidence, &Contender::Chosen(Wish { rule: Rule::Stable, want: 3, ..Wish::default() }));
    assert!(chosen.iter().all(|score| score.spearman > 0.7 && score.ridge > 0.9), "{chosen:?}");
}

#[test]
fn profiles_that_cannot_be_compared_are_refused_in_words() {
    let of = |profiles: &[_]| Evidence::of(&Table::new(profiles).unwrap(), PRESENT).unwrap_err();
    let mut two = planted::profiles(2, 0, 8);
    two[0].setup.architecture = "sm_80".into();
    assert!(of(&two).contains("sm_80 and sm_90"));
    assert!(of(&planted::profiles(1, 0, 8)[..3]).contains("task0 has 3 kernels; expected at least 4"));
    let mut equal = planted::profiles(1, 0, 8);
    for one in &mut equal {
        one.runtime_ns = 5.0;
    }
    assert!(of(&equal).contains("equally long"));
}
