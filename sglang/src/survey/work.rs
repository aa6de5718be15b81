//! How many bytes must an operator's call move at least, and how many operations must it do?
//!
//! By the shapes of its arguments, each array once: what is read twice counts once, so that a kernel can be at its roofline.
//! Where the shapes do not say it (attention reads as much of its cache as its requests are long) there is no answer.

use super::{
    known::plain,
    launches::{Call, Tensor},
};
use crate::operator::{Operator, Precision};
use kernelbench::Transfer;
use metrics::gpu::Gpu;
use serde::Serialize;

/// What a call must do at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Work {
    /// Bytes between the GPU's memory and the kernel.
    pub bytes: f64,
    /// Operations of the tensor cores.
    pub operations: f64,
    /// The bytes of an operand's element, which says how fast the tensor cores are.
    #[serde(skip)]
    pub width: f64,
}

impl Work {
    /// The least time that a GPU could take, in microseconds.
    #[must_use]
    pub fn floor_us(&self, gpu: &Gpu) -> f64 {
        let moved = self.bytes / (gpu.bandwidth_gb_s.0 * 1e9);
        let precision = match self.width {
            w if w <= 1.0 => "FP8",
            w if w <= 2.0 => "FP16 or BF16",
            _ => "TF32",
        };
        let peak = gpu.peaks().into_iter().find(|(name, _)| *name == precision).map_or(f64::INFINITY, |(_, peak)| peak);
        moved.max(self.operations / peak) * 1e6
    }
}

/// The work of a call, by the innermost of the operators under way whose shapes say it; and which of them that is.
#[must_use]
pub fn work<'a>(calls: &'a [Call], known: Option<&Operator>) -> Option<(&'a Call, Work)> {
    calls.iter().find_map(|call| Some((call, of(call, known)?)))
}

fn of(call: &Call, known: Option<&Operator>) -> Option<Work> {
    let name = plain(&call.name);
    product(name, &call.tensors)
        .or_else(|| described(call, known?))
        .or_else(|| written_into(call))
        .or_else(|| elementwise(&call.name, &call.tensors))
}

/// A matrix product: two operations for each product of numbers.
fn product(name: &str, tensors: &[Tensor]) -> Option<Work> {
    let (a, b) = match name {
        "mm"
        | "bmm"
        | "matmul"
        | "linear"
        | "_scaled_mm"
        | "fp8_scaled_mm"
        | "int8_scaled_mm"
        | "fp8_blockwise_scaled_mm" => (tensors.first()?, tensors.get(1)?),
        "addmm" | "baddbmm" => (tensors.get(1)?, tensors.get(2)?),
        _ => return None,
    };
    let (&[.., depth], [rest @ .., first, second]) = (a.shape.as_slice(), b.shape.as_slice()) else { return None };
    // torch's linear has its weights transposed.
    let columns = match name {
        "linear" if *second == depth => *first,
        _ if *first == depth => *second,
        _ => return None,
    };
    let rows = a.elements() / depth as f64;
    let batch: f64 = rest.iter().map(|size| *size as f64).product();
    let (width, b_bytes) = (a.width()?, b.bytes()?);
    // What is in fp8 is put out in half precision.
    let out = rows * columns as f64 * width.max(2.0);
    let bytes = a.bytes()? + b_bytes + out;
    (batch >= 1.0).then_some(Work { bytes, operations: 2.0 * rows * depth as f64 * columns as f64, width })
}

/// By the description of an operator of ours: what is changed in place is read and written.
fn described(call: &Call, operator: &Operator) -> Option<Work> {
    if operator.name != plain(&call.name) {
        return None;
    }
    let named = operator.call.positional.iter().filter_map(|name| operator.argument.iter().find(|a| a.name == *name));
    let arrays: Vec<_> = named.filter(|argument| argument.shape.is_some()).collect();
    if arrays.len() != call.tensors.len() {
        return None;
    }
    // A call by position has the arguments in one of two orders: as the function has them, or its operator.
    let precise = |dtype: &str| match dtype {
        "f32" | "i32" => 4.0,
        "i64" => 8.0,
        _ => 2.0,
    };
    let fits = arrays.iter().zip(&call.tensors).all(|(argument, tensor)| {
        argument.shape.as_ref().is_some_and(|shape| shape.len() == tensor.shape.len())
            && tensor.width() == Some(precise(argument.dtype(Precision::Bf16)))
    });
    let bytes = arrays.iter().zip(&call.tensors).map(|(argument, tensor)| {
        let times = if argument.transfer == Some(Transfer::InOut) { 2.0 } else { 1.0 };
        tensor.bytes().map(|bytes| bytes * times)
    });
    fits.then(|| bytes.sum::<Option<f64>>())?.map(moves)
}

/// Operators whose output is an argument: SGLang's own. An array that they change in place would be counted once too few, so
/// that only those are here that have none.
fn written_into(call: &Call) -> Option<Work> {
    const NAMES: [&str; 9] = [
        "silu_and_mul",
        "gelu_and_mul",
        "gelu_tanh_and_mul",
        "sgl_per_token_quant_fp8",
        "per_token_quant_fp8",
        "sgl_per_token_group_quant_8bit",
        "sgl_per_token_group_quant_fp8",
        "moe_sum",
        "moe_sum_reduce",
    ];
    let is_one = NAMES.contains(&plain(&call.name)) && call.tensors.len() > 1;
    is_one.then(|| call.tensors.iter().map(Tensor::bytes).sum::<Option<f64>>())?.map(moves)
}

/// torch's own element by element: every argument, and a result as large as the largest.
fn elementwise(name: &str, tensors: &[Tensor]) -> Option<Work> {
    let name = name.strip_prefix("aten::")?;
    let (read, in_place) = (name.trim_end_matches('_'), name.ends_with('_'));
    let largest = tensors.iter().map(Tensor::bytes).collect::<Option<Vec<f64>>>()?.into_iter().fold(0.0, f64::max);
    let all: f64 = tensors.iter().map(Tensor::bytes).sum::<Option<f64>>()?;
    match read {
        // The first argument is what is written, and no more.
        "copy" | "fill" if in_place => Some(moves(all)),
        "add" | "sub" | "mul" | "div" | "silu" | "gelu" | "sigmoid" | "neg" | "exp" if in_place => {
            Some(moves(all + tensors.first()?.bytes()?))
        }
        "add" | "sub" | "mul" | "div" | "silu" | "gelu" | "sigmoid" | "neg" | "exp" | "clone" | "contiguous" => {
            Some(moves(all + largest))
        }
        _ => None,
    }
}

fn moves(bytes: f64) -> Work {
    Work { bytes, operations: 0.0, width: 4.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator;

    fn call(name: &str, shapes: &[(&[u64], &str)]) -> Call {
        let tensors = shapes.iter().map(|(s, dtype)| Tensor { shape: s.to_vec(), dtype: (*dtype).into() }).collect();
        Call { event: 0, name: name.into(), tensors }
    }

    #[test]
    fn a_matrix_product_does_two_operations_for_each_product_of_numbers() {
        let half = "c10::BFloat16";
        let product = call("aten::mm", &[(&[16, 4096], half), (&[4096, 1024], half)]);
        let (_, found) = work(std::slice::from_ref(&product), None).unwrap_or((&product, Work::default()));
        assert!((found.operations - 2.0 * 16.0 * 4096.0 * 1024.0).abs() < 1.0, "{found:?}");
        assert!((found.bytes - 2.0 * (16.0 * 4096.0 + 4096.0 * 1024.0 + 16.0 * 1024.0)).abs() < 1.0, "{found:?}");
        let transposed = call("aten::linear", &[(&[2, 8, 4096], half), (&[1024, 4096], half)]);
        assert_eq!(work(&[transposed], None).map(|(_, work)| work), Some(found));
        assert_eq!(work(&[call("aten::mm", &[(&[16, 4096], half), (&[1, 1024], half)])], None), None);
    }

    #[test]
    fn what_is_changed_in_place_is_read_and_written() {
        let norm = operator::named("fused_add_rmsnorm").ok();
        let half = "c10::BFloat16";
        let shapes: [(&[u64], &str); 3] = [(&[16, 4096], half), (&[16, 4096], half), (&[4096], half)];
        let found = work(&[call("sgl_kernel::fused_add_rmsnorm", &shapes)], norm.as_ref()).map(|(_, work)| work.bytes);
        assert_eq!(found, Some(2.0 * (4.0 * 16.0 * 4096.0 + 4096.0)));
    }

    #[test]
    fn where_shapes_do_not_say_it_nothing_is_said() {
        assert_eq!(work(&[call("flashinfer::decode", &[(&[16, 4096], "c10::BFloat16")])], None), None);
        assert_eq!(work(&[call("aten::add", &[(&[16], "c10::Unheard")])], None), None);
        assert_eq!(work(&[], None), None);
    }

    #[test]
    fn the_floor_is_whichever_of_memory_and_tensor_cores_takes_longer() {
        let Some(gpu) = Gpu::named("NVIDIA H200") else { panic!("the H200 is in the table") };
        let small = Work { bytes: 4.8e6, operations: 1.0, width: 2.0 };
        assert!((small.floor_us(gpu) - 1.0).abs() < 1e-6, "{}", small.floor_us(gpu));
        let large = Work { bytes: 1.0, operations: 989.4e6, width: 2.0 };
        assert!((large.floor_us(gpu) - 1.0).abs() < 0.01, "{}", large.floor_us(gpu));
        let faster = Work { width: 1.0, ..large };
        assert!((faster.floor_us(gpu) - 0.5).abs() < 0.01, "{}", faster.floor_us(gpu));
    }
}
