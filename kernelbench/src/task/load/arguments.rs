//! Do the arguments make a signature that can be called and checked?

use super::{Document, TaskError, file::ArgumentFile};
use crate::task::{Argument, ArgumentKind, Dtype, Fill, Size, Transfer};
use arrays::e4m3;
use std::collections::BTreeSet;
use toml::Spanned;

/// The arguments, in order.
pub(super) fn check(document: &Document<'_>, files: &[ArgumentFile]) -> Result<Vec<Argument>, TaskError> {
    let mut names = BTreeSet::new();
    let mut arguments = Vec::new();
    for file in files {
        check_identifier(document, &file.name, "an argument")?;
        if file.name.get_ref() == "name" {
            let help = "choose another name: a case gives its own name under this key";
            return document.error(&file.name, "an argument cannot be called `name`", help);
        }
        if !names.insert(file.name.get_ref()) {
            return document.error(&file.name, "an earlier argument has this name", "give each argument its own name");
        }
        let kind = kind(document, file)?;
        arguments.push(Argument { name: file.name.get_ref().clone(), dtype: file.dtype, kind });
    }
    check_sizes(document, files, &arguments)?;
    let is_output = |argument: &Argument| {
        matches!(argument.kind, ArgumentKind::Array { transfer: Transfer::Out | Transfer::InOut, .. })
    };
    if !arguments.iter().any(is_output) {
        let help = "give at least one [[argument]] a size and transfer = \"out\" or \"in-out\"";
        return Err(document.error_at(0..0, "this task has no output: nothing could be checked", help));
    }
    Ok(arguments)
}

/// Whether this name can stand in C and C++.
pub(super) fn check_identifier(document: &Document<'_>, name: &Spanned<String>, what: &str) -> Result<(), TaskError> {
    let text = name.get_ref();
    let start = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !start || text.len() > 64 || !text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        let help = "expected a C identifier: up to 64 letters, digits and `_`, no digit first";
        return document.error(name, format!("this cannot name {what}"), help);
    }
    if KEYWORDS.contains(&text.as_str()) {
        return document.error(name, format!("`{text}` is a word of C or C++"), "choose another name");
    }
    Ok(())
}

const KEYWORDS: [&str; 62] = [
    "alignas",
    "alignof",
    "and",
    "auto",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "constexpr",
    "continue",
    "default",
    "delete",
    "do",
    "double",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "main",
    "mutable",
    "namespace",
    "new",
    "not",
    "operator",
    "or",
    "private",
    "protected",
    "public",
    "register",
    "restrict",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "template",
    "this",
    "throw",
    "true",
    "try",
    "typedef",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "while",
];

fn kind(document: &Document<'_>, read: &ArgumentFile) -> Result<ArgumentKind, TaskError> {
    let Some(size) = &read.size else { return scalar(document, read) };
    let Some(transfer) = read.transfer.as_ref().map(|transfer| *transfer.get_ref()) else {
        let help = "add transfer = \"in\" (read only), \"out\" (written only) or \"in-out\" (changed in place)";
        return document.error(&read.name, "this array has no transfer", help);
    };
    Ok(ArgumentKind::Array { size: Size(size.get_ref().clone()), transfer, fill: fill(document, read, transfer)? })
}

fn scalar(document: &Document<'_>, read: &ArgumentFile) -> Result<ArgumentKind, TaskError> {
    let help = "add a size to make it an array, or take the key away: a scalar's value comes from each case";
    match (&read.transfer, &read.fill) {
        (Some(transfer), _) => document.error(transfer, "a scalar has no transfer", help),
        (None, Some(fill)) => document.error(fill, "a scalar has no fill", help),
        (None, None) => Ok(ArgumentKind::Scalar),
    }
}

fn fill(document: &Document<'_>, read: &ArgumentFile, transfer: Transfer) -> Result<Fill, TaskError> {
    match (&read.fill, transfer) {
        (Some(at), Transfer::Out) => {
            let help = "take the fill away, or say transfer = \"in-out\"";
            document.error(at, "an output holds nothing before the call", help)
        }
        (Some(at), _) => checked_fill(document, at, read.dtype),
        (None, Transfer::Out) => Ok(Fill::Zeros),
        (None, _) => {
            let help = "add a fill: \"zeros\", \"ones\", { uniform = { low = 0, high = 1 } }, \
                        { normal = { mean = 0, std = 1 } } or { integers = { low = 0, high = 9 } }";
            document.error(&read.name, "nothing says what this array holds", help)
        }
    }
}

fn checked_fill(document: &Document<'_>, at: &Spanned<Fill>, dtype: Dtype) -> Result<Fill, TaskError> {
    let whole = matches!(dtype, Dtype::I32 | Dtype::I64);
    if dtype == Dtype::E4m3 {
        return eight_bits(document, at);
    }
    let (holds, expected) = match *at.get_ref() {
        Fill::Zeros | Fill::Ones => (true, ""),
        Fill::Uniform { low, high } => (
            low.is_finite() && high.is_finite() && low < high && !whole,
            "finite numbers low < high, in floating point",
        ),
        Fill::Normal { mean, std, minus_infinity } => (
            mean.is_finite() && std.is_finite() && std > 0.0 && (0.0..=1.0).contains(&minus_infinity) && !whole,
            "a finite mean, std above 0 and minus_infinity from 0 to 1, in floating point",
        ),
        Fill::Integers { low, high } => {
            let narrow = dtype == Dtype::I32 && (i32::try_from(low).is_err() || i32::try_from(high).is_err());
            (low <= high && !narrow, "integers low <= high that the dtype can hold")
        }
    };
    if holds {
        return Ok(*at.get_ref());
    }
    document.error(at, "an array cannot be filled like this", format!("expected {expected}"))
}

/// A fill of e4m3: of values that it holds, and not all of one. It has no infinity, and 448 is the largest.
fn eight_bits(document: &Document<'_>, at: &Spanned<Fill>) -> Result<Fill, TaskError> {
    let (least, most) = (e4m3::to_f64(1), e4m3::LARGEST);
    let within = |value: f64| value.abs() <= most;
    let is_one = |value: i64| e4m3::to_f64(e4m3::from_f64(value as f64)).to_bits() == (value as f64).to_bits();
    let holds = match *at.get_ref() {
        Fill::Zeros | Fill::Ones => true,
        Fill::Uniform { low, high } => {
            within(low) && within(high) && low < high && e4m3::from_f64(low) != e4m3::from_f64(high)
        }
        Fill::Normal { mean, std, minus_infinity } => {
            within(mean) && (least..=most).contains(&std) && minus_infinity.to_bits() == 0
        }
        Fill::Integers { low, high } => low <= high && is_one(low) && is_one(high),
    };
    if holds {
        return Ok(*at.get_ref());
    }
    let expected = format!(
        "expected values from -{most} to {most} that e4m3 tells apart: low < high, or a std from {least} to {most} without \
         minus_infinity, or integers whose ends it holds (all to 16, then steps of 2, 4, 8, 16, 32)"
    );
    document.error(at, "an array of e4m3 cannot be filled like this", expected)
}

/// Whether each size uses integer scalars only.
fn check_sizes(document: &Document<'_>, files: &[ArgumentFile], arguments: &[Argument]) -> Result<(), TaskError> {
    let integer = |argument: &&Argument| {
        argument.kind == ArgumentKind::Scalar && matches!(argument.dtype, Dtype::I32 | Dtype::I64)
    };
    let scalars: Vec<&str> = arguments.iter().filter(integer).map(|argument| argument.name.as_str()).collect();
    for size in files.iter().filter_map(|file| file.size.as_ref()) {
        let name = size.get_ref().split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let mut names = name.filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
        if let Some(unknown) = names.find(|name| !scalars.contains(name)) {
            let help = match scalars.as_slice() {
                [] => "expected an integer: this task has no integer scalar".to_owned(),
                _ => format!("expected an expression of the integer scalars: {}", scalars.join(", ")),
            };
            return document.error(size, format!("`{unknown}` is no integer scalar"), help);
        }
    }
    Ok(())
}
