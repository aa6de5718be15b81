//! Does each case say all that a call needs?

use super::{
    Document, TaskError,
    file::{CaseFile, TaskFile, TimingFile},
};
use crate::task::{Argument, ArgumentKind, Case, Dtype, Number, Size, TimedCases};
use std::collections::{BTreeMap, BTreeSet};
use toml::{Spanned, Value};

/// The cases of the loop, those of the certificate, and those of sanitizers.
pub(super) fn check(
    document: &Document<'_>,
    file: &TaskFile,
    arguments: &[Argument],
) -> Result<[Vec<Case>; 3], TaskError> {
    if file.case.is_empty() {
        let help = "add a [[case]] with a name and a value for each scalar";
        return Err(document.error_at(0..0, "this task has no case to run", help));
    }
    let mut names = BTreeSet::new();
    let mut read = |files: &[CaseFile]| -> Result<Vec<Case>, TaskError> {
        files.iter().map(|case| one(document, file, arguments, case, &mut names)).collect()
    };
    Ok([read(&file.case)?, read(&file.final_case)?, read(&file.sanitizer_case)?])
}

/// Which cases are timed: without a word about it, the largest.
pub(super) fn timed(
    document: &Document<'_>,
    file: Option<&TimingFile>,
    cases: &[Case],
) -> Result<TimedCases, TaskError> {
    match file.and_then(|file| file.cases.as_ref()) {
        None => Ok(TimedCases::Largest),
        Some(which) if which.get_ref() == "largest" => Ok(TimedCases::Largest),
        Some(which) if which.get_ref() == "all" => Ok(TimedCases::All),
        Some(which) if cases.iter().any(|case| case.name == *which.get_ref()) => {
            Ok(TimedCases::Case(which.get_ref().clone()))
        }
        Some(which) => {
            let names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
            let help = format!("expected \"all\", \"largest\" or the name of a [[case]]: {}", names.join(", "));
            document.error(which, "no case has this name", help)
        }
    }
}

fn one(
    document: &Document<'_>,
    file: &TaskFile,
    arguments: &[Argument],
    case: &CaseFile,
    names: &mut BTreeSet<String>,
) -> Result<Case, TaskError> {
    let name = case_name(document, case)?;
    if !names.insert(name.get_ref().clone()) {
        return document.error(&name, "an earlier case has this name", "give each case its own name");
    }
    let scalars = scalars(document, arguments, case, &name)?;
    let case = Case { name: name.get_ref().clone(), scalars };
    check_sizes(document, file, &case)?;
    Ok(case)
}

fn case_name(document: &Document<'_>, case: &CaseFile) -> Result<Spanned<String>, TaskError> {
    let help = "expected name = \"…\": up to 64 characters, and neither \"all\" nor \"largest\", which [timing] uses";
    let Some(value) = case.get_ref().get("name") else {
        return document.error(case, "this case has no name", help);
    };
    match value.get_ref() {
        Value::String(name) if is_case_name(name) => Ok(Spanned::new(value.span(), name.clone())),
        _ => document.error(value, "this cannot be a case's name", help),
    }
}

fn is_case_name(name: &str) -> bool {
    let bare = name.trim() == name && !name.is_empty() && name.chars().count() <= 64;
    bare && !name.chars().any(char::is_control) && name != "all" && name != "largest"
}

fn scalars(
    document: &Document<'_>,
    arguments: &[Argument],
    case: &CaseFile,
    name: &Spanned<String>,
) -> Result<BTreeMap<String, Number>, TaskError> {
    let wanted: Vec<&Argument> = arguments.iter().filter(|argument| argument.kind == ArgumentKind::Scalar).collect();
    let list = wanted.iter().map(|argument| argument.name.as_str()).collect::<Vec<_>>().join(", ");
    let known = |key: &str| key == "name" || wanted.iter().any(|argument| argument.name == key);
    if let Some(unknown) = case.get_ref().keys().find(|key| !known(key.get_ref())) {
        let help = format!("expected a name and the scalar arguments: {list}");
        return document.error(unknown, format!("`{}` is no scalar argument", unknown.get_ref()), help);
    }
    let value = |argument: &&Argument| {
        let Some(value) = case.get_ref().get(argument.name.as_str()) else {
            let help = format!("expected a value for each scalar argument: {list}");
            return document.error(name, format!("this case gives no value for `{}`", argument.name), help);
        };
        Ok((argument.name.clone(), number(document, argument, value)?))
    };
    wanted.iter().map(value).collect()
}

fn number(document: &Document<'_>, argument: &Argument, value: &Spanned<Value>) -> Result<Number, TaskError> {
    let largest = match argument.dtype {
        Dtype::E4m3 => arrays::e4m3::LARGEST,
        Dtype::F16 => 65504.0,
        Dtype::F32 | Dtype::Bf16 => f64::from(f32::MAX),
        _ => f64::MAX,
    };
    let (number, expected) = match (argument.dtype, value.get_ref()) {
        (Dtype::I32, &Value::Integer(i)) if i32::try_from(i).is_ok() => (Some(Number::Integer(i)), ""),
        (Dtype::I64, &Value::Integer(i)) => (Some(Number::Integer(i)), ""),
        (Dtype::I32 | Dtype::I64, _) => (None, "an integer"),
        (_, &Value::Integer(i)) if (i as f64).abs() <= largest => (Some(Number::Float(i as f64)), ""),
        (_, &Value::Float(x)) if x.abs() <= largest => (Some(Number::Float(x)), ""),
        _ => (None, "a finite number"),
    };
    let dtype = format!("{:?}", argument.dtype).to_lowercase();
    number.map_or_else(
        || {
            let what = format!("`{}` cannot have this value", argument.name);
            document.error(value, what, format!("expected {expected} that an {dtype} can hold"))
        },
        Ok,
    )
}

/// Whether every array has a size that can be had, and all of them together.
fn check_sizes(document: &Document<'_>, file: &TaskFile, case: &Case) -> Result<(), TaskError> {
    let mut total: u64 = 0;
    for (argument, size) in file.argument.iter().filter_map(|argument| Some((argument, argument.size.as_ref()?))) {
        let elements = match Size(size.get_ref().clone()).elements(&case.scalars) {
            Ok(0) => Err("it comes out as 0".to_owned()),
            Ok(elements) => Ok(elements),
            Err(error) => Err(error.what),
        };
        let elements = elements.or_else(|why| {
            let help = "expected integers, integer scalars, `+ - * /` and parentheses that come to 1 or more";
            document.error(size, format!("this is no size in case {}: {why}", case.name), help)
        })?;
        let bytes = elements.checked_mul(argument.dtype.bytes() as u64);
        let Some(sum) = bytes.and_then(|bytes| total.checked_add(bytes)).filter(|sum| *sum <= LARGEST_CASE) else {
            let help = format!("expected arrays of at most {} GiB in all", LARGEST_CASE >> 30);
            return document.error(size, format!("case {} is too large", case.name), help);
        };
        total = sum;
    }
    Ok(())
}

/// More than any machine of today holds, in bytes: larger sizes are slips, and would overflow later.
const LARGEST_CASE: u64 = 1 << 46;
