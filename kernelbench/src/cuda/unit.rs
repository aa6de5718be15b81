//! What texts does nvcc get?
//!
//! The candidate's after a declaration of the entry, so that another signature does not compile; and a file of ours that
//! calls the entry and asks whether its launches were accepted. Ours needs no header of CUDA's, so it compiles at once.

use crate::{
    native::unit::prototype,
    task::{Argument, ArgumentKind, Dtype, KernelContext},
};

/// The candidate's file, as its author sees it in messages.
pub(crate) const FILE: &str = "candidate.cu";
/// Ours.
pub(crate) const CALLER: &str = "caller.cpp";

/// The candidate's translation unit.
pub(crate) fn candidate(context: &KernelContext, source: &str) -> String {
    let has = |dtype| context.arguments.iter().any(|argument| argument.dtype == dtype);
    let half = if has(Dtype::F16) { "#include <cuda_fp16.h>\n" } else { "" };
    let brain = if has(Dtype::Bf16) { "#include <cuda_bf16.h>\n" } else { "" };
    let prototype = prototype(context);
    format!(
        "#include <stddef.h>\n#include <stdint.h>\n#include <cuda_runtime.h>\n{half}{brain}\
         #line 1 \"signature\"\n{prototype}\n#line 1 \"{FILE}\"\n{source}\n"
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
