//! How are test shapes asked for, and how is the answer read? (CudaForge, Appendix B: ten, once a task.)

use crate::{
    Prompt, Prompts, Unreadable,
    reply::{quoted, read_list},
    words::{self, scalars_that_vary},
};
use kernelbench::{Case, Dtype, Number, Task};
use minijinja::{Value, context};
use std::collections::BTreeMap;

/// Shapes that are read from one reply at most.
const MOST: usize = 100;

impl Prompts {
    /// Tester: `count` diverse shapes whose arrays, all together, stay below `limit_bytes`.
    #[must_use]
    pub fn shapes(&self, task: &Task, count: usize, limit_bytes: u64) -> Prompt {
        self.page("shapes", &values(task, count, limit_bytes))
    }
}

pub(crate) fn values(task: &Task, count: usize, limit_bytes: u64) -> Value {
    context! { task => words::task(task), count => count, limit => words::bytes(limit_bytes), valid => task.valid_args.clone() }
}

/// Reads the proposed shapes as cases of the task, without duplicates, named like "16x4096". Whether they fit into
/// memory is not looked at here.
///
/// # Errors
/// Where the reply is not one JSON object `{"shapes": [...]}` whose items give a positive integer to exactly the scalars
/// that vary. A scalar that does not vary may be repeated with its own value.
pub fn read_shapes(reply: &str, task: &Task) -> Result<Vec<Case>, Unreadable> {
    let list = read_list(reply, "shapes")?;
    if list.is_empty() || list.len() > MOST {
        return Err(Unreadable(format!("it holds {} shapes; expected 1 to {MOST}", list.len())));
    }
    let mut cases: Vec<Case> = Vec::new();
    for (i, value) in list.iter().enumerate() {
        let case = case(value, task).map_err(|why| Unreadable(format!("shape {}: {why}", i + 1)))?;
        if !cases.iter().any(|other| other.name == case.name) {
            cases.push(case);
        }
    }
    Ok(cases)
}

fn case(value: &serde_json::Value, task: &Task) -> Result<Case, String> {
    let object = value.as_object().ok_or("it is no JSON object")?;
    let varying = scalars_that_vary(task);
    let mut scalars = task.cases.first().map(|case| case.scalars.clone()).unwrap_or_default();
    let mut sizes = Vec::new();
    for argument in &varying {
        let given = object.get(&argument.name).ok_or_else(|| format!("`{}` is missing", argument.name))?;
        let size = size(given, argument.dtype)
            .map_err(|why| format!("`{}` is {}; {why}", argument.name, quoted(&given.to_string())))?;
        scalars.insert(argument.name.clone(), Number::Integer(size));
        sizes.push(size.to_string());
    }
    let fixed = object.iter().filter(|(key, _)| !varying.iter().any(|argument| argument.name == **key));
    for (key, given) in fixed {
        check_fixed(&scalars, key, given)?;
    }
    if let Some(text) = &task.valid_args
        && !kernelbench::load::args_are_valid(text, &scalars).map_err(|why| format!("{text}: {why}"))?
    {
        return Err(format!("the task wants {text}"));
    }
    Ok(Case { name: sizes.join("x"), scalars })
}

fn size(given: &serde_json::Value, dtype: Dtype) -> Result<i64, &'static str> {
    let size = given.as_i64().filter(|size| *size > 0).ok_or("expected a positive integer")?;
    if dtype == Dtype::I32 && i32::try_from(size).is_err() { Err("expected at most 2147483647") } else { Ok(size) }
}

fn check_fixed(scalars: &BTreeMap<String, Number>, key: &str, given: &serde_json::Value) -> Result<(), String> {
    let fixed = match scalars.get(key) {
        None => return Err(format!("`{}` is no scalar argument", quoted(key))),
        Some(Number::Integer(value)) => *value as f64,
        Some(Number::Float(value)) => *value,
    };
    if given.as_f64() == Some(fixed) { Ok(()) } else { Err(format!("`{key}` is fixed at {fixed}; leave it out")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn shapes_become_cases_of_the_task_without_duplicates() {
        let reply = r#"{"shapes": [{"rows": 8, "columns": 512}, {"columns": 512, "rows": 8, "factor": 0.5}, {"rows": 7, "columns": 3}]}"#;
        let cases = read_shapes(reply, &example::task()).unwrap();
        assert_eq!(cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>(), ["8x512", "7x3"]);
        assert_eq!(cases[1].scalars["columns"], Number::Integer(3));
        assert_eq!(cases[1].scalars["factor"], Number::Float(0.5));
    }

    #[test]
    fn a_shape_that_the_task_s_valid_args_does_not_hold_for_is_refused() {
        let mut task = example::task();
        task.valid_args = Some("columns % 8 == 0".to_owned());
        let read =
            |columns: u32| read_shapes(&format!(r#"{{"shapes": [{{"rows": 8, "columns": {columns}}}]}}"#), &task);
        assert_eq!(read(16).unwrap().len(), 1);
        assert!(read(12).unwrap_err().0.contains("shape 1: the task wants columns % 8 == 0"));
        let page = crate::Prompts::embedded().shapes(&task, 3, 1 << 20);
        assert!(format!("{page:?}").contains("For each shape `columns % 8 == 0` holds."), "{page:?}");
    }

    #[test]
    fn where_the_task_has_one_case_every_integer_makes_the_shape() {
        let mut task = example::task();
        task.cases.truncate(1);
        assert_eq!(read_shapes(r#"{"shapes": [{"rows": 8, "columns": 512}]}"#, &task).unwrap()[0].name, "8x512");
    }

    #[test]
    fn what_are_no_shapes_is_refused_with_its_reason() {
        let cases = [
            (r#"{"shapes": []}"#, "holds 0 shapes"),
            (r#"{"shapes": [{"rows": 8, "columns": 1}, {"rows": 8}]}"#, "shape 2: `columns` is missing"),
            (r#"{"shapes": [{"rows": 0, "columns": 1}]}"#, "shape 1: `rows` is 0; expected a positive integer"),
            (r#"{"shapes": [{"rows": 1.5, "columns": 1}]}"#, "`rows` is 1.5; expected a positive integer"),
            (r#"{"shapes": [{"rows": "8", "columns": 1}]}"#, "expected a positive integer"),
            (r#"{"shapes": [{"rows": 8, "columns": 1, "factor": 2}]}"#, "`factor` is fixed at 0.5; leave it out"),
            (r#"{"shapes": [{"rows": 8, "columns": 1, "depth": 2}]}"#, "`depth` is no scalar argument"),
            (r#"{"shapes": [[8, 1]]}"#, "shape 1: it is no JSON object"),
        ];
        for (reply, reason) in cases {
            let why = read_shapes(reply, &example::task()).unwrap_err().0;
            assert!(why.contains(reason), "{reply:?}: {why}");
        }
    }
}
