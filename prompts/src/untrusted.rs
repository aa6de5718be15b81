//! Does any reply, however broken, hostile or large, end in a panic or in a long wait?

use crate::{
    example, read_candidate, read_fix, read_optimization, read_plan, read_reflections, read_shapes, read_skill,
    read_suggestions,
};
use kernelbench::Language;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

const GOOD: [&str; 8] = [
    "Sure.\n```cpp\n#include <cmath>\nextern \"C\" void f(float* x) { x[0] = 1; }\n```\nDone.",
    r#"{"critical_issue": "a", "why_it_matters": "b", "minimal_fix_hint": "c"}"#,
    "```json\n{\"bottleneck\": \"a\", \"optimization method\": \"b\", \"modification plan\": \"c\"}\n```",
    r#"{"suggestions": ["one", "two \u00e9\ud83d\ude00"]}"#,
    r#"{"shapes": [{"rows": 1, "columns": 2}, {"rows": 3, "columns": 4e1, "factor": 0.5}]}"#,
    "```markdown\n# Notes\n- é\n```",
    r#"{"reflections": [{"insight": "a", "evidence": "b", "applies": "c"}]}"#,
    r#"<think>hm {"step": 1}</think>{"step": "best", "why": "é"}"#,
];
const PIECES: [&str; 16] =
    ["{", "}", "[", "]", "\"", "\\", "```", "~~~", "\n", "é", "\0", "<think>", "/*", "*/", ",", "\u{202e}"];

fn read_all(reply: &str) {
    let _ = read_candidate(reply, Language::Cpp);
    let _ = read_candidate(reply, Language::C);
    let _ = read_fix(reply);
    let _ = read_optimization(reply);
    let _ = read_suggestions(reply);
    let _ = read_reflections(reply);
    let _ = read_skill(reply);
    let _ = read_shapes(reply, &example::task());
    let _ = read_plan(reply, &["best".into()]);
}

#[test]
fn no_prefix_of_a_good_reply_makes_a_reader_panic() {
    for good in GOOD {
        for end in (0..=good.len()).filter(|end| good.is_char_boundary(*end)) {
            read_all(&good[..end]);
        }
    }
}

#[test]
fn no_mutation_of_a_good_reply_makes_a_reader_panic() {
    let mut rng = StdRng::seed_from_u64(7);
    for good in GOOD {
        for _ in 0..400 {
            let mut characters: Vec<String> = good.chars().map(String::from).collect();
            for _ in 0..rng.random_range(1..6) {
                let at = rng.random_range(0..characters.len());
                characters[at] = (*PIECES.choose(&mut rng).unwrap()).into();
            }
            read_all(&characters.concat());
        }
    }
}

#[test]
fn of_a_huge_reply_the_beginning_is_looked_at_and_no_reader_takes_quadratic_time() {
    for piece in ["{", "{\"a\":[", "```\n", "`", "\n", "{}", "/*", "{\"", "[{\"bottleneck\":", "a "] {
        read_all(&piece.repeat((2 << 20) / piece.len()));
    }
}
