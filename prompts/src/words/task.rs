//! How does a task read?

use super::text::{clean, one_line};
use kernelbench::{
    Argument, ArgumentKind, Case, Dtype, Fill, KernelContext, Language, ModuleValue, Number, Parameter, Precision,
    Problem, Returns, Source, Task, TensorLayout, Transfer,
};
use minijinja::{Value, context};

/// The values that templates name under `task`. `kind` is the folder of the blocks that go with the task's source.
pub(crate) fn task(task: &Task) -> Value {
    let kernel = match &task.source {
        Source::Context(kernel) => kernel,
        Source::Problem(problem) => return self::problem(task, problem),
    };
    context! {
        kind => kind(task, kernel),
        name => one_line(&task.name),
        summary => clean(task.summary.trim()),
        language => standard(kernel),
        fence => fence(kernel.language),
        cpp => kernel.language.is_cpp(),
        entry => kernel.entry.as_str(),
        prototype => prototype(kernel),
        arguments => kernel.arguments.iter().map(argument).collect::<Vec<_>>(),
        dtype_notes => dtype_notes(kernel),
        share => share(task.tolerance.share),
        atol => format!("{:e}", task.tolerance.atol),
        rtol => format!("{:e}", task.tolerance.rtol),
        flags => one_line(&kernel.flags.join(" ")),
        omp_simd => kernel.flags.iter().any(|flag| flag.starts_with("-fopenmp")),
        reference => kernel.reference.as_str(),
        binding => kernel.binding.as_deref(),
        headers => headers(kernel),
        tuning => tuning(kernel),
        constraints => kernel.tuning.constraints.iter().map(|text| one_line(text)).collect::<Vec<_>>(),
        returns_status => kernel.returns == Returns::Status,
        scalars => kernel.arguments.iter().filter(|a| is_scalar(a)).map(|a| scalar(task, a)).collect::<Vec<_>>(),
        shapes => if one_shape(task, kernel).is_some() { EXACTLY } else { "shapes in general" },
        one_shape => one_shape(task, kernel),
    }
}

/// What a kernel with one shape is to be fast for.
const EXACTLY: &str = "exactly the shapes and types given; specialize for them";

/// The sizes of the only shape that a context has; `None` where its cases, the certificate's included, have several.
fn one_shape(task: &Task, kernel: &KernelContext) -> Option<String> {
    let mut cases = task.cases.iter().chain(&task.final_cases);
    let (first, others) = (cases.next()?, cases.next());
    let sizes =
        kernel.arguments.iter().filter_map(|argument| Some((&argument.name, first.scalars.get(&argument.name)?)));
    let sizes: Vec<String> = sizes.map(|(name, value)| format!("{} = {}", one_line(name), number(*value))).collect();
    others.is_none().then(|| sizes.join(", "))
}

/// The folder of the blocks: where a binding defines the entry, the file's author is told of it.
fn kind(task: &Task, kernel: &KernelContext) -> &'static str {
    match kernel.binding {
        Some(_) => "bound",
        None if task.is_cuda() => "cuda",
        None if kernel.language == Language::Hip => "hip",
        None if kernel.language == Language::Hlsl => "hlsl",
        None => "context",
    }
}

/// The language, of another year where a flag says so.
fn standard(kernel: &KernelContext) -> &'static str {
    let later = kernel.flags.iter().any(|flag| flag == "-std=c++20");
    if later { "CUDA C++20" } else { language_name(kernel.language) }
}

/// The headers that a file may include: the paths of all, and the text of the small ones that the reference itself names.
fn headers(kernel: &KernelContext) -> Vec<Value> {
    let named =
        |path: &str| [format!("<{path}>"), format!("\"{path}\"")].iter().any(|name| kernel.reference.contains(name));
    let shown = |path: &str, text: &str| named(path) && text.len() <= LARGEST_SHOWN;
    let header = |(path, text): (&String, &String)| {
        let text = shown(path, text).then(|| clean(text.trim()));
        context! { path => one_line(path), text => text }
    };
    kernel.include.iter().map(header).collect()
}

/// What a header may weigh to be shown, in bytes.
const LARGEST_SHOWN: usize = 4096;

fn problem(task: &Task, problem: &Problem) -> Value {
    context! {
        kind => "problem",
        name => one_line(&task.name),
        summary => clean(task.summary.trim()),
        language => language_name(Language::Python),
        fence => fence(Language::Python),
        precision => precision_name(problem.precision),
        single => problem.precision == Precision::Fp32,
        eight_bits => problem.signature.draws_eight_bits(),
        reference_mode => problem.reference.name(),
        beyond => problem.beyond.name(),
        atol => format!("{:e}", task.tolerance.atol),
        rtol => format!("{:e}", task.tolerance.rtol),
        reference => problem.source.as_str(),
        shapes => EXACTLY,
        inputs => values_of(&problem.signature.inputs),
        outputs => values_of(&problem.signature.outputs),
        init => values_of(&problem.signature.init),
    }
}

/// The values of a signature, each with what it holds.
fn values_of(values: &[ModuleValue]) -> Vec<Value> {
    values.iter().map(|value| context! { name => one_line(&value.name), holds => holds_of(value) }).collect()
}

/// A value of a signature: "float32, shape (16, 4096), contiguous, strides (4096, 1)".
fn holds_of(value: &ModuleValue) -> String {
    let Some(TensorLayout { dtype, shape, stride }) = &value.tensor else { return one_line(&value.value) };
    let list = |numbers: &[u64]| {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        format!("({}{})", numbers.join(", "), if numbers.len() == 1 { "," } else { "" })
    };
    let strides = if shape.is_empty() { String::new() } else { format!(", strides {}", list(stride)) };
    format!("{}, shape {}{strides}", one_line(dtype), list(shape))
}

fn precision_name(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp32 => "single precision (torch.float32)",
        Precision::Fp16 => "half precision (torch.float16)",
        Precision::Bf16 => "torch.bfloat16",
    }
}

/// The integer scalars that make a shape: those whose value differs between the task's cases, or all of them where none
/// does.
pub(crate) fn scalars_that_vary(task: &Task) -> Vec<&Argument> {
    let Some(kernel) = task.context() else { return vec![] };
    let integer = |a: &&Argument| is_scalar(a) && matches!(a.dtype, Dtype::I32 | Dtype::I64);
    let integers: Vec<&Argument> = kernel.arguments.iter().filter(integer).collect();
    let varying: Vec<&Argument> = integers.iter().copied().filter(|a| values(task, &a.name).len() > 1).collect();
    if varying.is_empty() { integers } else { varying }
}

fn language_name(language: Language) -> &'static str {
    match language {
        Language::C => "C11",
        Language::Cpp => "C++17",
        Language::Cuda => "CUDA C++17",
        Language::Hip => "HIP C++17",
        Language::Hlsl => "HLSL, with a host region in C++17",
        Language::Python => "Python",
    }
}

fn fence(language: Language) -> &'static str {
    match language {
        Language::C => "c",
        Language::Cpp => "cpp",
        Language::Cuda => "cuda",
        Language::Hip => "hip",
        Language::Hlsl => "hlsl",
        Language::Python => "python",
    }
}

fn prototype(kernel: &KernelContext) -> String {
    let linkage = if kernel.language.is_cpp() { "extern \"C\" " } else { "" };
    let mut arguments: Vec<String> = kernel.arguments.iter().map(|a| parameter(a, kernel.language)).collect();
    arguments.extend(kernel.language.last_parameter());
    format!("{linkage}{} {}({});", kernel.returns.name(), kernel.entry, arguments.join(", "))
}

fn parameter(argument: &Argument, language: Language) -> String {
    let (c_type, name) = (language.name_of(argument.dtype), &argument.name);
    match &argument.kind {
        ArgumentKind::Scalar => format!("{c_type} {name}"),
        ArgumentKind::Array { .. } if language == Language::Hlsl => format!("ws_buffer {name}"),
        ArgumentKind::Array { transfer: Transfer::In, .. } => format!("const {c_type}* {name}"),
        ArgumentKind::Array { .. } => format!("{c_type}* {name}"),
    }
}

fn argument(argument: &Argument) -> Value {
    context! { name => argument.name.as_str(), holds => holds(argument) }
}

fn holds(argument: &Argument) -> String {
    let dtype = dtype_name(argument.dtype);
    match &argument.kind {
        ArgumentKind::Scalar => format!("{dtype} scalar, given by the shape"),
        ArgumentKind::Array { size, transfer, fill } => {
            let size = one_line(&size.0);
            match transfer {
                Transfer::In => format!("input, {dtype}, `{size}` elements, {}; read only", fill_name(fill)),
                Transfer::Out => format!("output, {dtype}, `{size}` elements; holds garbage before the call"),
                Transfer::InOut => {
                    format!(
                        "input and output in place, {dtype}, `{size}` elements, {} before the call",
                        fill_name(fill)
                    )
                }
            }
        }
    }
}

fn fill_name(fill: &Fill) -> String {
    match fill {
        Fill::Zeros => "all zero".into(),
        Fill::Ones => "all one".into(),
        Fill::Uniform { low, high } => format!("uniform in [{low}, {high})"),
        Fill::Normal { mean, std, minus_infinity } if *minus_infinity > 0.0 => {
            format!("normal with mean {mean} and deviation {std}, some elements minus infinity instead")
        }
        Fill::Normal { mean, std, .. } => format!("normal with mean {mean} and deviation {std}"),
        Fill::Integers { low, high } => format!("whole numbers from {low} to {high}"),
    }
}

fn dtype_notes(kernel: &KernelContext) -> Vec<&'static str> {
    let has = |dtype| kernel.arguments.iter().any(|a| a.dtype == dtype);
    let mut notes = Vec::new();
    if matches!(kernel.language, Language::Cuda | Language::Hip) {
        notes.push("Arrays are pointers to the GPU's memory; scalars are passed by value on the host.");
        return notes;
    }
    if kernel.language == Language::Hlsl {
        return notes;
    }
    if has(Dtype::F16) {
        notes.push("f16 is IEEE half precision; a `uint16_t` holds its bits.");
    }
    if has(Dtype::Bf16) {
        notes.push("bf16 is the upper half of an IEEE single; a `uint16_t` holds its bits.");
    }
    if has(Dtype::E4m3) {
        notes
            .push("e4m3 is 8-bit floating point (OCP E4M3: no infinity, 448 the largest); a `uint8_t` holds its bits.");
    }
    notes
}

fn dtype_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "f32",
        Dtype::F64 => "f64",
        Dtype::F16 => "f16",
        Dtype::Bf16 => "bf16",
        Dtype::E4m3 => "e4m3",
        Dtype::I32 => "i32",
        Dtype::I64 => "i64",
    }
}

fn share(share: f64) -> String {
    if share >= 1.0 { "every element".into() } else { format!("{} % of its elements", share * 100.0) }
}

fn scalar(task: &Task, argument: &Argument) -> Value {
    let varies = scalars_that_vary(task).iter().any(|a| a.name == argument.name);
    context! {
        name => argument.name.as_str(),
        dtype => dtype_name(argument.dtype),
        varies => varies,
        values => values(task, &argument.name).join(", "),
    }
}

/// The different values of a scalar over the task's cases, in their order.
fn values(task: &Task, name: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for value in task.cases.iter().filter_map(|case: &Case| case.scalars.get(name)) {
        let value = number(*value);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn number(number: Number) -> String {
    match number {
        Number::Integer(value) => value.to_string(),
        Number::Float(value) => value.to_string(),
    }
}

/// The parameters that a candidate may leave open, each with its values.
fn tuning(kernel: &KernelContext) -> Vec<Value> {
    let values = |values: &[Parameter]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    kernel.tuning.grid.iter().map(|(name, all)| context! { name, values => one_line(&values(all)) }).collect()
}

fn is_scalar(argument: &Argument) -> bool {
    matches!(argument.kind, ArgumentKind::Scalar)
}

/// The values that templates name under `candidate`: its source as it was written, and at its end what a search bound.
pub(crate) fn candidate(candidate: &kernelbench::Candidate) -> Value {
    let bound = candidate.bindings_in_words();
    let bound = bound.map(|words| format!("\n// The search bound {}.\n", one_line(&words))).unwrap_or_default();
    context! { source => format!("{}{bound}", candidate.source()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Prompts, example};
    use kernelbench::ReferenceMode;

    #[test]
    fn inputs_of_eight_bits_are_said_to_stay_as_they_are_drawn() {
        let mut task = example::problem().in_precision(Precision::Bf16);
        let said = |task: &Task| {
            let prompt = Prompts::embedded().seed(task, &example::machine());
            format!("{prompt:?}")
        };
        let stay = "inputs of eight bits stay as they are drawn";
        assert!(!said(&task).contains(stay));
        let Source::Problem(problem) = &mut task.source else { panic!("a problem") };
        problem.reference = ReferenceMode::KernelBench;
        problem.signature.inputs[0].tensor.as_mut().unwrap().dtype = "float8_e4m3fn".into();
        let page = said(&task);
        assert!(page.contains(stay) && page.contains("`x`: float8_e4m3fn"), "{page}");
        assert!(
            page.contains("weights and inputs, but for inputs of eight bits, are cast to torch.bfloat16"),
            "{page}"
        );
    }
}
