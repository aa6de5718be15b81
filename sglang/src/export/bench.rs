//! How does a kernel become a solution in FlashInfer-Bench's format?

mod rules;

use super::{
    Layout,
    interface::{Argument, Certified, is_name},
    script,
    swap::Kernel,
};
use crate::Error;
use kernelbench::{Case, Hash, Number};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Definitions, solutions and workloads, in the folders of a FlashInfer-Bench data set. One definition for each set of
/// constant sizes, since theirs have such.
///
/// # Errors
///
/// If an operator cannot be said in their format, or what was made breaks one of their rules.
pub fn bench(kernels: &[Kernel]) -> Result<Layout, Error> {
    let mut laid = Layout::default();
    for kernel in kernels {
        for sizes in constant(kernel) {
            let names = Names::of(kernel, &sizes);
            let (definition, solution) = (definition(kernel, &sizes, &names)?, solution(kernel, &names));
            rules::definition(&definition).and_then(|()| rules::solution(&solution, &definition)).map_err(|why| {
                Error::request(format!("{}: it cannot be said in FlashInfer-Bench's format: {why}", kernel.operator()))
            })?;
            let operator = kernel.operator();
            laid.file(format!("definitions/{operator}/{}.json", names.definition), pretty(&definition));
            laid.file(format!("solutions/{operator}/{}/{}.json", names.definition, names.solution), pretty(&solution));
            laid.file(format!("workloads/{operator}/{}.jsonl", names.definition), workloads(kernel, &sizes, &names));
        }
        laid.notes.extend(warnings(kernel));
    }
    let said =
        kernels.iter().map(|kernel| format!("{} ({}): {}", kernel.operator(), kernel.dtype(), description(kernel)));
    let lines: Vec<_> = said.chain(laid.notes.clone()).map(|line| format!("* {line}\n")).collect();
    laid.file("README.md", format!("# For FlashInfer-Bench\n\n{}", lines.concat()));
    laid.next.push("FIB_DATASET_PATH=DIR flashinfer-bench run --local DIR".into());
    Ok(laid)
}

/// What is claimed of it, and how far that is to be believed.
fn description(kernel: &Kernel) -> String {
    format!("{}; {}", kernel.found.summary(), kernel.found.gate())
}

/// What the format loses.
fn warnings(kernel: &Kernel) -> Vec<String> {
    let mut said = vec![];
    if kernel.interface.arrays().any(script::is_in_place) {
        said.push(format!(
            "{}: the operator changes its arguments in place, which the format cannot say: the solution copies them first and writes the copies, which costs time that the operator does not take",
            kernel.operator()
        ));
    }
    if kernel.operator() == "fused_add_rmsnorm" {
        said.push(
            "fused_add_rmsnorm: do not substitute it through flashinfer_bench.apply: its adapter drops eps, so a model with another eps than the solution's gets wrong numbers without a word, and it returns a value where SGLang expects its arguments changed in place. These definitions have names and an input eps of their own, so that the adapter does not find them".to_owned(),
        );
    }
    said.push(format!(
        "{}: FlashInfer-Bench passes an element that is within either of its tolerances, and reports the speedup over the PyTorch reference, not over SGLang's kernel; the certificate's figure is over SGLang's",
        kernel.operator()
    ));
    said
}

/// Names of one definition and of the solution to it.
struct Names {
    definition: String,
    solution: String,
}

impl Names {
    fn of(kernel: &Kernel, sizes: &BTreeMap<String, i64>) -> Self {
        let sizes = sizes.iter().map(|(name, value)| format!("_{name}{value}")).collect::<Vec<_>>().concat();
        let definition = format!("{}{sizes}_{}", kernel.operator(), kernel.dtype());
        let solution = format!("warpsmith_{definition}_{}", &kernel.found.candidate.as_str()[..12]);
        Self { definition, solution }
    }
}

/// The sets of constant sizes that were certified.
fn constant(kernel: &Kernel) -> Vec<BTreeMap<String, i64>> {
    let certified = kernel.interface.certified(&kernel.found.shapes);
    let fixed = |(axis, values): (&String, &Certified)| match values {
        Certified::Values(values) => Some((axis.clone(), values.clone())),
        Certified::Range(..) => None,
    };
    certified.iter().filter_map(fixed).fold(vec![BTreeMap::new()], |sets, (axis, values)| {
        let with = |set: &BTreeMap<String, i64>, value: i64| {
            let mut set = set.clone();
            set.insert(axis.clone(), value);
            set
        };
        sets.iter().flat_map(|set| values.iter().map(move |value| with(set, *value))).collect()
    })
}

fn definition(kernel: &Kernel, sizes: &BTreeMap<String, i64>, names: &Names) -> Result<Value, Error> {
    let interface = &kernel.interface;
    if interface.entry.reference.is_empty() {
        let why = "there is no reference in PyTorch for it here, which the format asks for";
        return Err(Error::request(format!("{}: {why}; export it --as plugin or patch", kernel.operator())));
    }
    let mut axes = Map::new();
    for axis in interface.axes() {
        let axis_json = sizes
            .get(axis)
            .map_or_else(|| json!({ "type": "var" }), |value| json!({ "type": "const", "value": value }));
        axes.insert(axis.to_owned(), axis_json);
    }
    let (mut inputs, mut outputs) = (Map::new(), Map::new());
    let sizes_by_name = interface.axes();
    for argument in interface.argument.iter().filter(|argument| !sizes_by_name.contains(&argument.name.as_str())) {
        let spec = tensor(argument, kernel.dtype(), sizes, &mut axes).ok_or_else(|| {
            Error::request(format!(
                "{}: the sizes of {} cannot be said in FlashInfer-Bench's format",
                kernel.operator(),
                argument.name
            ))
        })?;
        match argument.transfer.as_deref() {
            Some("out") => drop(outputs.insert(argument.name.clone(), spec)),
            Some("in-out") => {
                outputs.insert(format!("{}_out", argument.name), spec.clone());
                inputs.insert(argument.name.clone(), spec);
            }
            _ => drop(inputs.insert(argument.name.clone(), spec)),
        }
    }
    Ok(json!({
        "name": names.definition,
        "op_type": kernel.operator(),
        "description": format!("{} of sglang {}", kernel.operator(), kernel.found.origin().version),
        "tags": ["framework:sglang", "status:unverified"],
        "axes": axes,
        "constraints": [],
        "inputs": inputs,
        "outputs": outputs,
        "reference": interface.entry.reference.trim_start(),
    }))
}

/// A tensor's specification; a size that is an expression of constants becomes a constant axis of its own.
fn tensor(
    argument: &Argument,
    dtype: &str,
    sizes: &BTreeMap<String, i64>,
    axes: &mut Map<String, Value>,
) -> Option<Value> {
    let dtype = script::torch_name(&argument.dtype(dtype))?;
    if !argument.is_array() {
        return Some(json!({ "shape": null, "dtype": dtype }));
    }
    let mut shape = vec![];
    for size in &argument.shape {
        if is_name(size) {
            shape.push(size.clone());
            continue;
        }
        let scalars = sizes.iter().map(|(name, value)| (name.clone(), Number::Integer(*value))).collect();
        let value = kernelbench::Size(size.clone()).elements(&scalars).ok()?;
        let name: String = size.chars().filter(|c| c.is_alphanumeric() || *c == '_').collect();
        let name = format!("size_{name}");
        axes.insert(name.clone(), json!({ "type": "const", "value": value }));
        shape.push(name);
    }
    Some(json!({ "shape": shape, "dtype": dtype }))
}

fn solution(kernel: &Kernel, names: &Names) -> Value {
    let source = kernel.source();
    let file = source.rsplit('/').next().unwrap_or("kernel.cu");
    // They ask for outputs that are no inputs.
    let copied: Vec<String> =
        kernel.interface.arrays().filter(|array| script::is_in_place(array)).map(|array| array.name.clone()).collect();
    let mut sources = vec![
        json!({ "path": "main.py", "content": script::script(kernel, file, &copied) }),
        json!({ "path": file, "content": kernel.found.source }),
    ];
    let include = script::headers(kernel);
    sources.extend(include.map(|(path, text)| json!({ "path": format!("include/{path}"), "content": text })));
    json!({
        "name": names.solution,
        "definition": names.definition,
        "author": "warpsmith",
        "description": description(kernel),
        "spec": {
            "language": "python",
            "target_hardware": [kernel.found.machine],
            "entry_point": "main.py::run",
            "dependencies": if kernel.is_run_time() { vec!["apache-tvm-ffi"] } else { vec!["torch"] },
            "destination_passing_style": true,
        },
        "sources": sources,
    })
}

/// A line for each certified shape with these constants.
fn workloads(kernel: &Kernel, sizes: &BTreeMap<String, i64>, names: &Names) -> String {
    let has = |case: &&Case| sizes.iter().all(|(axis, value)| case.scalars.get(axis) == Some(&Number::Integer(*value)));
    let axes = kernel.interface.axes();
    let lines = kernel.found.shapes.iter().filter(has).map(|case| {
        let of_axis = |axis: &&str| (!sizes.contains_key(*axis)).then(|| Some(((*axis).to_owned(), json!(case.scalars.get(*axis)?)))).flatten();
        let variable: Map<String, Value> = axes.iter().filter_map(of_axis).collect();
        let mut inputs = Map::new();
        for argument in &kernel.interface.argument {
            if argument.is_array() && argument.transfer.as_deref() != Some("out") {
                inputs.insert(argument.name.clone(), json!({ "type": "random" }));
            } else if !argument.is_array() && !axes.contains(&argument.name.as_str()) {
                let value = case.scalars.get(&argument.name);
                inputs.insert(argument.name.clone(), json!({ "type": "scalar", "value": value }));
            }
        }
        let content = json!({ "axes": variable, "inputs": inputs });
        let uuid = uuid(&format!("{}{content}", names.definition));
        json!({ "definition": names.definition, "workload": { "uuid": uuid, "axes": variable, "inputs": inputs }, "solution": null, "evaluation": null }).to_string() + "\n"
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines.dedup();
    lines.concat()
}

/// The same for the same content.
fn uuid(text: &str) -> String {
    let hash = Hash::of(text.as_bytes());
    let hex = hash.as_str();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32])
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
