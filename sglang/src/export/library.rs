//! How does a kernel get in front of an operator that SGLang compiles ahead of time?

use super::{
    Layout,
    interface::{Argument, Certified, Interface, is_name},
    plugin,
    swap::Kernel,
};
use crate::Error;
use minijinja::{Environment, value::Serde};
use serde_json::{Value, json};

/// The library's source.
const TEMPLATE: &str = include_str!("library.cu");
/// Where the stand-ins for torch's headers lie that an extract is compiled with; a library is compiled with torch's own. The
/// one for Python's header stays: nothing here is a module of Python.
const STANDINS: [&str; 4] = ["warpsmith/", "c10/", "torch/", "ATen/"];

/// A folder from which `python3 build.py` makes a library for each kernel.
///
/// # Errors
///
/// If one is compiled at run time, where there is no operator to take the place of.
pub fn library(kernels: &[Kernel]) -> Result<Layout, Error> {
    if let Some(kernel) = kernels.iter().find(|kernel| kernel.is_run_time()) {
        return Err(Error::request(format!(
            "{}: sglang compiles {} at run time, so there is no operator of torch to take the place of: export it --as plugin or patch",
            kernel.operator(),
            kernel.found.origin().file
        )));
    }
    let package = plugin::package(kernels);
    let mut laid = plugin::plugin(kernels)?;
    laid.files.retain(|path, _| path.starts_with(&package));
    laid.file("build.py", include_str!("../../python/build.py").replace("PACKAGE", &package));
    laid.next = vec![
        "python3 build.py                     # builds the libraries with nvcc and torch's headers, and prints where they are".into(),
        "torch.ops.load_library(FILE)         # in the server's process, after `import sgl_kernel`".into(),
        format!("torch.ops.{}.counters()   # hits, then refusals by reason", kernels[0].namespace()),
    ];
    Ok(laid)
}

/// Why a call is left to the original, in the order of the library's counters after the hits.
#[must_use]
pub fn reasons(interface: &Interface) -> Vec<String> {
    let fixed = ["switched off", "device", "dtype", "rank", "layout", "shape", "constraint"].map(str::to_owned);
    let axes = interface.axes().into_iter().map(|axis| format!("axis {axis}"));
    fixed.into_iter().chain(axes).chain(["alignment", "overlap"].map(str::to_owned)).collect()
}

/// Whether this header of an extract stands in for one of torch's.
pub(super) fn is_stand_in(path: &str) -> bool {
    STANDINS.iter().any(|standin| path.starts_with(standin))
}

/// Adds the library's source and the headers that the kernel includes beside torch's.
pub(super) fn sources(kernel: &Kernel, package: &str, laid: &mut Layout) -> Result<(), Error> {
    let source = kernel.source();
    let (folder, file) = source.rsplit_once('/').unwrap_or(("sources", &source));
    for (path, text) in &kernel.found.context().include {
        if !is_stand_in(path) {
            laid.file(format!("{package}/{folder}/include/{path}"), text.clone());
        }
    }
    laid.file(format!("{package}/{folder}/library.cu"), text(kernel, file)?);
    Ok(())
}

fn text(kernel: &Kernel, file: &str) -> Result<String, Error> {
    let interface = &kernel.interface;
    let wrong =
        |why: String| Error::request(format!("{}: a library for it cannot be written: {why}", kernel.operator()));
    let (symbol, schema) =
        arguments(&interface.schema).ok_or_else(|| wrong(format!("its schema is {:?}", interface.schema)))?;
    let order: Vec<&Argument> = schema
        .iter()
        .filter(|argument| argument["type"] == "at::Tensor")
        .map(|argument| interface.arrays().find(|array| argument["name"] == array.name.as_str()))
        .collect::<Option<_>>()
        .ok_or_else(|| wrong("its schema names a tensor that its description lacks".to_owned()))?;
    let tensors: Vec<Value> = order
        .iter()
        .map(
            |array| json!({ "name": array.name, "shape": array.shape, "scalar": scalar(&array.dtype(kernel.dtype())) }),
        )
        .collect();
    let certified = interface.certified(&kernel.found.shapes);
    let axes: Vec<Value> = interface.axes().into_iter().filter_map(|axis| {
        let (array, place) = order.iter().find_map(|array| Some((array, array.shape.iter().position(|size| is_name(size) && size == axis)?)))?;
        Some(json!({ "name": axis, "tensor": array.name, "place": place, "certified": condition(axis, &certified[axis]) }))
    }).collect();
    let reasons: Vec<Value> = reasons(interface)
        .iter()
        .map(|reason| {
            let name = reason
                .strip_prefix("axis ")
                .map_or_else(|| reason.to_uppercase().replace(' ', "_"), |axis| format!("AXIS_{axis}"));
            json!({ "name": name })
        })
        .collect();
    let origin = kernel.found.origin();
    let values = json!({
        "operator": kernel.operator(), "dtype": kernel.dtype(), "schema_name": format!("sgl_kernel::{symbol}"),
        "version": origin.version, "candidate": kernel.found.candidate.as_str(), "symbol": symbol, "file": file,
        "schema": schema, "tensors": tensors, "axes": axes, "reasons": reasons, "constraints": interface.constraints,
        "capability": [kernel.found.capability.0, kernel.found.capability.1], "alignment": kernel.json()["alignment"],
        "namespace": kernel.namespace(),
    });
    Environment::new().render_str(TEMPLATE, Serde(values)).map(|text| text + "\n").map_err(|e| wrong(e.to_string()))
}

/// Name and arguments of a schema, such as `f(Tensor a, Tensor! b, float eps) -> ()`.
fn arguments(schema: &str) -> Option<(&str, Vec<Value>)> {
    let (name, rest) = schema.split_once('(')?;
    let (inside, _) = rest.split_once(')')?;
    let argument = |text: &str| {
        let (kind, name) = text.trim().rsplit_once(' ')?;
        let kind = match kind.trim_end_matches('!') {
            "Tensor" => "at::Tensor",
            "float" => "double",
            "int" => "int64_t",
            "bool" => "bool",
            _ => return None,
        };
        Some(json!({ "type": kind, "name": name }))
    };
    Some((name, inside.split(',').map(argument).collect::<Option<_>>()?))
}

fn scalar(dtype: &str) -> &'static str {
    match dtype {
        "bf16" => "BFloat16",
        "fp16" => "Half",
        "i32" => "Int",
        "i64" => "Long",
        "e4m3" => "Float8_e4m3fn",
        _ => "Float",
    }
}

fn condition(axis: &str, certified: &Certified) -> String {
    match certified {
        Certified::Range(least, most) => format!("{axis} >= {least} && {axis} <= {most}"),
        Certified::Values(values) => {
            let values: Vec<_> = values.iter().map(i64::to_string).collect();
            format!("one_of({axis}, {{{}}})", values.join(", "))
        }
    }
}
