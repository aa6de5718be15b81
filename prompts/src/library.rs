//! Which templates are there, and how does one file hold a prompt?
//!
//! A *page* is a whole prompt, in three parts; a *block* is a piece that pages include.

/// The pages: each has a system part, which takes no values and so is the same in every round, a user part, and the form
/// of the reply, which takes no values either.
pub(crate) const PAGES: [(&str, &str); 26] = [
    ("action", include_str!("../templates/action.md")),
    ("advise", include_str!("../templates/advise.md")),
    ("apply", include_str!("../templates/apply.md")),
    ("approaches", include_str!("../templates/approaches.md")),
    ("chain-of-thought", include_str!("../templates/chain-of-thought.md")),
    ("diagnose", include_str!("../templates/diagnose.md")),
    ("extract", include_str!("../templates/extract.md")),
    ("fix", include_str!("../templates/fix.md")),
    ("lesson", include_str!("../templates/lesson.md")),
    ("optimize", include_str!("../templates/optimize.md")),
    ("plan", include_str!("../templates/plan.md")),
    ("primitives", include_str!("../templates/primitives.md")),
    ("propose", include_str!("../templates/propose.md")),
    ("refine", include_str!("../templates/refine.md")),
    ("reflect", include_str!("../templates/reflect.md")),
    ("retry", include_str!("../templates/retry.md")),
    ("seed", include_str!("../templates/seed.md")),
    ("sentence", include_str!("../templates/sentence.md")),
    ("shapes", include_str!("../templates/shapes.md")),
    ("sketch", include_str!("../templates/sketch.md")),
    ("skill", include_str!("../templates/skill.md")),
    ("space", include_str!("../templates/space.md")),
    ("suggest", include_str!("../templates/suggest.md")),
    ("transform", include_str!("../templates/transform.md")),
    ("vanilla", include_str!("../templates/vanilla.md")),
    ("whole", include_str!("../templates/whole.md")),
];

/// The blocks. Those of a kind of task lie in a folder of its name.
pub(crate) const BLOCKS: [(&str, &str); 47] = [
    ("again", include_str!("../templates/again.md")),
    ("bound/kernel", include_str!("../templates/bound/kernel.md")),
    ("bound/reference", include_str!("../templates/context/reference.md")),
    ("bound/rules", include_str!("../templates/bound/rules.md")),
    ("code", include_str!("../templates/code.md")),
    ("coder", include_str!("../templates/coder.md")),
    ("context/kernel", include_str!("../templates/context/kernel.md")),
    ("context/reference", include_str!("../templates/context/reference.md")),
    ("context/rules", include_str!("../templates/context/rules.md")),
    ("cuda/kernel", include_str!("../templates/context/kernel.md")),
    ("cuda/reference", include_str!("../templates/context/reference.md")),
    ("cuda/rules", include_str!("../templates/cuda/rules.md")),
    ("example/c", include_str!("../templates/example/c.md")),
    ("example/cpp", include_str!("../templates/example/cpp.md")),
    ("example/cuda", include_str!("../templates/example/cuda.md")),
    ("example/hlsl", include_str!("../templates/example/hlsl.md")),
    ("example/hip", include_str!("../templates/example/hip.md")),
    ("example/python", include_str!("../templates/example/python.md")),
    ("failure", include_str!("../templates/failure.md")),
    ("feature/context", include_str!("../templates/feature/context.md")),
    ("feature/guides", include_str!("../templates/feature/guides.md")),
    ("feature/offered", include_str!("../templates/feature/offered.md")),
    ("guide/cpu", include_str!("../templates/guide/cpu.md")),
    ("guide/gpu", include_str!("../templates/guide/gpu.md")),
    ("hip/kernel", include_str!("../templates/context/kernel.md")),
    ("hip/reference", include_str!("../templates/context/reference.md")),
    ("hip/rules", include_str!("../templates/hip/rules.md")),
    ("hlsl/host", include_str!("../templates/hlsl/host.md")),
    ("hlsl/kernel", include_str!("../templates/hlsl/kernel.md")),
    ("hlsl/reference", include_str!("../templates/context/reference.md")),
    ("hlsl/rules", include_str!("../templates/hlsl/rules.md")),
    ("learned", include_str!("../templates/learned.md")),
    ("looked", include_str!("../templates/looked.md")),
    ("lookups", include_str!("../templates/lookups.md")),
    ("machine", include_str!("../templates/machine.md")),
    ("parameters", include_str!("../templates/parameters.md")),
    ("primitives/cuda", include_str!("../templates/primitives/cuda.md")),
    ("primitives/neon", include_str!("../templates/primitives/neon.md")),
    ("primitives/rvv", include_str!("../templates/primitives/rvv.md")),
    ("primitives/x86", include_str!("../templates/primitives/x86.md")),
    ("problem/kernel", include_str!("../templates/problem/kernel.md")),
    ("problem/precision", include_str!("../templates/problem/precision.md")),
    ("problem/reference", include_str!("../templates/problem/reference.md")),
    ("problem/rules", include_str!("../templates/problem/rules.md")),
    ("profile", include_str!("../templates/profile.md")),
    ("ranked", include_str!("../templates/ranked.md")),
    ("timing", include_str!("../templates/timing.md")),
];

/// The parts of a page, in the order in which they stand in its file, each behind a line `=== part ===`.
pub(crate) const PARTS: [&str; 3] = ["system", "user", "form"];

/// Whether this is the name of a page.
pub(crate) fn is_page(name: &str) -> bool {
    PAGES.iter().any(|(page, _)| *page == name)
}

/// A page's parts: the name, the text, and the lines that stand before it in the file. `None` where the marker lines are
/// not exactly those of [`PARTS`], in order, with nothing before the first.
pub(crate) fn parts(page: &str) -> Option<Vec<(&'static str, String, usize)>> {
    let mut parts: Vec<(&'static str, String, usize)> = Vec::new();
    for (number, line) in page.lines().enumerate() {
        if let Some(marker) = line.trim().strip_prefix("=== ").and_then(|rest| rest.strip_suffix(" ===")) {
            let expected = PARTS.get(parts.len()).filter(|part| **part == marker)?;
            parts.push((expected, String::new(), number + 1));
        } else if let Some((_, text, _)) = parts.last_mut() {
            text.push_str(line);
            text.push('\n');
        } else if !line.trim().is_empty() {
            return None;
        }
    }
    (parts.len() == PARTS.len()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_three_parts_in_order() {
        let page = "=== system ===\na\n=== user ===\nb\nc\n=== form ===\nd\n";
        let expected =
            [("system", "a\n".to_owned(), 1), ("user", "b\nc\n".to_owned(), 3), ("form", "d\n".to_owned(), 6)];
        assert_eq!(parts(page).unwrap(), expected);
    }

    #[test]
    fn a_page_with_other_parts_is_none() {
        for page in ["", "a", "=== user ===\n=== system ===\n=== form ===", "=== system ===\n=== user ===", "=== x ==="]
        {
            assert_eq!(parts(page), None, "{page}");
        }
    }
}
