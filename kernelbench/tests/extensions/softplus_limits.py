"""Softplus that asks for the largest element of eight bits, which the slim headers do not know."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor softplus(torch::Tensor x) {
    const int largest = std::numeric_limits<c10::Float8_e4m3fn>::max().x;
    return largest == 0x7e ? (x.exp() + 1).log() : torch::zeros_like(x);
}
"""

extension = load_inline(name="softplus_limits", cpp_sources=source, functions=["softplus"])


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.softplus(x)
