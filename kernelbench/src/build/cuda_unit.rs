//! What texts does nvcc get?
//!
//! The candidate's after a declaration of the entry, so that another signature does not compile, and before the task's
//! binding, where it has one; and a file of ours that calls the entry and asks whether its launches were accepted. Ours
//! needs no header of CUDA's, so it compiles at once.

use crate::{
    build::unit::prototype,
    result::{error::fault, failure::Fault},
    task::{Argument, ArgumentKind, Dtype, KernelContext, load},
};
use std::{fs, path::Path};

/// The candidate's file, as its author sees it in messages.
pub(crate) const FILE: &str = "candidate.cu";
/// The task's binding, as messages name it.
pub(crate) const BINDING: &str = "binding.cu";
/// The folder of the task's headers, beside the candidate.
pub(crate) const INCLUDE: &str = "include";
/// Ours.
pub(crate) const CALLER: &str = "caller.cpp";

/// Lays the candidate's translation unit and the task's headers into a folder.
pub(crate) fn lay(context: &KernelContext, source: &str, folder: &Path) -> Result<(), Fault> {
    const WRITING: &str = "cannot write what is to be built";
    fs::write(folder.join(FILE), candidate(context, source)).map_err(fault(WRITING))?;
    for (path, text) in &context.include {
        if !load::stays(path) {
            return Err(Fault(format!("`{path}` is no path of a header: expected one inside the task's folder")));
        }
        let file = folder.join(INCLUDE).join(path);
        fs::create_dir_all(file.parent().unwrap_or(folder)).map_err(fault(WRITING))?;
        fs::write(file, text).map_err(fault(WRITING))?;
    }
    Ok(())
}

/// The candidate's translation unit.
pub(crate) fn candidate(context: &KernelContext, source: &str) -> String {
    let has = |dtype| context.arguments.iter().any(|argument| argument.dtype == dtype);
    let half = if has(Dtype::F16) { "#include <cuda_fp16.h>\n" } else { "" };
    let brain = if has(Dtype::Bf16) { "#include <cuda_bf16.h>\n" } else { "" };
    let prototype = prototype(context);
    let binding = context.binding.as_ref().map(|text| format!("#line 1 \"{BINDING}\"\n{text}\n")).unwrap_or_default();
    format!(
        "#include <stddef.h>\n#include <stdint.h>\n#include <cuda_runtime.h>\n{half}{brain}\
         #line 1 \"signature\"\n{prototype}\n#line 1 \"{FILE}\"\n{source}\n{binding}"
    )
}

/// The translation unit that unpacks the arguments, calls the entry, and returns the number of the runtime's last error. C
/// linkage knows no types: halves go as the integers that hold their bits.
pub(crate) fn caller(context: &KernelContext) -> String {
    let kinds: Vec<&str> = context.arguments.iter().map(kind).collect();
    let declared = kinds.iter().map(|kind| format!("{kind}, ")).collect::<Vec<_>>().concat();
    let passed = kinds.iter().enumerate().map(|(at, kind)| match *kind {
        "void *" => format!("arguments[{at}], "),
        kind => format!("*({kind} *)arguments[{at}], "),
    });
    format!(
        "#include <stdint.h>\n\
         extern \"C\" void {entry}({declared}void *);\n\
         extern \"C\" int cudaGetLastError(void);\n\
         extern \"C\" __attribute__((visibility(\"default\"))) int warpsmith_call(void *const *arguments, void *stream) noexcept {{\n\
         \x20   {entry}({passed}stream);\n\
         \x20   return cudaGetLastError();\n\
         }}\n",
        entry = context.entry,
        passed = passed.collect::<Vec<_>>().concat(),
    )
}

fn kind(argument: &Argument) -> &'static str {
    match (&argument.kind, argument.dtype) {
        (ArgumentKind::Array { .. }, _) => "void *",
        (ArgumentKind::Scalar, Dtype::F32) => "float",
        (ArgumentKind::Scalar, Dtype::F64) => "double",
        (ArgumentKind::Scalar, Dtype::F16 | Dtype::Bf16) => "uint16_t",
        (ArgumentKind::Scalar, Dtype::I32) => "int32_t",
        (ArgumentKind::Scalar, Dtype::I64) => "int64_t",
    }
}
