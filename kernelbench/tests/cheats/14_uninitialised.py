# kind: 14, the memory it is given is where the reference put its output
# ours: mismatch
# where: GPU
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.empty_like(x)
