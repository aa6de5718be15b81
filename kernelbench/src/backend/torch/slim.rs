//! Which files make the slim headers, and under which of torch's names are they found?

/// The headers' own files.
pub(crate) const FILES: [(&str, &str); 19] = [
    ("accessor.h", include_str!("../../../harness/slim/accessor.h")),
    ("accumulate.h", include_str!("../../../harness/slim/accumulate.h")),
    ("class.h", include_str!("../../../harness/slim/class.h")),
    ("context.h", include_str!("../../../harness/slim/context.h")),
    ("dispatch.h", include_str!("../../../harness/slim/dispatch.h")),
    ("factory.h", include_str!("../../../harness/slim/factory.h")),
    ("gpu.h", include_str!("../../../harness/slim/gpu.h")),
    ("guard.h", include_str!("../../../harness/slim/guard.h")),
    ("message.h", include_str!("../../../harness/slim/message.h")),
    ("methods.h", include_str!("../../../harness/slim/methods.h")),
    ("module.h", include_str!("../../../harness/slim/module.h")),
    ("options.h", include_str!("../../../harness/slim/options.h")),
    ("python.h", include_str!("../../../harness/slim/python.h")),
    ("scalar.h", include_str!("../../../harness/slim/scalar.h")),
    ("slim.h", include_str!("../../../harness/slim/slim.h")),
    ("stream.h", include_str!("../../../harness/slim/stream.h")),
    ("tensor.h", include_str!("../../../harness/slim/tensor.h")),
    ("runtime.cpp", include_str!("../../../harness/slim/runtime.cpp")),
    ("value.h", include_str!("../../../harness/slim/value.h")),
];

/// Torch's names, by which of ours each of them brings in beside the base. Nothing that torch's own would not bring in: what
/// compiles here should compile there.
const NAMES: [(&str, &[&str]); 7] = [
    (
        "",
        &[
            "ATen/ATen.h",
            "ATen/Dispatch.h",
            "ATen/Tensor.h",
            "ATen/core/Tensor.h",
            "ATen/core/TensorAccessor.h",
            "c10/core/Device.h",
            "c10/core/ScalarType.h",
            "c10/core/TensorOptions.h",
            "c10/macros/Macros.h",
            "c10/util/ArrayRef.h",
            "c10/util/BFloat16.h",
            "c10/util/Exception.h",
            "c10/util/Float8_e4m3fn.h",
            "c10/util/Float8_e5m2.h",
            "c10/util/Half.h",
            "c10/util/Optional.h",
            "torch/types.h",
        ],
    ),
    ("accumulate.h", &["ATen/AccumulateType.h", "ATen/OpMathType.h"]),
    ("gpu.h", &["c10/cuda/CUDAException.h", "c10/cuda/CUDAFunctions.h", "c10/cuda/CUDAMacros.h"]),
    ("stream.h", &["c10/cuda/CUDAStream.h"]),
    ("guard.h", &["ATen/DeviceGuard.h", "c10/core/DeviceGuard.h", "c10/cuda/CUDAGuard.h"]),
    ("context.h", &["ATen/cuda/CUDAContext.h", "ATen/cuda/CUDAContextLight.h", "ATen/cuda/Exceptions.h"]),
    (
        "module.h",
        &[
            "pybind11/functional.h",
            "pybind11/pybind11.h",
            "pybind11/stl.h",
            "torch/all.h",
            "torch/extension.h",
            "torch/python.h",
            "torch/torch.h",
        ],
    ),
];

/// Every file of the folder: its path there, and its text.
pub(crate) fn files() -> Vec<(String, String)> {
    let own = FILES.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    let named = NAMES.iter().flat_map(|(more, names)| names.iter().map(move |name| ((*name).to_owned(), stub(more))));
    own.chain(named).collect()
}

fn stub(more: &str) -> String {
    let more = if more.is_empty() { String::new() } else { format!("#include \"{more}\"\n") };
    format!("#pragma once\n#include \"slim.h\"\n{more}")
}
