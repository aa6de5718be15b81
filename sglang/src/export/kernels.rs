//! How does a kernel become a repository that Hugging Face's `kernels` loads?

use super::{
    Layout,
    interface::{Argument, Interface},
    plugin, script,
    swap::Kernel,
};
use crate::Error;
use kernelbench::Hash;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// The build for any torch with CUDA: its kernels are compiled at their first call, by who calls them.
const BUILD: &str = "build/torch-cuda";
/// A kernel's text, whatever it was called.
const FILE: &str = "kernel.cu";

/// A repository of these kernels, as it lies on disk.
///
/// # Errors
///
/// If torch has no name for the type of an operator's elements, or they are for GPUs of several kinds.
pub fn kernels(kernels: &[Kernel]) -> Result<Layout, Error> {
    if let Some(other) = kernels.iter().find(|kernel| kernel.found.capability != kernels[0].found.capability) {
        let (operator, dtype) = (other.operator(), other.dtype());
        let why = "it is for another kind of GPU than the first, and a repository loads on each that it names; export it by itself";
        return Err(Error::request(format!("{operator} ({dtype}): {why}")));
    }
    let (name, mut laid) = (plugin::package(kernels), Layout::default());
    for kernel in kernels {
        let folder = module(kernel);
        laid.file(format!("{BUILD}/{folder}/__init__.py"), script::script(kernel, FILE, &[]));
        laid.file(format!("{BUILD}/{folder}/{FILE}"), kernel.found.source.clone());
        for (path, text) in script::headers(kernel) {
            laid.file(format!("{BUILD}/{folder}/include/{path}"), text.clone());
        }
    }
    laid.file(format!("{BUILD}/__init__.py"), front(kernels)?);
    let texts: Vec<&str> = laid.files.values().map(String::as_str).collect();
    let id = format!("_{name}_{}", Hash::of(texts.concat().as_bytes()).short());
    laid.file(format!("{BUILD}/metadata.json"), metadata(&name, &id, kernels));
    laid.file("README.md", readme(&name, kernels));
    laid.notes.push("it was loaded by kernels 0.17.2 without a GPU, and not run with it on one".into());
    laid.notes.push("a kernel is compiled at its first call, with nvcc; the shapes that it was tried on stand in README.md, and calls are checked for their type alone".into());
    laid.next.push(format!(
        "python3 -c 'from pathlib import Path; from kernels import get_local_kernel; print(get_local_kernel(Path(\"DIR\")).{})'",
        kernels.first().map(Kernel::operator).unwrap_or_default()
    ));
    Ok(laid)
}

/// The module of a kernel.
fn module(kernel: &Kernel) -> String {
    format!("{}_{}", kernel.operator(), kernel.dtype())
}

/// The array whose type says which kernel of an operator it is.
fn deciding(interface: &Interface) -> Option<&Argument> {
    interface.arrays().find(|array| array.dtype == "T").or_else(|| interface.arrays().next())
}

/// A function for each operator, which calls the kernel of its deciding array's type.
fn front(kernels: &[Kernel]) -> Result<String, Error> {
    let mut of: BTreeMap<&str, Vec<&Kernel>> = BTreeMap::new();
    for kernel in kernels {
        of.entry(kernel.operator()).or_default().push(kernel);
    }
    let modules: BTreeSet<String> = kernels.iter().map(module).collect();
    let mut text = format!(
        "\"\"\"Kernels of SGLang that warpsmith made faster.\"\"\"\n\nfrom . import {}\n\n\n\
         def _of(kernels, array):\n    kernel = kernels.get(str(array.dtype).removeprefix(\"torch.\"))\n    if kernel is None:\n        \
         raise TypeError(f\"expected an array of {{', '.join(kernels)}}, found {{array.dtype}}\")\n    return kernel\n",
        modules.into_iter().collect::<Vec<_>>().join(", ")
    );
    for (operator, kernels) in of {
        let mut by_type = vec![];
        for kernel in &kernels {
            let dtype = deciding(&kernel.interface).and_then(|array| script::torch_name(&array.dtype(kernel.dtype())));
            let dtype = dtype.ok_or_else(|| {
                Error::request(format!("{operator} ({}): torch has no name for its arrays' type", kernel.dtype()))
            })?;
            by_type.push(format!("\"{dtype}\": {}", module(kernel)));
        }
        let parameters = script::parameters(kernels[0], &[]).join(", ");
        let array = deciding(&kernels[0].interface).map(|array| array.name.as_str()).unwrap_or_default();
        let call = format!("    _of({{{}}}, {array}).run({parameters})\n", by_type.join(", "));
        text.push_str(&["\n\ndef ", operator, "(", &parameters, "):\n", &call].concat());
    }
    Ok(text)
}

fn metadata(name: &str, id: &str, kernels: &[Kernel]) -> String {
    let archs: BTreeSet<String> = kernels
        .iter()
        .map(|kernel| {
            let (major, minor) = kernel.found.capability;
            format!("{major}.{minor}")
        })
        .collect();
    let depends = if kernels.iter().any(Kernel::is_run_time) { vec!["tvm-ffi"] } else { vec![] };
    let said = json!({
        "name": name.replace('_', "-"),
        "id": id,
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": depends,
        "backend": { "type": "cuda", "archs": archs },
    });
    serde_json::to_string_pretty(&said).unwrap_or_default() + "\n"
}

fn readme(name: &str, kernels: &[Kernel]) -> String {
    let line = |kernel: &Kernel| {
        let (origin, certified) = (kernel.found.origin(), kernel.interface.certified(&kernel.found.shapes));
        let axes: Vec<String> = certified.iter().map(|(axis, values)| format!("{axis} {}", values.json())).collect();
        let changed: Vec<&str> = kernel
            .interface
            .arrays()
            .filter(|array| script::is_in_place(array))
            .map(|array| array.name.as_str())
            .collect();
        let changed =
            if changed.is_empty() { String::new() } else { format!("; changes {} in place", changed.join(", ")) };
        format!(
            "* `{}({})` in {}, as `{}` of sglang {}: {}; {}; tried on {}{changed}\n",
            kernel.operator(),
            script::parameters(kernel, &[]).join(", "),
            kernel.dtype(),
            origin.file,
            origin.version,
            kernel.found.summary(),
            kernel.found.gate(),
            axes.join(", "),
        )
    };
    format!(
        "---\nlicense: apache-2.0\ntags:\n- kernels\n---\n\n# {}\n\nKernels of SGLang (Apache-2.0) that warpsmith made faster, for Hugging Face's \
         `kernels`. Each is compiled with nvcc at its first call; arrays are contiguous, and a call is checked for its \
         type alone, not for the shapes that the kernel was tried on.\n\n{}",
        name.replace('_', "-"),
        kernels.iter().map(line).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_kernel_it_is_says_an_array_of_the_operators_type_and_not_one_that_is_always_the_same() {
        for operator in ["per_token_quant_fp8", "per_token_group_quant", "silu_and_mul", "merge_attn_states"] {
            let interface = Interface::of(operator).expect("an operator");
            assert_eq!(deciding(&interface).expect("an array").dtype, "T", "{operator}");
        }
    }
}
