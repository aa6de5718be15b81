"""Softplus that refuses elements of eight bits; where torch has them, it stores a one and reads its bits as well."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor softplus(torch::Tensor input, bool torch_has_them) {
    static_assert(sizeof(c10::Float8_e4m3fn) == 1 && sizeof(at::Float8_e5m2) == 1, "a byte");
    TORCH_CHECK(input.scalar_type() != at::kFloat8_e4m3fn && input.dtype() != torch::kFloat8_e5m2, "too narrow");
    if (torch_has_them) {
        auto narrow = torch::ones({3}, input.options()).to(at::kFloat8_e4m3fn);
        TORCH_CHECK(narrow.scalar_type() == torch::kFloat8_e4m3fn && narrow.element_size() == 1, "it is of another type");
        TORCH_CHECK(narrow.is_floating_point(), "it is a float");
        TORCH_CHECK(narrow.data_ptr<at::Float8_e4m3fn>()[1].x == 0x38, "one has other bits");
        auto range = torch::ones({3}, input.options()).to(at::kFloat8_e5m2);
        TORCH_CHECK(range.data_ptr<c10::Float8_e5m2>()[2].x == 0x3c, "one has other bits");
    }
    auto output = torch::empty_like(input);
    const float* x = input.data_ptr<float>();
    float* y = output.data_ptr<float>();
    for (int64_t i = 0; i < input.numel(); i++) y[i] = x[i] > 20.f ? x[i] : std::log1p(std::exp(x[i]));
    return output;
}
"""

extension = load_inline(name="softplus_eight_bits", cpp_sources=source, functions=["softplus"])

# Where torch has them: as arguments too.
for name in ("float8_e4m3fn", "float8_e5m2"):
    if hasattr(torch, name):
        try:
            extension.softplus(torch.ones(3).to(getattr(torch, name)), True)
        except RuntimeError as error:
            assert "too narrow" in str(error), error
        else:
            raise AssertionError(f"{name} was taken for a wider one")


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.softplus(x.contiguous(), hasattr(torch, "float8_e4m3fn"))
