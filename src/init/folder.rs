//! What stands in the task file of a function?

use super::signature::{Argument, Element, Signature};
use std::fmt::Write;

/// `task.toml` for this function, whose source lies beside it as `reference`, in this language.
///
/// # Errors
///
/// Where no length can be guessed, an array has nowhere to go, or a kernel in CUDA takes no stream.
pub fn task_file(signature: &Signature, language: &str, reference: &str) -> Result<String, String> {
    let Signature { entry, arguments, stream } = signature;
    let lengths: Vec<&Argument> = arguments.iter().filter(|a| !a.array && a.element.is_whole()).collect();
    let outputs: Vec<&Argument> = arguments.iter().filter(|a| a.array && !a.constant).collect();
    if lengths.is_empty() || outputs.is_empty() {
        return Err(format!(
            "{entry}: expected a whole number, of which arrays get their length, and an array that is not const"
        ));
    }
    if (language == "cuda") != *stream {
        let what = if *stream {
            "only a kernel in CUDA takes a stream"
        } else {
            "expected `cudaStream_t stream` as the last argument"
        };
        return Err(format!("{entry}: {what}"));
    }
    let size = lengths.iter().map(|a| a.name.as_str()).collect::<Vec<_>>().join(" * ");
    let mut text = format!(
        "# Made of {reference} by `warpsmith init`. It runs as it is; what it guesses is marked LOOK.\n\
         # Every key: examples/README.md.\n\nschema = 1\nname = \"{entry}\"\n\
         # LOOK: say in a sentence or two what is computed and how the data is laid out; the model reads it.\n\
         summary = \"What {entry} in {reference} computes.\"\nlanguage = \"{language}\"\nentry = \"{entry}\"\n\
         reference = \"{reference}\"\n"
    );
    for argument in arguments {
        text += &one(argument, &size);
    }
    text += &ends(arguments, &lengths, outputs.iter().map(|a| a.element));
    Ok(text)
}

fn one(argument: &Argument, size: &str) -> String {
    let Argument { name, element, array, constant } = argument;
    let guessed = match element {
        Element::E4m3 => "# LOOK: eight bits of floating point; a task has no other type of one byte.\n",
        _ => "",
    };
    let mut text = format!("\n[[argument]]\nname = \"{name}\"\n{guessed}dtype = \"{}\"\n", element.name());
    if *array {
        let _ =
            writeln!(text, "# LOOK: how many elements it has; an expression of the whole numbers.\nsize = \"{size}\"");
        let fill = if element.is_whole() {
            "{ integers = { low = 0, high = 9 } }"
        } else {
            "{ normal = { mean = 0, std = 1 } }"
        };
        let transfer = if *constant {
            format!("transfer = \"in\"\nfill = {fill}")
        } else {
            format!("# LOOK: \"in-out\", and a fill = {fill}, if it is read before it is written.\ntransfer = \"out\"")
        };
        let _ = writeln!(text, "{transfer}");
    }
    text
}

fn ends(arguments: &[Argument], lengths: &[&Argument], outputs: impl Iterator<Item = Element>) -> String {
    let loose = |[_, relative]: &[&str; 2]| relative.parse::<f64>().unwrap_or_default();
    let [absolute, relative] = outputs.map(tolerance).max_by(|a, b| loose(a).total_cmp(&loose(b))).unwrap_or(["0"; 2]);
    // Of 0.01 and less a reader asks for no reason.
    let why = if relative.parse::<f64>().is_ok_and(|relative| relative > 0.01) {
        "why = \"a few roundings of the element type of the outputs\"\n"
    } else {
        ""
    };
    let case = |kind: &str, name: &str, sizes: [u32; 3]| {
        let mut text = format!("\n[[{kind}]]\nname = \"{name}\"\n");
        for argument in arguments.iter().filter(|a| !a.array) {
            let at = lengths.iter().position(|length| length.name == argument.name);
            let value = at.map_or("0.5".to_owned(), |at| size(at, lengths.len(), sizes).to_string());
            let _ = writeln!(text, "{} = {value}", argument.name);
        }
        text
    };
    format!(
        "\n# LOOK: a value passes within atol + rtol * abs(reference): a few roundings of the type, no more.\n\
         [tolerance]\natol = {absolute}\nrtol = {relative}\n{why}\n[timing]\ncases = \"all\"\n\n\
         # LOOK: the shapes that count. Every candidate is checked on all of them and timed on those above.{}\n\
         # LOOK: odd ones, which only the certificate sees.{}",
        case("case", "usual", [1_000_000, 1024, 64]),
        case("final_case", "odd", [12_347, 129, 33])
    )
}

/// A length for the argument at this place among so many.
fn size(at: usize, of: usize, [one, two, three]: [u32; 3]) -> u32 {
    match of {
        1 => one,
        2 => two + at as u32,
        _ => three + at as u32,
    }
}

/// Absolute and relative: a few roundings of the type; of eight bits one, and two of their least steps.
fn tolerance(element: Element) -> [&'static str; 2] {
    match element {
        Element::F64 => ["1e-12"; 2],
        Element::F32 => ["1e-5"; 2],
        Element::F16 => ["0.002"; 2],
        Element::Bf16 => ["0.016"; 2],
        Element::E4m3 => ["0.004", "0.125"],
        Element::I32 | Element::I64 => ["0"; 2],
    }
}
