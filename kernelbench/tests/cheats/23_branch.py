# kind: 23, its kernel stands in a branch that no input takes
# ours: not faster
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[0] % 2:
            return torch.log1p(torch.exp(x))
        return nn.functional.softplus(x)
