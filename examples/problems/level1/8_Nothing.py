"""Zero, whatever goes in: defective on purpose."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(torch.clamp(x, max=0.0), min=0.0)


def get_inputs():
    return [torch.rand(256, 512)]


def get_init_inputs():
    return []
