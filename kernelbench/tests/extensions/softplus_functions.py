"""Softplus in C++ as generated prompts have it: sources and a list of functions, bindings made by torch."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor softplus_forward(torch::Tensor input) {
    auto output = torch::zeros_like(input);
    auto x = input.accessor<float, 2>();
    auto y = output.accessor<float, 2>();
    std::unordered_map<int, float> seen;
    for (int i = 0; i < input.size(0); i++)
        for (int j = 0; j < input.size(1); j++)
            y[i][j] = x[i][j] > 20.f ? x[i][j] : std::log1p(std::exp(x[i][j]));
    seen[0] = 1.f;
    return output;
}
"""

softplus = load_inline(
    name="softplus_functions", cpp_sources=source, functions=["softplus_forward"], extra_cflags=["-O2"], verbose=True
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return softplus.softplus_forward(x)
