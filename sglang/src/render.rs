//! What texts stand in an extract's folder beside the framework's own?

use super::operator::{Argument, Level, Operator, Precision};
use kernelbench::{Fill, Gate, Number, Transfer};
use minijinja::{Environment, context};
use std::{collections::BTreeMap, fmt::Write};

const BINDINGS: [(&str, &str); 12] = [
    ("fused_add_rmsnorm", include_str!("../bindings/fused_add_rmsnorm.cu")),
    ("fused_add_rmsnorm_group_quant", include_str!("../bindings/fused_add_rmsnorm_group_quant.cu")),
    ("gated", include_str!("../bindings/gated.cu")),
    ("group_quant", include_str!("../bindings/group_quant.cu")),
    ("merge_attn_states", include_str!("../bindings/merge_attn_states.cu")),
    ("per_token_quant_fp8", include_str!("../bindings/per_token_quant_fp8.cu")),
    ("qknorm", include_str!("../bindings/qknorm.cu")),
    ("qknorm_rope", include_str!("../bindings/qknorm_rope.cu")),
    ("rmsnorm", include_str!("../bindings/rmsnorm.cu")),
    ("rope", include_str!("../bindings/rope.cu")),
    ("silu_and_mul_quant_fp8", include_str!("../bindings/silu_and_mul_quant_fp8.cu")),
    ("topk_sum", include_str!("../bindings/topk_sum.cu")),
];
/// What every binding of level J begins with.
const FFI: &str = include_str!("../bindings/ffi.cu");

/// The names of an element type: in CUDA, in SGLang's headers, in `DLPack`, in torch.
fn names(precision: Precision) -> [&'static str; 4] {
    match precision {
        Precision::Bf16 => ["__nv_bfloat16", "bf16_t", "{kDLBfloat, 16, 1}", "BFloat16"],
        Precision::Fp16 => ["__half", "fp16_t", "{kDLFloat, 16, 1}", "Half"],
    }
}

/// What the framework exports of the file, for this type.
#[must_use]
pub fn exports(operator: &Operator, precision: Precision) -> Vec<String> {
    operator.exports.iter().map(|one| one.replace("{T}", names(precision)[1])).collect()
}

/// The binding: the entry, in terms of what the framework's file offers.
///
/// # Panics
/// Where an embedded binding cannot be rendered, which a test rules out.
#[must_use]
pub fn binding(operator: &Operator, precision: Precision) -> String {
    let [cuda, _, dl, torch] = names(precision);
    let parameters = operator.argument.iter().map(|one| parameter(one, precision, cuda));
    let parameters = parameters.chain(["cudaStream_t stream".to_owned()]).collect::<Vec<_>>().join(", ");
    let text = BINDINGS.iter().find(|(name, _)| *name == operator.binding).map_or("", |(_, text)| text);
    let values = context! {
        entry => operator.entry(),
        parameters => parameters,
        exports => exports(operator, precision),
        values => &operator.values,
        dl => dl,
        torch => torch,
    };
    let body = Environment::new().render_str(text, values).expect("a test renders every embedded binding");
    let before = if operator.level == Level::J { FFI } else { "" };
    format!("{before}{body}\n")
}

fn parameter(argument: &Argument, precision: Precision, cuda: &str) -> String {
    let c = match argument.dtype(precision) {
        "bf16" | "f16" => cuda,
        "e4m3" => "__nv_fp8_e4m3",
        "f32" => "float",
        "f64" => "double",
        "i32" => "int32_t",
        _ => "int64_t",
    };
    let name = &argument.name;
    match (&argument.shape, argument.transfer) {
        (None, _) => format!("{c} {name}"),
        (Some(_), Some(Transfer::In)) => format!("const {c} *{name}"),
        _ => format!("{c} *{name}"),
    }
}

/// The task file, of which nobody knows yet what the gate says.
#[must_use]
pub fn task(operator: &Operator, precision: Precision, version: &str, sha256: &str) -> String {
    let mut text = String::new();
    let dtype = precision.name();
    let _ = write!(
        text,
        "schema = 1\nname = \"{}_{dtype}\"\nsummary = \"\"\"\n{}\n\"\"\"\nbackend = \"cuda\"\nlanguage = \"cuda\"\nentry = \"{}\"\n\
         reference = \"{}\"\nbinding = \"binding.cu\"\ninclude = \"include\"\nflags = {:?}\n\n",
        operator.name,
        operator.summary.trim(),
        operator.entry(),
        operator.source(),
        operator.flags,
    );
    let _ = write!(
        text,
        "[origin]\nframework = \"sglang\"\nversion = {version:?}\noperator = {:?}\nlevel = {:?}\nfile = {:?}\nsha256 = {sha256:?}\ndtype = {dtype:?}\n{}\n",
        operator.name,
        operator.level.letter(),
        operator.file,
        gate(Gate::NotRun),
    );
    operator.argument.iter().for_each(|one| argument(&mut text, one, precision));
    let bounds = &operator.tolerance[&precision];
    let why = if bounds.why.is_empty() { String::new() } else { format!("why = {:?}\n", bounds.why) };
    let _ = write!(
        text,
        "[tolerance]\natol = {:?}\nrtol = {:?}\n{why}\n[timing]\ncases = \"all\"\n",
        bounds.atol, bounds.rtol
    );
    for (heading, cases) in [("case", &operator.case), ("final_case", &operator.final_case)] {
        for one in cases {
            let _ = write!(text, "\n[[{heading}]]\nname = \"{}\"\n", case_name(operator, one));
            for (name, value) in one {
                let _ = writeln!(text, "{name} = {}", number(*value));
            }
        }
    }
    text
}

fn gate(said: Gate) -> String {
    format!("gate = \"{}\"\n", said.name())
}

/// The same task file, with what the gate said.
#[must_use]
pub fn judged(task: &str, said: Gate) -> String {
    task.replacen(&gate(Gate::NotRun), &gate(said), 1)
}

fn argument(text: &mut String, argument: &Argument, precision: Precision) {
    let _ = write!(text, "[[argument]]\nname = \"{}\"\ndtype = \"{}\"\n", argument.name, argument.dtype(precision));
    if let Some(size) = argument.size() {
        let _ = writeln!(text, "size = \"{size}\"");
    }
    if let Some(transfer) = argument.transfer {
        let word = match transfer {
            Transfer::In => "in",
            Transfer::Out => "out",
            Transfer::InOut => "in-out",
        };
        let _ = writeln!(text, "transfer = \"{word}\"");
    }
    if let Some(fill) = &argument.fill {
        let _ = writeln!(text, "fill = {}", filled(fill));
    }
    text.push('\n');
}

fn filled(fill: &Fill) -> String {
    match fill {
        Fill::Zeros => "\"zeros\"".into(),
        Fill::Ones => "\"ones\"".into(),
        Fill::Uniform { low, high } => format!("{{ uniform = {{ low = {low:?}, high = {high:?} }} }}"),
        Fill::Normal { mean, std, minus_infinity } => {
            format!("{{ normal = {{ mean = {mean:?}, std = {std:?}, minus_infinity = {minus_infinity:?} }} }}")
        }
        Fill::Integers { low, high } => format!("{{ integers = {{ low = {low}, high = {high} }} }}"),
    }
}

/// A shape's name: its integers, in the order of the arguments.
#[must_use]
pub fn case_name(operator: &Operator, case: &BTreeMap<String, Number>) -> String {
    let whole = |argument: &Argument| match case.get(&argument.name) {
        Some(Number::Integer(value)) => Some(value.to_string()),
        _ => None,
    };
    operator.argument.iter().filter_map(whole).collect::<Vec<_>>().join("x")
}

fn number(value: Number) -> String {
    match value {
        Number::Integer(value) => value.to_string(),
        Number::Float(value) => format!("{value:?}"),
    }
}

/// What a reader of the folder needs to know.
#[must_use]
pub fn readme(operator: &Operator, precision: Precision, version: &str) -> String {
    let notes: Vec<String> = operator.notes.iter().map(|note| format!("* Note: {note}.\n")).collect();
    let notes = notes.concat();
    let what = if operator.parts.is_empty() {
        format!("is SGLang's file `{}`, byte for byte", operator.file)
    } else {
        let parts = operator.parts.join("` and `");
        format!(
            "is ours, and calls SGLang's own `{parts}` one after another; their files lie in `include`, byte for byte"
        )
    };
    format!(
        "# {} of SGLang {version}, in {}\n\n\
         `{}` {what}; the headers in `include` are those that it needs. They keep their authors' \
         licences. `binding.cu`, in the same translation unit behind the file, gives it the entry `{}`. `manifest.json` lists all files with \
         their hashes, the compiler's flags, and how the framework calls the operator; `gate.json`, where it is, what the comparison with \
         the framework's own operator found.\n\n{notes}\n```\nwarpsmith run . --policy astra\n```\n",
        operator.name,
        precision.name(),
        operator.source(),
        operator.entry(),
    )
}

#[cfg(test)]
mod tests {
    use super::{super::operator, *};

    #[test]
    fn every_operator_has_a_binding_that_defines_its_entry() {
        for one in operator::all() {
            for precision in &one.dtypes {
                let text = binding(&one, *precision);
                assert!(text.contains(&format!("extern \"C\" void {}(", one.entry())), "{text}");
                assert!(exports(&one, *precision).iter().all(|export| text.contains(export.as_str())), "{text}");
                assert!(!text.contains("{{") || one.level == Level::A, "{text}");
            }
        }
    }
}
