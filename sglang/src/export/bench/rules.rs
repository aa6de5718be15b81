//! Does a definition or a solution keep FlashInfer-Bench's rules?
//!
//! The rules are those of its data classes: required fields, known types, axes that are defined, no name that is input and
//! output at once, a reference with a function `run`, an entry point in one of the sources, paths that stay inside.

use serde_json::{Map, Value};

const DTYPES: [&str; 11] = [
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float4_e2m1",
    "int64",
    "int32",
    "int16",
    "int8",
    "bool",
];
const LANGUAGES: [&str; 5] = ["python", "triton", "cpp", "cuda", "tilelang"];

/// Whether this is a definition.
pub(super) fn definition(definition: &Value) -> Result<(), String> {
    for field in ["name", "op_type", "reference"] {
        text(definition, field)?;
    }
    let axes = table(definition, "axes")?;
    for (name, axis) in axes {
        match (axis["type"].as_str(), axis["value"].as_u64()) {
            (Some("const"), Some(_)) | (Some("var"), None) => {}
            _ => return Err(format!("axis {name} is neither a constant with a value from 0 nor a variable")),
        }
    }
    let (inputs, outputs) = (table(definition, "inputs")?, table(definition, "outputs")?);
    if let Some(name) = inputs.keys().find(|name| outputs.contains_key(*name)) {
        return Err(format!("{name} is an input and an output"));
    }
    for (name, spec) in inputs.iter().chain(outputs) {
        tensor(name, spec, axes)?;
    }
    let reference = text(definition, "reference")?;
    if reference.lines().any(|line| line.starts_with("def run(")) {
        Ok(())
    } else {
        Err("its reference has no function run at its top".into())
    }
}

fn tensor(name: &str, spec: &Value, axes: &Map<String, Value>) -> Result<(), String> {
    if !spec["dtype"].as_str().is_some_and(|dtype| DTYPES.contains(&dtype)) {
        return Err(format!("{name} has a type that it does not know: {}", spec["dtype"]));
    }
    let sizes = match &spec["shape"] {
        Value::Null => return Ok(()),
        Value::Array(sizes) => sizes,
        other => return Err(format!("the shape of {name} is neither null nor a list: {other}")),
    };
    match sizes.iter().find(|size| !size.as_str().is_some_and(|axis| axes.contains_key(axis))) {
        Some(size) => Err(format!("{name} has a size that is no axis: {size}")),
        None => Ok(()),
    }
}

/// Whether this is a solution to that definition.
pub(super) fn solution(solution: &Value, definition: &Value) -> Result<(), String> {
    for field in ["name", "definition", "author"] {
        text(solution, field)?;
    }
    if solution["definition"] != definition["name"] {
        return Err("the solution is to another definition".into());
    }
    let spec = &solution["spec"];
    if !spec["language"].as_str().is_some_and(|language| LANGUAGES.contains(&language)) {
        return Err(format!("{} is no language of it", spec["language"]));
    }
    if spec["target_hardware"].as_array().is_none_or(Vec::is_empty) {
        return Err("no target hardware is named".into());
    }
    let sources = solution["sources"].as_array().filter(|sources| !sources.is_empty()).ok_or("there are no sources")?;
    let mut paths = vec![];
    for source in sources {
        let path = text(source, "path")?;
        text(source, "content")?;
        let inside = !path.starts_with('/') && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !inside || paths.contains(&path) {
            return Err(format!("the path {path} leaves the folder or is there twice"));
        }
        paths.push(path);
    }
    match text(spec, "entry_point")?.split_once("::") {
        Some((file, symbol)) if paths.contains(&file) && !symbol.is_empty() => Ok(()),
        _ => Err("its entry point is in none of the sources".into()),
    }
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str, String> {
    value[field]
        .as_str()
        .filter(|text| !text.is_empty())
        .ok_or_else(|| format!("the field {field} is not there or empty"))
}

fn table<'a>(value: &'a Value, field: &str) -> Result<&'a Map<String, Value>, String> {
    value[field].as_object().ok_or_else(|| format!("the field {field} is no table"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn good() -> Value {
        json!({
            "name": "f", "op_type": "f", "reference": "def run(x):\n    return x\n",
            "axes": { "n": { "type": "var" }, "d": { "type": "const", "value": 8 } },
            "inputs": { "x": { "shape": ["n", "d"], "dtype": "bfloat16" }, "eps": { "shape": null, "dtype": "float32" } },
            "outputs": { "y": { "shape": ["n", "d"], "dtype": "bfloat16" } },
        })
    }

    #[test]
    fn a_definition_that_breaks_a_rule_is_named() {
        assert_eq!(definition(&good()), Ok(()));
        let broken = |change: fn(&mut Value)| {
            let mut value = good();
            change(&mut value);
            definition(&value).unwrap_err()
        };
        assert!(broken(|v| v["outputs"]["x"] = v["outputs"]["y"].clone()).contains("input and an output"));
        assert!(broken(|v| v["inputs"]["x"]["shape"][0] = "m".into()).contains("no axis"));
        assert!(broken(|v| v["inputs"]["x"]["dtype"] = "half".into()).contains("does not know"));
        assert!(broken(|v| v["reference"] = "def go(): pass".into()).contains("no function run"));
        assert!(broken(|v| v["axes"]["d"] = json!({ "type": "const" })).contains("axis d"));
    }

    #[test]
    fn a_solution_that_breaks_a_rule_is_named() {
        let solution_json = json!({
            "name": "s", "definition": "f", "author": "a",
            "spec": { "language": "python", "target_hardware": ["H200"], "entry_point": "main.py::run" },
            "sources": [{ "path": "main.py", "content": "x" }],
        });
        assert_eq!(solution(&solution_json, &good()), Ok(()));
        let broken = |change: fn(&mut Value)| {
            let mut value = solution_json.clone();
            change(&mut value);
            solution(&value, &good()).unwrap_err()
        };
        assert!(broken(|v| v["sources"][0]["path"] = "../main.py".into()).contains("leaves the folder"));
        assert!(broken(|v| v["spec"]["entry_point"] = "other.py::run".into()).contains("entry point"));
        assert!(broken(|v| v["definition"] = "g".into()).contains("another definition"));
        assert!(broken(|v| v["spec"]["target_hardware"] = json!([])).contains("hardware"));
    }
}
