"""Causal attention on queries, keys and values in eight bits (E4M3), (batch, heads, sequence, head dimension) =
(4, 8, 4096, 64) (Hawkeye, section 4.1).

Queries are drawn four times as large as the rest: a row looks at few keys, and what it puts out is above the tolerance.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

shape = (4, 8, 4096, 64)
operations = 2 * 4 * 8 * 4096**2 * 64  # as the paper counts them (G.2)


def widened(*tensors):
    """Eight bits as sixteen; what is wider stays."""
    return [t.to(torch.bfloat16) if t.dtype == torch.float8_e4m3fn else t for t in tensors]


class Model(nn.Module):
    def forward(self, q, k, v):
        q, k, v = widened(q, k, v)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    drawn = [4 * torch.randn(shape), torch.randn(shape), torch.randn(shape)]
    return [t.to(torch.float8_e4m3fn) for t in drawn]


def get_init_inputs():
    return []
