//! Translation units: the texts that a compiler gets.
//!
//! The candidate's text after a declaration of the entry point, so that another signature does not compile, and before the
//! task's binding, where it has one; and a unit of ours that calls the entry, so that a missing one does not link. Ours needs
//! no header of CUDA's, so it compiles at once.

use super::hlsl;
use crate::{
    result::{candidate::Candidate, error::Attempt, failure::Failure},
    task::{Argument, ArgumentKind, Dtype, KernelContext, Language, Returns, Transfer, region::marked},
};

/// The candidate's file name without its ending, as its author sees it in messages.
pub(crate) const CANDIDATE: &str = "candidate";
/// The task's binding, as messages name it.
pub(crate) const BINDING: &str = "binding.cu";

/// What an entry that returns a status returns where its bindings are no configuration for its arguments; a macro of this
/// name stands before every candidate.
pub(crate) const INVALID: u32 = 0x5753;

/// A candidate's text with its bindings written out. Each of several parts begins where a compiler counts lines from 1, under
/// its region's name.
pub(crate) fn text(context: &KernelContext, candidate: &Candidate) -> Attempt<String> {
    let interface = |why: String| Failure::Interface { log: why };
    let parts = candidate.written_out(&context.tuning).map_err(|why| interface(why.to_string()))?;
    if let [one] = &parts[..] {
        return Ok(one.text.clone());
    }
    if context.language == Language::Hlsl {
        return Ok(marked(&parts));
    }
    let ending = context.language.ending();
    let parts = parts.iter().map(|part| format!("#line 1 \"{}.{ending}\"\n{}\n", part.region, part.text));
    Ok(parts.collect())
}

/// The declaration of the entry point.
pub(crate) fn prototype(context: &KernelContext) -> String {
    let mut parameters: Vec<String> = context.arguments.iter().map(|a| parameter(a, context.language)).collect();
    parameters.extend(context.language.last_parameter());
    let linkage = if context.language.is_cpp() { "extern \"C\" " } else { "" };
    let parameters = if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
    format!("{linkage}{} {}({parameters});", context.returns.name(), context.entry)
}

fn parameter(argument: &Argument, language: Language) -> String {
    let (c, name) = (language.name_of(argument.dtype), &argument.name);
    match &argument.kind {
        ArgumentKind::Array { .. } if language == Language::Hlsl => format!("ws_buffer {name}"),
        ArgumentKind::Scalar => format!("{c} {name}"),
        ArgumentKind::Array { transfer: Transfer::In, .. } => format!("const {c} *{name}"),
        ArgumentKind::Array { .. } => format!("{c} *{name}"),
    }
}

/// The candidate's translation unit.
pub(crate) fn candidate(context: &KernelContext, source: &str) -> String {
    let (prototype, ending) = (prototype(context), context.language.ending());
    let has = |dtype| context.arguments.iter().any(|argument| argument.dtype == dtype);
    let mut headers = "#include <stddef.h>\n#include <stdint.h>\n".to_owned();
    if context.language == Language::Cuda {
        headers += "#include <cuda_runtime.h>\n";
        headers += if has(Dtype::F16) { "#include <cuda_fp16.h>\n" } else { "" };
        headers += if has(Dtype::Bf16) { "#include <cuda_bf16.h>\n" } else { "" };
        headers += if has(Dtype::E4m3) { "#include <cuda_fp8.h>\n" } else { "" };
    }
    if context.language == Language::Hip {
        headers += "#include <hip/hip_runtime.h>\n";
    }
    if context.language == Language::Hlsl {
        headers += hlsl::HOST_HEADER;
    }
    if context.returns == Returns::Status {
        headers.extend(["#define WS_INVALID ".to_owned(), INVALID.to_string(), "\n".to_owned()]);
    }
    let binding = context.binding.as_ref().map(|text| format!("#line 1 \"{BINDING}\"\n{text}\n")).unwrap_or_default();
    format!("{headers}#line 1 \"signature\"\n{prototype}\n#line 1 \"{CANDIDATE}.{ending}\"\n{source}\n{binding}")
}

/// The translation unit that unpacks the arguments, calls the entry, and returns 0, or in CUDA the runtime's last error. An
/// exception ends in `std::terminate`, which says what it was. In CUDA it is C++ for the host, without CUDA's headers.
pub(crate) fn caller(context: &KernelContext) -> String {
    let cuda = context.language == Language::Cuda;
    let cpp = context.language.is_cpp();
    let (linkage, noexcept) = if cpp { ("extern \"C\" ", " noexcept") } else { ("", "") };
    let declaration = if cuda { bare_declaration(context) } else { prototype(context) };
    let mut passed: Vec<String> =
        context.arguments.iter().enumerate().map(|(at, a)| passed(at, a, context.language)).collect();
    match context.language {
        Language::Cuda => passed.push("stream".to_owned()),
        Language::Hlsl => passed.push("(ws_device *)stream".to_owned()),
        _ => {}
    }
    let status = if cuda { "cudaGetLastError()" } else { "0" };
    let call = format!("{}({})", context.entry, passed.join(", "));
    // A status that is not 0 is told before any error of the runtime: the entry knows better what it refused. That error is
    // taken away all the same: an entry that cannot be recorded in a graph would read it at its next call, as of that one.
    let forget = if cuda { "(void)cudaGetLastError(); " } else { "" };
    let call = match context.returns {
        Returns::Nothing => format!("{call};"),
        Returns::Status => {
            let told = format!("{{ {forget}return returned < 0 ? returned : -returned; }}");
            format!("int returned = {call};\n    if (returned != 0) {told}")
        }
    };
    let runtime = match context.language {
        Language::Cuda => "extern \"C\" int cudaGetLastError(void);\n",
        _ => "",
    };
    let header = if context.language == Language::Hlsl { hlsl::HOST_HEADER } else { "" };
    let declared = "int warpsmith_call(void *const *arguments, void *stream)";
    format!(
        "#include <stdint.h>\n{header}{declaration}\n{runtime}\
         {linkage}__attribute__((visibility(\"default\"))) {declared}{noexcept};\n\
         {linkage}{declared}{noexcept} {{\n\
         \x20   (void)arguments;\n\x20   (void)stream;\n\
         \x20   {call}\n\
         \x20   return {status};\n\
         }}\n",
    )
}

/// The entry in CUDA, for a host compiler: C linkage knows no types, and halves go as the integers that hold their bits.
fn bare_declaration(context: &KernelContext) -> String {
    let types = context.arguments.iter().map(|argument| format!("{}, ", bare(argument))).collect::<Vec<_>>().concat();
    format!("extern \"C\" {} {}({types}void *);", context.returns.name(), context.entry)
}

fn bare(argument: &Argument) -> &'static str {
    match &argument.kind {
        ArgumentKind::Array { .. } => "void *",
        ArgumentKind::Scalar => Language::Cpp.name_of(argument.dtype),
    }
}

/// An argument of a call, taken from an array of pointers called `arguments`.
fn passed(at: usize, argument: &Argument, language: Language) -> String {
    let c = if language == Language::Cuda {
        Language::Cpp.name_of(argument.dtype)
    } else {
        language.name_of(argument.dtype)
    };
    match argument.kind {
        ArgumentKind::Scalar => format!("*({c} *)arguments[{at}]"),
        ArgumentKind::Array { .. } if language == Language::Cuda => format!("arguments[{at}]"),
        ArgumentKind::Array { .. } if language == Language::Hlsl => format!("(ws_buffer)arguments[{at}]"),
        ArgumentKind::Array { .. } => format!("({c} *)arguments[{at}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;
    use std::{fs, path::Path, process::Command};

    /// As where launches are recorded in a graph and cannot be: the runtime keeps an error that the entry has told already, and
    /// the entry's next call, which is not recorded, would take it for its own.
    #[test]
    fn an_error_of_the_runtime_does_not_outlive_the_call_that_told_it() {
        let task = load::task(Path::new("../examples/cuda/matmul_fp32")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let stand_in = "#include <cstdio>\n\
                        static int calls, error;\n\
                        extern \"C\" int cudaGetLastError(void) { int was = error; error = 0; return was; }\n\
                        extern \"C\" int matmul(void *, void *, void *, int, void *) {\n\
                        \x20   if (calls++ == 0) return error = 901;\n\
                        \x20   return cudaGetLastError();\n}\n\
                        extern \"C\" int warpsmith_call(void *const *arguments, void *stream) noexcept;\n\
                        int main() {\n\
                        \x20   long value = 0;\n\
                        \x20   void *arguments[] = {&value, &value, &value, &value};\n\
                        \x20   for (int at = 0; at < 2; ++at) printf(\"%d \", warpsmith_call(arguments, nullptr));\n}\n";
        fs::write(at("caller.cpp"), caller(task.context().unwrap())).unwrap();
        fs::write(at("entry.cpp"), stand_in).unwrap();
        let mut compiler = Command::new("g++");
        let built = compiler.current_dir(&folder).args(["-o", "calls", "caller.cpp", "entry.cpp"]).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let told = Command::new(at("calls")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&told.stdout), "-901 0 ");
    }
}
