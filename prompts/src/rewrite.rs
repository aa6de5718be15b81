//! Reading a rewritten region: the one region that was asked for, and no change in any other (PEAK §3.2).

use crate::{Unreadable, code::code_text, reply::quoted};
use kernelbench::{Candidate, Part, Space, region};

/// Reads the new text of a region: the first fenced block that is code, which begins with the line `// region: NAME`. Other
/// regions may stand beside it only as they are.
///
/// # Errors
/// Where there is no such block, it lacks the region, changes another, or names a tuning parameter that there is none of.
pub fn read_region(reply: &str, asked: &str, context: &Candidate, tuning: &Space) -> Result<String, Unreadable> {
    let parts = split(&code_text(reply)?)?;
    let (own, others): (Vec<&Part>, Vec<&Part>) = parts.iter().partition(|part| part.region == asked);
    if let Some(why) = others.iter().find_map(|other| change(other, asked, context)) {
        return Err(Unreadable(why));
    }
    let text = match own[..] {
        [one] => format!("{}\n", one.text.trim_end()),
        [] => {
            return Err(Unreadable(format!(
                "it holds no line `{} {asked}`, behind which the new text of that region stands",
                region::MARKER
            )));
        }
        _ => return Err(Unreadable(format!("it gives the region {asked} twice"))),
    };
    let text = if text.trim().is_empty() { String::new() } else { text };
    check_placeholders(&text, tuning)?;
    Ok(text)
}

/// The parts of a block, the first of which may have no name.
fn split(block: &str) -> Result<Vec<Part>, Unreadable> {
    let mut parts = vec![Part { region: region::PREAMBLE.to_owned(), text: String::new() }];
    for line in block.lines() {
        match region::marker(line) {
            Some(name) => parts.push(Part { region: name.to_owned(), text: String::new() }),
            None => parts.last_mut().into_iter().for_each(|part| part.text.extend([line, "\n"])),
        }
    }
    if parts.len() == 1 {
        return Err(Unreadable(format!("its code block has no line such as `{} device`", region::MARKER)));
    }
    parts.retain(|part| part.region != region::PREAMBLE || !part.text.trim().is_empty());
    Ok(parts)
}

/// In which way a part of a reply differs from the region of the context that it stands for.
fn change(part: &Part, asked: &str, context: &Candidate) -> Option<String> {
    let name = &part.region;
    let Some(known) = context.region(name) else {
        return Some(match name.as_str() {
            region::PREAMBLE => format!("text stands before the region {asked}: only that region may be given"),
            _ => format!("it gives a region {}, which there is none of", quoted(name)),
        });
    };
    let lines = |text: &str| text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    let (before, after) = (lines(known), lines(&part.text));
    if before == after {
        return None;
    }
    let at = before.iter().zip(&after).take_while(|(old, new)| old == new).count();
    let shown =
        |lines: &[String]| lines.get(at).map_or("nothing".to_owned(), |line| format!("\"{}\"", quoted(line.trim())));
    Some(format!(
        "it changes the region {name}, and only {asked} was asked for (line {} of {name} is {} and would be {})",
        at + 1,
        shown(&before),
        shown(&after)
    ))
}

fn check_placeholders(text: &str, tuning: &Space) -> Result<(), Unreadable> {
    let names = Candidate::new(text).placeholders();
    let Some(name) = names.iter().find(|name| !tuning.grid.contains_key(*name)) else { return Ok(()) };
    let known: Vec<&str> = tuning.grid.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
    Err(Unreadable(format!("it names {{{{{name}}}}}, which is no tuning parameter of this context; {known}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn read(block: &str) -> Result<String, String> {
        let rewriting = example::rewriting();
        let reply = format!("Here:\n```cpp\n{block}```\n");
        read_region(&reply, "device", &rewriting.context, &rewriting.tuning).map_err(|why| why.0)
    }

    const DEVICE: &str = "// region: device\nstatic void part(int step) { (void)({{STEP}} + step); }\n";

    #[test]
    fn the_region_that_was_asked_for_is_read_alone_or_beside_others_as_they_are() {
        let text = DEVICE.split_once('\n').unwrap().1;
        let macros = "// region: macros\n#define STEP {{STEP}}  \n\n";
        for block in [DEVICE.to_owned(), format!("\n{macros}{DEVICE}\n\n"), DEVICE.replace('\n', "\r\n")] {
            assert_eq!(read(&block).as_deref(), Ok(text), "{block}");
        }
        assert_eq!(read("// region: device\n\n").as_deref(), Ok(""), "a region may be empty");
    }

    #[test]
    fn a_change_in_another_region_is_refused_with_the_place() {
        let host = "// region: host\nextern \"C\" void scale() { part(1); }\n";
        let why = read(&format!("{DEVICE}{host}")).unwrap_err();
        assert_eq!(
            why,
            "it changes the region host, and only device was asked for (line 1 of host is \"extern \"C\" void scale() {}\" \
             and would be \"extern \"C\" void scale() { part(1); }\")"
        );
    }

    #[test]
    fn what_is_not_one_known_region_is_refused_with_the_reason() {
        for (block, why) in [
            ("static void part() {}\n".to_owned(), "has no line such as `// region: device`"),
            (format!("#include <a>\n{DEVICE}"), "text stands before the region device: only that region may be given"),
            (format!("{DEVICE}// region: main\nint x;\n"), "it gives a region main, which there is none of"),
            ("// region: macros\n#define STEP {{STEP}}\n".to_owned(), "it holds no line `// region: device`"),
            (format!("{DEVICE}{DEVICE}"), "it gives the region device twice"),
            (
                DEVICE.replace("STEP", "STEPS"),
                "names {{STEPS}}, which is no tuning parameter of this context; there are STEP",
            ),
        ] {
            let said = read(&block).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let cut =
            read_region("```cpp\n// region: device\nvoid", "device", &example::rewriting().context, &Space::default());
        assert!(cut.unwrap_err().0.contains("cut off"));
    }
}
