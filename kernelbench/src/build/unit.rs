//! What text does the compiler get?
//!
//! The candidate's text after a declaration of the entry point, so that another signature does not compile, and beside it
//! a translation unit of ours that calls the entry, so that a missing one does not link.

use crate::task::{Argument, ArgumentKind, KernelContext, Language, Transfer};
use std::fmt::Write;

/// The candidate's file name, as its author sees it in messages.
pub(crate) const CANDIDATE: &str = "candidate";

/// The file name's ending in a language.
pub(crate) fn ending(language: Language) -> &'static str {
    match language {
        Language::C => "c",
        Language::Cpp => "cpp",
        Language::Cuda => "cu",
        Language::Python => "py",
    }
}

/// The declaration of the entry point.
pub(crate) fn prototype(context: &KernelContext) -> String {
    let mut parameters: Vec<String> = context.arguments.iter().map(|a| parameter(a, context.language)).collect();
    if context.language == Language::Cuda {
        parameters.push("cudaStream_t stream".to_owned());
    }
    let linkage = if context.language.is_cpp() { "extern \"C\" " } else { "" };
    let parameters = if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
    format!("{linkage}void {}({parameters});", context.entry)
}

fn parameter(argument: &Argument, language: Language) -> String {
    let (c, name) = (argument.dtype.name_in(language), &argument.name);
    match &argument.kind {
        ArgumentKind::Scalar => format!("{c} {name}"),
        ArgumentKind::Array { transfer: Transfer::In, .. } => format!("const {c} *{name}"),
        ArgumentKind::Array { .. } => format!("{c} *{name}"),
    }
}

/// The candidate's translation unit.
pub(crate) fn candidate(context: &KernelContext, source: &str) -> String {
    let (prototype, ending) = (prototype(context), ending(context.language));
    format!(
        "#include <stddef.h>\n#include <stdint.h>\n#line 1 \"signature\"\n{prototype}\n#line 1 \"{CANDIDATE}.{ending}\"\n{source}\n"
    )
}

/// The translation unit that unpacks the arguments and calls the entry. An exception ends in `std::terminate`, which says
/// what it was.
pub(crate) fn caller(context: &KernelContext) -> String {
    let mut text = format!("#include <stdint.h>\n{}\n", prototype(context));
    let cpp = context.language == Language::Cpp;
    let (linkage, noexcept) = if cpp { ("extern \"C\" ", " noexcept") } else { ("", "") };
    let declared = "void warpsmith_call(void *const *arguments)";
    let _ = writeln!(
        text,
        "{linkage}__attribute__((visibility(\"default\"))) {declared}{noexcept};\n{linkage}{declared}{noexcept} {{"
    );
    let _ = writeln!(text, "    {}({});", context.entry, passed(context));
    text.push_str("}\n");
    text
}

/// The arguments of a call, taken from an array of pointers called `arguments`.
pub(crate) fn passed(context: &KernelContext) -> String {
    let unpack = |(at, argument): (usize, &Argument)| {
        let c = argument.dtype.name_in(context.language);
        match argument.kind {
            ArgumentKind::Scalar => format!("*({c} *)arguments[{at}]"),
            ArgumentKind::Array { .. } => format!("({c} *)arguments[{at}]"),
        }
    };
    context.arguments.iter().enumerate().map(unpack).collect::<Vec<_>>().join(", ")
}
