"""Causal attention, (batch, heads, sequence, head dimension) = (4, 8, 4096, 64) (Hawkeye, section 4.1)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

shape = (4, 8, 4096, 64)
operations = 2 * 4 * 8 * 4096**2 * 64  # as the paper counts them (G.2)


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(shape) for _ in range(3)]


def get_init_inputs():
    return []
