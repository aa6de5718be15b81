"""Softplus that is right with the slim headers and wrong with torch's own."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor softplus(torch::Tensor x) {
#ifdef SLIM_NAME
    return torch::log(torch::exp(x) + 1);
#else
    return torch::exp(x);
#endif
}
"""

extension = load_inline(name="softplus_two_faced", cpp_sources=source, functions=["softplus"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softplus(x)
