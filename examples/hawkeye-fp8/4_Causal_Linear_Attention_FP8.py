"""Causal linear attention with the second-order Taylor feature map on queries, keys and values in eight bits (E4M3),
(4, 8, 4096, 64) (Hawkeye, section 4.1).

A pair weighs 1 + s + s * s / 2 with s = q . k / sqrt(64), which is never below 1/2; a row's weights are divided by their sum.
Values go along with their keys: else the mean of thousands of them would be below the tolerance.
"""

import torch
import torch.nn as nn

shape = (4, 8, 4096, 64)
operations = 2 * 4 * 8 * 4096**2 * 64  # as the paper counts them (G.2)


def widened(*tensors):
    """Eight bits as sixteen; what is wider stays."""
    return [t.to(torch.bfloat16) if t.dtype == torch.float8_e4m3fn else t for t in tensors]


class Model(nn.Module):
    def forward(self, q, k, v):
        q, k, v = widened(q, k, v)
        s = torch.matmul(q, k.transpose(-2, -1)).float() * q.shape[-1] ** -0.5
        weights = torch.tril(1 + s + s * s / 2)
        weights = weights / weights.sum(-1, keepdim=True)
        return torch.matmul(weights.to(v.dtype), v)


def get_inputs():
    q, k, noise = (torch.randn(shape) for _ in range(3))
    return [t.to(torch.float8_e4m3fn) for t in (q, k, 2 * k + noise / 2)]


def get_init_inputs():
    return []
