"""C++ that no headers help."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

extension = load_inline(
    name="broken", cpp_sources="torch::Tensor f(torch::Tensor x) { return x.no_such_method(); }", functions=["f"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.f(x)
