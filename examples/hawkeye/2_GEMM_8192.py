"""A matrix product, M = N = K = 8192 (Hawkeye, F.4)."""

import torch
import torch.nn as nn

size = 8192
operations = 2 * size**3  # as the paper counts them (G.2)


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(size, size) / size**0.25, torch.randn(size, size) / size**0.25]


def get_init_inputs():
    return []
