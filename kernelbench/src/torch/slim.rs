//! Which files make the slim headers, and under which of torch's names are they found?

/// The headers' own files.
pub(crate) const FILES: [(&str, &str); 14] = [
    ("accessor.h", include_str!("../../harness/slim/accessor.h")),
    ("dispatch.h", include_str!("../../harness/slim/dispatch.h")),
    ("factory.h", include_str!("../../harness/slim/factory.h")),
    ("gpu.h", include_str!("../../harness/slim/gpu.h")),
    ("message.h", include_str!("../../harness/slim/message.h")),
    ("methods.h", include_str!("../../harness/slim/methods.h")),
    ("module.h", include_str!("../../harness/slim/module.h")),
    ("options.h", include_str!("../../harness/slim/options.h")),
    ("python.h", include_str!("../../harness/slim/python.h")),
    ("scalar.h", include_str!("../../harness/slim/scalar.h")),
    ("slim.h", include_str!("../../harness/slim/slim.h")),
    ("tensor.h", include_str!("../../harness/slim/tensor.h")),
    ("runtime.cpp", include_str!("../../harness/slim/runtime.cpp")),
    ("value.h", include_str!("../../harness/slim/value.h")),
];

/// Torch's names for what needs neither a GPU nor a module.
const PLAIN: [&str; 17] = [
    "ATen/ATen.h",
    "ATen/AccumulateType.h",
    "ATen/Dispatch.h",
    "ATen/OpMathType.h",
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
    "c10/util/Half.h",
    "c10/util/Optional.h",
    "torch/types.h",
];
/// Torch's names for what a GPU needs.
const GPU: [&str; 10] = [
    "ATen/DeviceGuard.h",
    "ATen/cuda/CUDAContext.h",
    "ATen/cuda/CUDAContextLight.h",
    "ATen/cuda/Exceptions.h",
    "c10/core/DeviceGuard.h",
    "c10/cuda/CUDAException.h",
    "c10/cuda/CUDAFunctions.h",
    "c10/cuda/CUDAGuard.h",
    "c10/cuda/CUDAMacros.h",
    "c10/cuda/CUDAStream.h",
];
/// Torch's names for what makes a module.
const MODULE: [&str; 7] = [
    "pybind11/functional.h",
    "pybind11/pybind11.h",
    "pybind11/stl.h",
    "torch/all.h",
    "torch/extension.h",
    "torch/python.h",
    "torch/torch.h",
];

/// Every file of the folder: its path there, and its text.
pub(crate) fn files() -> Vec<(String, String)> {
    let own = FILES.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    let named = [(&PLAIN[..], ""), (&GPU, "gpu.h"), (&MODULE, "module.h")];
    let named = named.iter().flat_map(|(names, more)| names.iter().map(move |name| ((*name).to_owned(), stub(more))));
    own.chain(named).collect()
}

fn stub(more: &str) -> String {
    let more = if more.is_empty() { String::new() } else { format!("#include \"{more}\"\n") };
    format!("#pragma once\n#include \"slim.h\"\n{more}")
}
