//! Which operator of which step launched each kernel?

use super::trace::{Event, Trace};
use serde_json::Value;
use std::collections::BTreeMap;

/// Something that ran on the GPU, with what asked for it.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The function, without namespace and template arguments.
    pub kernel: String,
    /// Its whole name.
    pub full: String,
    /// When it began, in microseconds of the trace.
    pub start: f64,
    /// How long it ran, in microseconds.
    pub us: f64,
    /// The stream.
    pub stream: String,
    /// The operators that were under way on the host when it was launched, the innermost first.
    pub operators: Vec<Call>,
    /// Whether it was launched as part of a CUDA graph, of which a trace says no operator.
    pub in_graph: bool,
    /// The step in which it was launched, as its annotation says; none where there are no annotations.
    pub step: Option<usize>,
}

/// An operator's call on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Which event of the trace, to tell calls apart.
    pub event: usize,
    /// Its name, such as `aten::mm`.
    pub name: String,
    /// Its arguments that are tensors, in order.
    pub tensors: Vec<Tensor>,
}

/// An argument's shape and type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tensor {
    /// Its extents.
    pub shape: Vec<u64>,
    /// Its type's name in C++, such as `c10::BFloat16`.
    pub dtype: String,
}

impl Tensor {
    /// Its elements.
    #[must_use]
    pub fn elements(&self) -> f64 {
        self.shape.iter().map(|size| *size as f64).product()
    }

    /// An element's size in bytes, where the type is known.
    #[must_use]
    pub fn width(&self) -> Option<f64> {
        let dtype = self.dtype.strip_prefix("c10::").unwrap_or(&self.dtype);
        Some(match dtype {
            "double" | "long" | "long int" => 8.0,
            "float" | "int" => 4.0,
            "BFloat16" | "Half" | "short" => 2.0,
            "Float8_e4m3fn" | "Float8_e5m2" | "signed char" | "unsigned char" | "bool" | "char" => 1.0,
            _ => return None,
        })
    }

    /// Its bytes, where the type is known.
    #[must_use]
    pub fn bytes(&self) -> Option<f64> {
        Some(self.elements() * self.width()?)
    }
}

/// A step that the trace names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// `prefill` or `decode`.
    pub stage: &'static str,
    /// How the annotation calls it.
    pub name: String,
}

/// All that ran on the GPU, in the order in which it began, and the steps that the trace names.
#[must_use]
pub fn launches(trace: &Trace) -> (Vec<Launch>, Vec<Step>) {
    let annotations = annotations(trace);
    let starts = starts(trace);
    let mut found: Vec<Launch> = trace
        .events
        .iter()
        .filter(|event| event.ran_on_gpu())
        .map(|event| launch(event, &starts, &annotations))
        .collect();
    found.sort_by(|a, b| a.start.total_cmp(&b.start));
    let steps = annotations.iter().map(|(step, _)| step.clone()).collect();
    (found, steps)
}

/// The host's side of a launch: when, and under which operators.
struct Start {
    at: f64,
    graph: bool,
    operators: Vec<Call>,
}

fn launch(event: &Event, starts: &BTreeMap<u64, Start>, annotations: &[(Step, (f64, f64))]) -> Launch {
    let start = event.args.correlation.and_then(|number| starts.get(&number));
    let at = start.map_or(event.ts, |start| start.at);
    Launch {
        kernel: short(&kernelbench::plain(&event.name)),
        full: kernelbench::plain(&event.name),
        start: event.ts,
        us: event.dur,
        stream: event.thread(),
        operators: start.map(|start| start.operators.clone()).unwrap_or_default(),
        in_graph: start.is_some_and(|start| start.graph),
        step: annotations.iter().position(|(_, (from, to))| (*from..=*to).contains(&at)),
    }
}

/// The annotations of steps: SGLang's own, or `prefill` and `decode` by whoever recorded it.
fn annotations(trace: &Trace) -> Vec<(Step, (f64, f64))> {
    let stage = |name: &str| {
        let name = name.to_lowercase();
        let is_step = ["step[", "prefill", "decode", "extend"].iter().any(|word| name.starts_with(word));
        is_step.then_some(if name.contains("decode") { "decode" } else { "prefill" })
    };
    let step = |event: &Event| {
        let of = Step { stage: stage(&event.name)?, name: event.name.clone() };
        Some((of, (event.ts, event.end())))
    };
    trace.events.iter().filter(|event| event.ph == "X" && event.cat == "user_annotation").filter_map(step).collect()
}

/// By correlation: each thread's events are gone through in order, with those that are under way.
fn starts(trace: &Trace) -> BTreeMap<u64, Start> {
    let mut threads: BTreeMap<String, Vec<(usize, &Event)>> = BTreeMap::new();
    for (place, event) in trace.events.iter().enumerate() {
        if event.launches() || (event.ph == "X" && event.cat == "cpu_op") {
            threads.entry(event.thread()).or_default().push((place, event));
        }
    }
    let mut starts = BTreeMap::new();
    for events in threads.values_mut() {
        // Of two that begin together, the longer one holds the other.
        events.sort_by(|(_, a), (_, b)| a.ts.total_cmp(&b.ts).then(b.dur.total_cmp(&a.dur)));
        of_thread(events, &mut starts);
    }
    starts
}

fn of_thread(events: &[(usize, &Event)], starts: &mut BTreeMap<u64, Start>) {
    let mut open: Vec<(usize, &Event)> = vec![];
    for (place, event) in events {
        open.retain(|(_, before)| before.end() >= event.ts);
        if event.cat == "cpu_op" {
            open.push((*place, event));
        } else if let Some(number) = event.args.correlation {
            let operators = open.iter().rev().map(|(place, event)| call(*place, event)).collect();
            let graph = event.name.contains("GraphLaunch");
            starts.insert(number, Start { at: event.ts, graph, operators });
        }
    }
}

fn call(place: usize, event: &Event) -> Call {
    let list = |value: &Option<Value>| value.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    let (shapes, types) = (list(&event.args.shapes), list(&event.args.types));
    let tensors = shapes.iter().zip(&types).filter_map(|(shape, dtype)| tensor(shape, dtype)).collect();
    Call { event: place, name: kernelbench::plain(&event.name), tensors }
}

/// A tensor has extents that are numbers; a scalar has none, and a list of tensors has lists.
fn tensor(shape: &Value, dtype: &Value) -> Option<Tensor> {
    let shape: Vec<u64> = shape.as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?;
    let dtype = dtype.as_str().filter(|dtype| !dtype.is_empty() && *dtype != "Scalar" && *dtype != "ScalarList")?;
    (!shape.is_empty()).then(|| Tensor { shape, dtype: dtype.to_owned() })
}

/// A function's name without what it returns, namespaces, template arguments and parameters.
#[must_use]
pub fn short(name: &str) -> String {
    let name = name.replace("(anonymous namespace)::", "");
    let name = name.strip_prefix("void ").unwrap_or(&name);
    let end = name.find(['<', '(']).unwrap_or(name.len());
    let plain = name[..end].trim();
    plain.rsplit("::").next().filter(|last| !last.is_empty()).unwrap_or(plain).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_named_by_its_own_name_alone() {
        for (full, own) in [
            ("void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, 1>(A*, B)", "act_and_mul_kernel"),
            ("void (anonymous namespace)::fused_qknorm<1>(P)", "fused_qknorm"),
            ("nvjet_hsh_128x128_64x4_1x2_h_bz_TNT", "nvjet_hsh_128x128_64x4_1x2_h_bz_TNT"),
            ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
        ] {
            assert_eq!(short(full), own);
        }
    }

    #[test]
    fn an_argument_that_is_no_tensor_has_no_shape() {
        let tensor = |shape: &str, dtype: &str| {
            tensor(&serde_json::from_str(shape).unwrap_or_default(), &Value::String(dtype.into()))
        };
        assert_eq!(tensor("[16, 4096]", "c10::BFloat16").and_then(|one| one.bytes()), Some(131_072.0));
        assert_eq!(tensor("[]", "Scalar"), None);
        assert_eq!(tensor("[[16], [16]]", "TensorList"), None);
        assert_eq!(tensor("[16]", "c10::Float4").and_then(|one| one.bytes()), None, "an unknown type has no bytes");
    }
}
