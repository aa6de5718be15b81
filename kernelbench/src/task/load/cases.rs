//! Does each case say all that a call needs?

use super::{
    Document, TaskError,
    file::{CaseFile, TaskFile, TimingFile},
};
use crate::task::{Argument, ArgumentKind, Case, Dtype, Number, Size, TimedCases, space};
use minijinja::{Environment, Expression};
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
    check_valid_args(document, file, arguments)?;
    let mut names = BTreeSet::new();
    let mut read = |files: &[CaseFile]| -> Result<Vec<Case>, TaskError> {
        let read: Vec<Vec<Case>> =
            files.iter().map(|case| some(document, file, arguments, case, &mut names)).collect::<Result<_, _>>()?;
        Ok(read.concat())
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

/// The cases that one entry stands for: a list of values for a scalar makes one for each, of several lists one for each
/// combination, and those that the task's `valid_args` does not hold for are left out.
fn some(
    document: &Document<'_>,
    file: &TaskFile,
    arguments: &[Argument],
    entry: &CaseFile,
    names: &mut BTreeSet<String>,
) -> Result<Vec<Case>, TaskError> {
    let name = case_name(document, entry)?;
    let mut cases = vec![Case { name: name.get_ref().clone(), scalars: BTreeMap::new() }];
    let mut is_one = true;
    for (argument, values) in scalars(document, arguments, entry, &name)? {
        is_one &= values.is_one;
        let with = |case: &Case| {
            let (case, argument) = (case.clone(), argument.clone());
            values.numbers.clone().into_iter().map(move |number| {
                let mut case = case.clone();
                if !values.is_one {
                    let value = match number {
                        Number::Integer(value) => value.to_string(),
                        Number::Float(value) => value.to_string(),
                    };
                    case.name.extend(["-", &value]);
                }
                case.scalars.insert(argument.clone(), number);
                case
            })
        };
        cases = cases.iter().flat_map(with).take(MOST_CASES + 1).collect();
        if cases.len() > MOST_CASES {
            let help = format!("expected lists that come to at most {MOST_CASES} cases");
            return document.error(&name, "these lists make too many cases", help);
        }
    }
    if let Some(text) = &file.valid_args {
        let mut valid = vec![];
        for case in cases {
            if args_are_valid(text.get_ref(), &case.scalars).or_else(|why| {
                let help = "expected an expression of the whole-numbered scalars, such as n % 16 == 0";
                document.error(text, format!("this cannot be evaluated for the case {}: {why}", case.name), help)
            })? {
                valid.push(case);
            }
        }
        cases = valid;
    }
    if cases.is_empty() {
        let what = if is_one { "this case breaks the task's valid_args" } else { "valid_args holds for none of these" };
        return document.error(&name, what, "expected scalars for which valid_args holds");
    }
    for case in &cases {
        if !is_case_name(&case.name) {
            return document.error(&name, "with its values this name is too long", "expected at most 64 characters");
        }
        if !names.insert(case.name.clone()) {
            return document.error(&name, "an earlier case has this name", "give each case its own name");
        }
        check_sizes(document, file, case)?;
    }
    Ok(cases)
}

/// The most cases that one entry may stand for.
const MOST_CASES: usize = 64;

/// The values of a scalar, and whether it is one that was given alone.
struct Values {
    numbers: Vec<Number>,
    is_one: bool,
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
) -> Result<Vec<(String, Values)>, TaskError> {
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
        Ok((argument.name.clone(), values(document, argument, value)?))
    };
    wanted.iter().map(value).collect()
}

/// One value, a list of them, or a list in words: `[2**i for i in 5..=10]`.
fn values(document: &Document<'_>, argument: &Argument, value: &Spanned<Value>) -> Result<Values, TaskError> {
    let listed = match value.get_ref() {
        Value::Array(items) => items.clone(),
        Value::String(text) => counted(text).or_else(|why| {
            let help = "expected a number, a list of numbers, or a list in words: \"[2**i for i in 5..=10]\"";
            document.error(value, format!("`{}` cannot have this value: {why}", argument.name), help)
        })?,
        _ => return Ok(Values { numbers: vec![number(document, argument, value)?], is_one: true }),
    };
    if listed.is_empty() || listed.len() > MOST_CASES {
        let help = format!("expected 1 to {MOST_CASES} numbers");
        return document.error(value, format!("this list holds {}", listed.len()), help);
    }
    let each = listed.into_iter().map(|item| number(document, argument, &Spanned::new(value.span(), item)));
    Ok(Values { numbers: each.collect::<Result<_, _>>()?, is_one: false })
}

/// The numbers of a list in words.
fn counted(text: &str) -> Result<Vec<Value>, String> {
    let inner = text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let parts = inner.and_then(|text| {
        let (of, rest) = text.split_once(" for ")?;
        let (name, range) = rest.split_once(" in ")?;
        let (first, last) = range.split_once("..")?;
        Some((of.trim(), name.trim(), first.trim(), last.trim()))
    });
    let (of, name, first, last) = parts.ok_or("it is no list in words")?;
    let whole = |text: &str| text.parse::<i64>().map_err(|_| format!("`{text}` is no whole number"));
    let first = whole(first)?;
    // Behind the last, in more bits than a range's ends have.
    let end = match last.strip_prefix('=') {
        Some(last) => i128::from(whole(last)?) + 1,
        None => i128::from(whole(last)?),
    };
    if end - i128::from(first) > MOST_CASES as i128 {
        return Err(format!("it counts beyond {MOST_CASES}"));
    }
    let environment = space::environment();
    let of = arithmetic(&environment, of)?;
    let count = |i: i128| {
        let found = of.eval(BTreeMap::from([(name, i)])).map_err(|error| space::said(&error))?;
        let whole = i64::try_from(found).map_err(|_| format!("at {name} = {i} it comes to no whole number"));
        Ok(Value::Integer(whole?))
    };
    (i128::from(first)..end).map(count).collect()
}

/// An expression of numbers and names. Whatever else minijinja knows, lists and functions, can take long.
fn arithmetic<'a>(environment: &'a Environment<'_>, text: &'a str) -> Result<Expression<'a, 'a>, String> {
    let stranger = text.chars().find(|c| !(c.is_ascii_alphanumeric() || " _+-*/%().<>=!".contains(*c)));
    if let Some(stranger) = stranger {
        return Err(format!("`{stranger}` stands in it; expected numbers, names, operators and parentheses"));
    }
    environment.compile_expression(text).map_err(|error| space::said(&error))
}

/// Whether a task's `valid_args` is an expression of whole-numbered scalars.
fn check_valid_args(document: &Document<'_>, file: &TaskFile, arguments: &[Argument]) -> Result<(), TaskError> {
    let Some(text) = &file.valid_args else { return Ok(()) };
    let is_whole = |argument: &&Argument| {
        argument.kind == ArgumentKind::Scalar && matches!(argument.dtype, Dtype::I32 | Dtype::I64)
    };
    let known: Vec<&str> = arguments.iter().filter(is_whole).map(|argument| argument.name.as_str()).collect();
    let environment = space::environment();
    let read = arithmetic(&environment, text.get_ref()).map(|expression| expression.undeclared_variables(false));
    let why = match read {
        Err(why) => Some(why),
        Ok(names) => names.iter().find(|name| !known.contains(&name.as_str())).map(|name| format!("it names `{name}`")),
    };
    let help =
        format!("expected an expression of the whole-numbered scalars ({}), such as n % 16 == 0", known.join(", "));
    why.map_or(Ok(()), |why| document.error(text, format!("valid_args cannot be evaluated: {why}"), help))
}

/// Whether an expression of whole-numbered scalars holds.
///
/// # Errors
/// In words, where it cannot be evaluated.
pub fn args_are_valid(text: &str, scalars: &BTreeMap<String, Number>) -> Result<bool, String> {
    let whole = scalars.iter().filter_map(|(name, number)| match number {
        Number::Integer(value) => Some((name.as_str(), *value)),
        Number::Float(_) => None,
    });
    let environment = space::environment();
    let expression = arithmetic(&environment, text)?;
    let held = expression.eval(whole.collect::<BTreeMap<_, _>>()).map_err(|error| space::said(&error))?;
    Ok(held.is_true())
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
