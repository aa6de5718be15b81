//! A workflow that begins with a candidate of another run, in the place of the task's reference.

use crate::{at::At, exit::Trouble};
use kernelbench::{
    Bindings, Candidate, Part, Source, Space, Task,
    region::{self, IMPORTS, PREAMBLE},
};

/// The task with a run's candidate as the initial context: its regions, and of its tuning parameters the values that were kept.
///
/// # Errors
///
/// Where there is no such candidate, or it is one of another kernel.
pub fn seeded(mut task: Task, seed: &At) -> Result<Task, Trouble> {
    if !task.has_interface_of(&seed.task()?) {
        return Err(Trouble::usage(format!(
            "--from {}: its task is {}, whose entry or arguments are not those of {}",
            seed.label(),
            seed.task()?.name,
            task.name
        )));
    }
    let candidate = seed.candidate()?;
    let checkpoint = seed.checkpoint();
    let kept = checkpoint.as_ref().map_or_else(|| vec![candidate.bindings().clone()], |at| at.kept.clone());
    let source = seed.task()?;
    let known = checkpoint.map(|at| at.tuning).or_else(|| source.context().map(|context| context.tuning.clone()));
    let Source::Context(context) = &mut task.source else {
        return Err(Trouble::usage(format!("{}: a problem in Python has no regions", task.name)));
    };
    context.initial = Some(region::marked(&regions(&candidate, &context.entry)));
    context.tuning = narrowed(&known.unwrap_or_default(), &kept);
    Ok(task)
}

/// A space with the values alone that were kept, the best first, of the parameters that were bound.
fn narrowed(space: &Space, kept: &[Bindings]) -> Space {
    let mut narrow = Space { constraints: space.constraints.clone(), ..Space::default() };
    for (name, value) in kept.iter().flatten() {
        let values = narrow.grid.entry(name.clone()).or_default();
        if !values.contains(value) {
            values.push(value.clone());
        }
    }
    // A constraint may name parameters that there are alone.
    if narrow.grid.len() < space.grid.len() {
        narrow.constraints.clear();
    }
    narrow
}

/// A candidate's regions, with what was imported in the preamble, which nobody rewrites either. A plain source is divided:
/// what it includes, what it defines, and from the entry on the host's part.
fn regions(candidate: &Candidate, entry: &str) -> Vec<Part> {
    let source = candidate.source();
    let marked = region::regions(&source).unwrap_or_default();
    if !marked.is_empty() {
        return marked;
    }
    if candidate.region("device").is_none() {
        return divided(&source, entry);
    }
    let locked = |part: &&Part| [PREAMBLE, IMPORTS].contains(&part.region.as_str());
    let preamble: String = candidate.parts().iter().filter(locked).map(|part| part.text.as_str()).collect();
    let preamble = Part { region: PREAMBLE.to_owned(), text: preamble };
    let own = candidate.parts().iter().filter(|part| !locked(part)).cloned();
    std::iter::once(preamble).chain(own).collect()
}

/// A plain source in regions.
fn divided(source: &str, entry: &str) -> Vec<Part> {
    let lines: Vec<&str> = source.lines().collect();
    let included = lines.iter().rposition(|line| line.trim_start().starts_with("#include")).map_or(0, |at| at + 1);
    let rest = &lines[included..];
    let host = rest.iter().position(|line| line.contains("extern \"C\"") || defines(line, entry)).unwrap_or(rest.len());
    let part = |region: &str, lines: &[&str]| Part {
        region: region.to_owned(),
        text: lines.iter().flat_map(|line| [line, "\n"]).collect(),
    };
    vec![
        part(PREAMBLE, &lines[..included]),
        part("macros", &[]),
        part("device", &rest[..host]),
        part("host", &rest[host..]),
    ]
}

/// Whether a line begins the entry's definition: its name and a parenthesis, not indented and not called.
fn defines(line: &str, entry: &str) -> bool {
    let Some((before, behind)) = line.split_once(entry).filter(|_| line.starts_with(char::is_alphabetic)) else {
        return false;
    };
    let whole = before.ends_with([' ', '*', '&']) && !before.contains(['(', '{', '=']);
    whole && behind.trim_start().starts_with('(') && !line.trim_end().ends_with(';')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_source_is_divided_behind_its_includes_and_before_its_entry() {
        let source = "#include <a.h>\nstatic int f();\nextern \"C\" void g(int n) {\n  f();\n}\n";
        let parts = divided(source, "g");
        let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
        assert_eq!(texts, ["#include <a.h>\n", "", "static int f();\n", "extern \"C\" void g(int n) {\n  f();\n}\n"]);
        assert_eq!(region::regions(&region::marked(&parts)).unwrap().len(), 4);
        let parts = divided("void h() { g(1); }\nint  g (int n)\n{\n}\n", "g");
        assert_eq!(parts[3].text, "int  g (int n)\n{\n}\n", "in C the entry has no linkage of its own");
    }

    #[test]
    fn a_seeds_space_has_the_values_that_were_kept_the_best_first() {
        let number = kernelbench::Parameter::Number;
        let space = Space {
            grid: [("N".to_owned(), vec![number(1), number(2), number(4)])].into(),
            constraints: vec!["N < 8".to_owned()],
        };
        let kept = [4, 1].map(|n| Bindings::from([("N".to_owned(), number(n))]));
        assert_eq!(narrowed(&space, &kept).grid["N"], [number(4), number(1)]);
        assert_eq!(narrowed(&space, &[Bindings::new()]), Space::default());
    }
}
