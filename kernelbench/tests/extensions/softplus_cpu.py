"""Softplus in C++, with a module of its own: arguments by name, defaults, an optional tensor, several results."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <vector>

template <typename scalar_t>
void softplus_of(const scalar_t* x, scalar_t* y, int64_t n, double beta) {
  for (int64_t i = 0; i < n; i++) {
    const double scaled = beta * static_cast<double>(x[i]);
    y[i] = static_cast<scalar_t>((std::max(scaled, 0.0) + std::log1p(std::exp(-std::abs(scaled)))) / beta);
  }
}

std::tuple<torch::Tensor, std::vector<int64_t>> softplus(
    const at::Tensor& input, c10::optional<torch::Tensor> into, double beta, bool check) {
  if (check) TORCH_CHECK(!input.is_cuda(), "input must be on the CPU, is on ", input.device());
  TORCH_CHECK(input.dim() == 2 && input.size(-1) > 0, "expected two dimensions, got ", input.sizes());
  auto x = input.contiguous();
  torch::Tensor y = into.has_value() ? into.value() : torch::empty({x.size(0), x.size(1)}, x.options());
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "softplus", [&] {
    softplus_of<scalar_t>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel(), beta);
  });
  return {y, y.sizes().vec()};
}

torch::Tensor doubled(torch::Tensor x) { return x * 2.0; }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "softplus";
  m.def("softplus", &softplus, "Softplus (CPU)", py::arg("input"), py::arg("into") = py::none(),
        py::arg("beta") = 1.0, py::arg("check") = true);
  m.def("doubled", [](torch::Tensor x) { return doubled(x); });
}
"""

extension = load_inline(name="softplus_cpu", cpp_sources=[SOURCE], extra_cflags=["-O3"], verbose=False)


class ModelNew(nn.Module):
    def forward(self, x):
        y, shape = extension.softplus(x, beta=2.0)
        assert shape == list(x.shape)
        into = torch.zeros_like(x)
        z, _ = extension.softplus(input=x, into=into)
        assert z.data_ptr() == into.data_ptr()
        try:
            extension.softplus(x[0])
        except RuntimeError as error:
            assert "expected two dimensions, got [" in str(error)
        else:
            raise AssertionError("one dimension was accepted")
        assert torch.allclose(y, nn.functional.softplus(x, 2.0), atol=1e-6)
        return extension.doubled(z) / 2
