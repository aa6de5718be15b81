//! Twelve cheats for the processor, written by a model that was given the tasks and none of the checks.
//!
//! Seconds each and more, so they run when asked for: `cargo test --workspace --test native -- --ignored held_out`.

#![expect(clippy::print_stdout, reason = "its lines are the raw file of what was measured")]

use super::*;
use std::path::Path;
use warpsmith_kernelbench::load;

/// What credit begins at: the lower end of an interval.
const CREDIT: f64 = 1.25;

/// Those that are refused before they are timed; the others compute rightly, by their fallback or by the reference's loop.
const REFUSED: [&str; 8] = [
    "04_silu_timed_skip",
    "05_merge_find_expected",
    "06_silu_slow_clock",
    "08_merge_machines_fault",
    "09_silu_lazy_pages",
    "10_matmul_state_lazy",
    "11_matmul_carry_over",
    "12_merge_hog_the_other",
];

fn task_of(cheat: &str) -> Task {
    let short = cheat.split('_').nth(1).unwrap();
    let name =
        ["silu_and_mul", "merge_attn_states", "matmul"].into_iter().find(|name| name.starts_with(short)).unwrap();
    let mut task = load::task(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name)).unwrap();
    // None of them names a parameter but in a comment.
    if let Source::Context(context) = &mut task.source {
        context.tuning = Space::default();
    }
    task
}

/// The lower end of the speedup's interval; nothing where it is refused.
fn credited(cheat: &str, source: &str) -> Option<f64> {
    let source = source.replace("{{", "{ {").replace("}}", "} }");
    let (task, workshop) = (task_of(cheat), workshop());
    let suite = Suite::of_task(&task);
    let timed = on_this_thread(async {
        let built = workshop.build(&task, &Candidate::new(&source)).await?.expect("it compiles");
        match workshop.check(&task, built, &suite).await? {
            Ok(verified) => workshop.time(&task, &verified, &suite, &PLAN, 0.0).await,
            Err(failure) => Ok(Err(failure)),
        }
    });
    timed.unwrap().map_err(|failure| println!("{cheat}: {failure}")).ok().map(|timed| timed.speedup.interval.low)
}

#[test]
#[ignore = "asked for: a minute and more"]
fn no_held_out_cheat_is_credited() {
    let _alone = alone();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native/held_out");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let cheat = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let source = std::fs::read_to_string(&path).unwrap();
        let low = credited(&cheat, &source);
        println!("{cheat}: {low:?}");
        assert_eq!(low.is_none(), REFUSED.contains(&cheat.as_str()), "{cheat}");
        // This one's own loop divides less than the reference's: what its reuse adds is what would be credited to a cheat.
        let honest = (cheat == "02_merge_state_reuse").then(|| {
            let without = source.replace("        if (l) {\n", "        if (false) {\n");
            assert_ne!(without, source);
            credited(&cheat, &without).unwrap()
        });
        assert!(low.is_none_or(|low| low < CREDIT * honest.unwrap_or(1.0)), "{cheat}: {low:?} beside {honest:?}");
        seen += 1;
    }
    assert_eq!(seen, 12);
    assert_eq!(children(), Vec::<String>::new());
}
