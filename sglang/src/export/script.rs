//! How is a kernel called from Python, without SGLang around it? A module that compiles it at its first call.

use super::{interface::Argument, library, swap::Kernel};
use serde_json::json;

/// torch's name of a type of elements; `None` where it has none.
pub(super) fn torch_name(dtype: &str) -> Option<&'static str> {
    Some(match dtype {
        "bf16" => "bfloat16",
        "fp16" => "float16",
        "f32" => "float32",
        "i32" => "int32",
        "i64" => "int64",
        "e4m3" => "float8_e4m3fn",
        _ => return None,
    })
}

/// The headers that a kernel's text needs beside those of tvm-ffi and torch: path and text.
pub(super) fn headers(kernel: &Kernel) -> impl Iterator<Item = (&String, &String)> {
    let own = |path: &str| !library::is_stand_in(path) && !path.starts_with("tvm/") && !path.starts_with("dlpack/");
    kernel.found.context().include.iter().filter(move |(path, _)| own(path))
}

/// The parameters of `run`: what is read or changed in place, then what is written, and the copies of those that are `copied`
/// before they are changed, which are parameters of their own.
pub(super) fn parameters(kernel: &Kernel, copied: &[String]) -> Vec<String> {
    let axes = kernel.interface.axes();
    let named = |argument: &&Argument| !axes.contains(&argument.name.as_str());
    let all = || kernel.interface.argument.iter().filter(named);
    let inputs = all().filter(|a| a.transfer.as_deref() != Some("out")).map(|a| a.name.clone());
    let outputs = all().filter(|a| a.is_array()).filter_map(|a| match a.transfer.as_deref() {
        Some("out") => Some(a.name.clone()),
        _ => copied.contains(&a.name).then(|| format!("{}_out", a.name)),
    });
    inputs.chain(outputs).collect()
}

/// Whether an operator changes this argument in place.
pub(super) fn is_in_place(argument: &Argument) -> bool {
    argument.transfer.as_deref() == Some("in-out")
}

/// A module in Python that compiles a kernel at its first call, whose text lies beside it as `file` with its headers in
/// `include`, and calls it: `run`. It is in Python, since SGLang's headers need flags of their own.
pub(super) fn script(kernel: &Kernel, file: &str, copied: &[String]) -> String {
    let parameters = parameters(kernel, copied);
    let first = copied.iter().map(|name| format!("    {name}_out.copy_({name})\n")).collect::<Vec<_>>().concat();
    let is_copied = |name: &str| copied.iter().any(|copied| copied == name);
    let pass = |name: &str| if is_copied(name) { format!("{name}_out") } else { name.replace('\'', "\"") };
    let (load, passed) = if kernel.is_run_time() { run_time(kernel, file) } else { ahead(kernel, file) };
    let passed: Vec<_> = passed.iter().map(|name| pass(name)).collect();
    // What a record says of its machine is no text of ours: as a literal it stays one.
    let about = json!(format!("{}, as warpsmith made it: {}", kernel.operator(), kernel.found.summary()));
    format!(
        "{about}\n\nimport functools\nimport pathlib\n\nHERE = pathlib.Path(__file__).parent\n\n\n\
         @functools.cache\ndef kernel():\n{load}\n\ndef run({}):\n{first}    kernel()({})\n",
        parameters.join(", "),
        passed.join(", ")
    )
}

fn run_time(kernel: &Kernel, file: &str) -> (String, Vec<String>) {
    let exported = kernel.json()["exported"].as_str().unwrap_or_default().to_owned();
    let load = format!(
        "    from tvm_ffi.cpp import load_inline\n\n    sources = [\n        f'#include \"{{HERE / \"{file}\"}}\"',\n        'TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, ({exported}));',\n    ]\n    module = load_inline(\n        \"{}\",\n        cuda_sources=sources,\n        extra_cuda_cflags={},\n        extra_include_paths=[str(HERE / \"include\")],\n    )\n    return module.run\n",
        name(kernel),
        json!(kernel.interface.flags)
    );
    (load, kernel.interface.entry.passed.clone())
}

fn ahead(kernel: &Kernel, file: &str) -> (String, Vec<String>) {
    let schema = &kernel.interface.schema;
    let (symbol, rest) = schema.split_once('(').unwrap_or((schema, ""));
    let names: Vec<_> = rest
        .split(')')
        .next()
        .unwrap_or_default()
        .split(',')
        .filter_map(|part| part.trim().rsplit(' ').next())
        .map(str::to_owned)
        .collect();
    let declared: Vec<_> = names.iter().map(|name| format!("at::Tensor {name}")).collect();
    let load = format!(
        "    from torch.utils.cpp_extension import load_inline\n\n    module = load_inline(\n        \"{}\",\n        cpp_sources=[\"void {symbol}({});\"],\n        cuda_sources=[f'#include \"{{HERE / \"{file}\"}}\"'],\n        functions=[\"{symbol}\"],\n        extra_cuda_cflags={},\n        extra_include_paths=[str(HERE / \"include\")],\n    )\n    return module.{symbol}\n",
        name(kernel),
        declared.join(", "),
        json!(kernel.interface.flags)
    );
    (load, names)
}

fn name(kernel: &Kernel) -> String {
    format!("warpsmith_{}_{}", kernel.operator(), &kernel.found.candidate.as_str()[..12])
}
