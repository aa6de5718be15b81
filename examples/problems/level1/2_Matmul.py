"""A product of two matrices."""

import torch
import torch.nn as nn

M, K, N = 192, 256, 160


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]


def get_init_inputs():
    return []
