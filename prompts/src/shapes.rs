//! How are test shapes asked for, and how is the answer read? (CudaForge, Appendix B: ten, once a task.)

use crate::{
    Prompt, Prompts, Unreadable,
    reply::read_list,
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
    context! { task => words::task(task), count => count, limit => words::bytes(limit_bytes) }
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
        let size = size(given, argument.dtype).map_err(|why| format!("`{}` is {given}; {why}", argument.name))?;
        scalars.insert(argument.name.clone(), Number::Integer(size));
        sizes.push(size.to_string());
    }
    let fixed = object.iter().filter(|(key, _)| !varying.iter().any(|argument| argument.name == **key));
    for (key, given) in fixed {
        check_fixed(&scalars, key, given)?;
    }
    Ok(Case { name: sizes.join("x"), scalars })
}

fn size(given: &serde_json::Value, dtype: Dtype) -> Result<i64, &'static str> {
    let size = given.as_i64().filter(|size| *size > 0).ok_or("expected a positive integer")?;
    if dtype == Dtype::I32 && i32::try_from(size).is_err() { Err("expected at most 2147483647") } else { Ok(size) }
}

fn check_fixed(scalars: &BTreeMap<String, Number>, key: &str, given: &serde_json::Value) -> Result<(), String> {
    let fixed = match scalars.get(key) {
        None => return Err(format!("`{}` is no scalar argument", words::one_line(key))),
        Some(Number::Integer(value)) => *value as f64,
        Some(Number::Float(value)) => *value,
    };
    #[expect(clippy::float_cmp, reason = "a value that is merely close is another value")]
    if given.as_f64() == Some(fixed) { Ok(()) } else { Err(format!("`{key}` is fixed at {fixed}; leave it out")) }
}
